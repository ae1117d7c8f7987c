"""Texts worth looking at, by name, and what to look for in them."""

from dataclasses import dataclass

from ..errors import ArgumentError

PRESETS = {
    "animal": "The animal didn't cross the street because it was too tired",
    "cat": "The cat sat on the",
    "dursley": ("Mr. and Mrs. Dursley locked the door of the shop at six. Ms. Dursley, their niece, had swept the floor and "
                "counted the coins. \"Same again tomorrow,\" said Mr. Dursley. \"Same again,\" said Ms. Dursley"),
}


@dataclass(frozen=True)
class Question:
    """When the model reads `query`, how much does it look at each of `keys`? Words as they stand in the text."""

    query: str
    keys: tuple


QUESTIONS = {"animal": Question("it", ("animal", "street"))}


def question_of(text):
    """The Question that belongs to a text, or None."""
    return next((QUESTIONS[name] for name, known in PRESETS.items() if known == text and name in QUESTIONS), None)


def preset(name):
    """The text of a preset. Raises ArgumentError that lists the names."""
    if name not in PRESETS:
        raise ArgumentError(f"there is no preset {name!r}; known: {', '.join(PRESETS)}")
    return PRESETS[name]
