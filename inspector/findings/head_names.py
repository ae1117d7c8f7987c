"""Heads by name: "5.1" is head 1 of layer 5, both counted from 0."""

import operator
import re

from ..errors import ArgumentError


def head_name(head):
    """(5, 1) -> "5.1"."""
    return f"{head[0]}.{head[1]}"


def head_names(heads):
    """((5, 1), (6, 9)) -> "5.1 6.9"."""
    return " ".join(map(head_name, heads))


def _pair(item):
    """(layer, head) of "5.1" or (5, 1)."""
    if isinstance(item, str) and re.fullmatch(r"\d{1,9}\.\d{1,9}", item, re.ASCII):
        layer, head = map(int, item.split("."))
        return layer, head
    try:
        layer, head = map(operator.index, item)
        return layer, head
    except (TypeError, ValueError):
        # A bare number is refused on purpose: 1.1 and 1.10 are two heads, but one number.
        raise ArgumentError(f"head {str(item)[:40]!r} is unclear; expected layer.head as text, such as \"5.1\", "
                            "or a pair (5, 1)") from None


def parse_heads(model, heads, least=1):
    """Heads in any form as a sorted tuple of different (layer, head).

    heads: "1.4", "1.4 2.0" (spaces or commas), or a list of "1.4" or (1, 4). Raises ArgumentError for fewer than `least`
    heads, one written otherwise, or one that the model lacks.
    """
    if isinstance(heads, str):
        heads = heads.replace(",", " ").split()
    try:
        found = sorted({_pair(item) for item in heads})
    except TypeError:
        raise ArgumentError(f"heads is {heads!r}; expected such as \"5.1 6.9\" or [(5, 1), (6, 9)]") from None
    if len(found) < least:
        raise ArgumentError("no head is named; expected at least one, such as \"5.1\"")
    n_layer, n_head = model.config.n_layer, model.config.n_head
    if absent := [head for head in found if not (0 <= head[0] < n_layer and 0 <= head[1] < n_head)]:
        raise ArgumentError(f"this model has no head {head_names(absent)}; its heads are 0.0 to {n_layer - 1}.{n_head - 1} "
                            f"({n_layer} layers of {n_head})")
    return tuple(found)
