"""Published ways to measure the same heads, by name, each with its own prompts and positions, so that numbers compare.

The same head (10.7 of GPT-2 small) reads 0.26, 0.39, 0.44, 0.48 or 0.88 under five of them: never compare across names.
"""

from dataclasses import dataclass

from ..errors import ArgumentError


@dataclass(frozen=True)
class Protocol:
    """How one measurement draws its prompts and which cells it averages."""

    source: str
    period: int
    repeats: int = 2
    n_sequences: int = 16
    bos: bool = False
    low: int = 0                    # ids drawn from low ..
    high: int | None = None         # .. to high (not included); None = the whole vocabulary
    distinct: bool = True           # a block holds no id twice
    diagonal: bool = False          # induction is the whole diagonal of offset L-1: L+1 entries, query L-1 -> key 0 included
    drop_first: bool = False        # row and column 0 removed, rows renormalised
    prefix_matching: bool = False   # also the mean over all (query, earlier copy's follower) entries, at most 2/m


PROTOCOLS = {
    "stripe": Protocol("this package: copies 2..m only, summed over all earlier copies", period=50),
    "tl-seed0": Protocol("TransformerLens demos/Exploratory_Analysis_Demo.ipynb, cells 98-100 (seed 0)", period=100,
                         n_sequences=2, low=100, high=20000, distinct=False, diagonal=True),
    "tl-main": Protocol("TransformerLens demos/Main_Demo.ipynb, cell 51", period=50, n_sequences=10, low=1000, high=10000,
                        distinct=False, diagonal=True),
    "olsson": Protocol("Olsson et al. 2022, Methods, head activation evaluators: 25 random tokens 4 times after a start "
                       "token; ids 1000..39999 as a published run of it on GPT-2 has them (most and least common left out)",
                       period=25, repeats=4, n_sequences=10, bos=True, low=1000, high=40000, prefix_matching=True),
    "song2024": Protocol("Song, Xu and Zhong 2024, 'Out-of-distribution generalization via composition', IH_list/prep.py",
                         period=25, n_sequences=50, distinct=False, diagonal=True, drop_first=True),
    "ioi": Protocol("Wang et al. 2022, appendix H: 100 tokens uniform over the vocabulary, twice", period=100,
                    distinct=False, diagonal=True),
}


def protocol(name):
    """The Protocol of a name. Raises ArgumentError that lists the names."""
    if name not in PROTOCOLS:
        raise ArgumentError(f"protocol {name!r} is unknown; known: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def id_range(rule, model):
    """(low, high) for this model: the protocol's, or the whole vocabulary where that is too small for it."""
    vocab = model.config.vocab_size
    return (0, vocab) if rule.high is not None and rule.high > vocab else (rule.low, rule.high)
