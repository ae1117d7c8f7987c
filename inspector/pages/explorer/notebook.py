"""`explore`: the explorer of a trace, to show in a notebook or to save as a file."""

import html
from dataclasses import dataclass
from pathlib import Path

from ... import record
from ...errors import ArgumentError
from ...findings.head_names import parse_heads
from ...model.tracing import TENSORS, Trace
from .. import words
from ..html import model_facts
from .bundle import bundle, text_scores
from .page import explorer_page

HEIGHT = 900        # pixels of the frame in a notebook


@dataclass(frozen=True, repr=False)
class Explorer:
    """A page of its own. In Jupyter and Colab the last line of a cell shows it; `save` writes it as a file."""

    html: str           # the whole page
    title: str          # the text it is about

    def __repr__(self):
        return f"Explorer({self.title!r}, {len(self.html) / 1e6:.1f} MB)"

    def _repr_html_(self):
        # A frame of its own: several of them in one notebook share no name, no style and no module.
        return (f'<iframe srcdoc="{html.escape(self.html)}" title="{html.escape(self.title)}" '
                f'style="width:100%;height:{HEIGHT}px;border:0" loading="lazy"></iframe>')

    def save(self, path):
        """Write the page and return its path. Raises OutputError."""
        record.write_text(path, self.html)
        return Path(path)


def refuse_unfit(traces):
    """Raise ArgumentError for traces that lack what the explorer shows, or belong to different models."""
    for each in traces:
        if not isinstance(each, Trace):
            raise ArgumentError(f"explore takes traces, not {type(each).__name__}: explore(inspector.trace(model, text))")
        if absent := [name for name in TENSORS if name != "logits" and getattr(each, name) is None]:
            raise ArgumentError(f"this trace was made without {', '.join(absent)}; the explorer needs them: keep them")
        if each.model is None:
            raise ArgumentError("this trace has no model beside it; make it with inspector.trace")
        if each.model is not traces[0].model:
            raise ArgumentError("the two traces are of different models; compare texts of one")


def explore(trace, compare=None, *, moves=None):
    """The explorer of one text, or of two side by side: an `Explorer`, which a notebook shows.

    trace, compare: Traces of one model (`inspector.trace`), with all their tensors but the logits. moves: whose q, k and v
    to store, in any form of `parse_heads` (None: of all heads up to 64 tokens, beyond that of the eight that score highest
    as previous-token, duplicate-token or induction heads; "" of none). Of each weight its logarithm is stored, in half
    precision, up to 256 tokens, else q and k; the page says how far its numbers can be off.

    Raises ArgumentError.
    """
    traces = [trace] if compare is None else [trace, compare]
    refuse_unfit(traces)
    model = trace.model
    chosen = None if moves is None else parse_heads(model, moves, least=0)
    facts = page_facts(trace)
    stored = bundle(traces, [text_scores(each) for each in traces], moves=chosen, name=facts["model"])
    return Explorer(explorer_page(stored, facts), facts["shown_text"])


def page_facts(trace):
    """What the page of one trace says about itself, where it stands alone. See `report.facts`."""
    return {**model_facts(trace.model), "pages": False, "study": False, "explorer": False, "n_tokens": len(trace.ids),
            "bos": trace.bos, "shown_text": words.title(trace.texts, trace.labels)}
