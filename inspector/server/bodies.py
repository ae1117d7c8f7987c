"""What a request may hold: the arguments of the function behind it, with its names and defaults (a test holds them equal).

Nothing else is taken, and nothing is converted: "3" is no number here. `model` is one of those the server was started with;
None is the first. What these types let through the functions check themselves.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema

from ..findings.verdicts import THRESHOLD

MOST = 100              # sequences, references, controls: what would else run, or draw, for hours
Count = Annotated[int, Field(le=MOST)]
Ids = list[int] | str
Heads = list[str] | str
# Any here, so that `parse_edits` says what is wrong with them: of a union that nothing fits, pydantic tells its own parts.
Edits = Annotated[Any, WithJsonSchema(TypeAdapter(dict[str, float | str] | str).json_schema())]


class Body(BaseModel):
    """Which model."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: str | None = None


class Text(Body):
    """A text, or the ids of one."""

    text: str | None = None
    ids: Ids | None = None
    bos: bool = False


class Info(Text):
    """What a model is made of, and what a text costs."""

    tokens: int | None = None


class Trace(Text):
    """A text's tensors; `keep` names those that are sent, as in "pattern,logits"."""

    keep: Heads | None = None


class Drawn(Body):
    """Repeated sequences that are drawn."""

    text: str | None = None
    period: int | None = None
    repeats: int = 2
    n_sequences: Count = 16
    bos: bool = False
    seed: int = 0


class HeadScores(Drawn):
    """Scores and verdicts of every head."""

    ids: list[int] | list[list[int]] | str | None = None
    protocol: str = "stripe"
    threshold: float = THRESHOLD


class Induction(Text):
    """What repeats in a text, and what the induction heads do there."""

    heads: Heads | None = None
    period: int | None = None
    seed: int = 0


class Attribute(Text):
    """Which parts raise one next token against another."""

    target: int | str | None = None
    against: int | str | None = None
    position: int = -1


class Ablate(Drawn):
    """The loss without heads."""

    heads: Heads | None = None
    ids: Ids | None = None
    fill: str = "mean"
    patterns: str = "free"
    n_controls: Count = 20


class Intervene(Text):
    """A text with heads changed, beside the same text untouched."""

    edits: Edits
    position: int = -1
    n_references: Count = 16
    seed: int = 0
    top: Annotated[int, Field(le=1000)] = 10


class Explore(Text):
    """What the explorer shows of a text; beside it `compare`, another one, or the same with `edits` and what those did."""

    compare: str | None = None
    edits: Edits = {}
    moves: Heads | None = None
    position: int | None = None


class Tokens(Text):
    """The ids of a text. `repeat`: "text" gives them twice; "random" draws `period` ids instead, twice."""

    repeat: Literal["text", "random"] | None = None
    period: int | None = None
    seed: int = 0
