"""The captions of the study's figures: what is drawn, and how it was measured. A figure never travels without one."""

from pathlib import Path
from typing import NamedTuple

from ..findings.protocols import PROTOCOLS
from .words import TITLES, listing, plural

TIMES = {2: "twice", 3: "three times", 4: "four times"}
OLSSON = PROTOCOLS["olsson"]


class Measure(NamedTuple):
    """A column of the study's tables as a figure names it, and what it means with the level of a head that does nothing."""

    title: str
    means: str


MEASURES = {column: Measure(title, means) for column, title, means in (
    ("previous_token", "previous token", "attention to the token just before (at most 1)"),
    ("current_token", "current token", "attention to the token itself (at most 1)"),
    ("first_token", "first token", "attention to the first token (at most 1)"),
    ("duplicate_token", "duplicate token", "attention to earlier copies of the token (at most 1)"),
    ("induction", "induction (the stripe)", "attention to what followed earlier copies of the token (at most 1)"),
    ("prefix_matching", "prefix matching",
     f"the stripe by the protocol of Olsson et al. 2022, {OLSSON.n_sequences} sequences of a start token and "
     f"{OLSSON.period} ids {TIMES[OLSSON.repeats]}, mean over all earlier copies (at most {2 / OLSSON.repeats:g})"),
    ("copying_second", "copying, second copy (logit)",
     "what the head adds to the right next token's logit, above its mean over the vocabulary, final LayerNorm scale frozen "
     "(level 0)"),
    ("copying_z", "copying z",
     "attention-weighted logit of the tokens looked at, in standard deviations over the vocabulary (level 0)"),
    ("copying_ratio", "copying ratio", "Olsson et al. 2022, on as many sequences of 25 ids without repeats and start "
                                       "token: -1 to 1; a head that "
     "ignores its input reads 2/T - 1"),
    ("ov_copying", "OV copying",
     "eigenvalues of OV, their sum over the sum of their sizes (level 0; does not tell copying from suppressing)"),
    ("ov_copying_vocab", "OV copying, vocabulary",
     "the eigenvalues of OV between embedding and unembedding, their sum over the sum of their sizes (level 0; does not "
     "tell copying from suppressing)"),
    ("ov_copying_effective", "OV copying, effective",
     "the eigenvalues of OV between effective embedding (the stream behind layer 0 of a token alone) and unembedding, their "
     "sum over the sum of their sizes (level 0)"),
    ("qk_matching", "QK matching", "the eigenvalue ratio of QK between equal tokens (level 0)"),
    ("qk_matching_composed", "QK matching, composed",
     "the eigenvalue ratio of QK through the earlier heads, each by its previous-token score: does a token match the one "
     "before the key (level 0)"),
    ("qk_matching_composed_effective", "QK composed, effective",
     "the eigenvalue ratio of QK through the earlier heads, each by its previous-token score, with the effective embedding: "
     "does a token match the one before the key (level 0)"),
    ("cut_free", "cut (nats)", "change of the loss in the second copy when the head alone is cut"),
    ("cut_frozen", "cut, frozen (nats)", "the same with all later patterns as in the clean run"),
)}
KINDS = "An induction head matches and copies, an anti-induction head matches and suppresses."
REPEATS = "Repeats are in the training data, so that when these heads appear says nothing about natural text."


def capital(text):
    """The text with its first letter capital."""
    return text[:1].upper() + text[1:]


def measure(column):
    """The Measure of any column; one without an entry keeps its own name."""
    return MEASURES.get(column, Measure(TITLES.get(column, column.replace("_", " ")), "as in the tables"))


def explained(column):
    """"copying z: attention-weighted ... (level 0)"."""
    return ": ".join(measure(column))


def measured(run):
    """How the numbers were made, from a run record: model, dtype, protocol, number of sequences, seed. Plain sentences."""
    arguments = run.get("arguments", {})
    source = run.get("model", {}).get("source", "unknown")
    name = source if len(Path(source).parts) == 1 else Path(source).name
    found = [f"Model {name}, {run.get('dtype', 'dtype unknown')}."]
    period, repeats = arguments.get("period"), arguments.get("repeats") or 2
    if period and arguments.get("n_sequences"):
        found.append(f"Protocol {arguments.get('protocol') or 'stripe'}: {plural(arguments['n_sequences'], 'sequence')} "
                     f"of {period} distinct ids {TIMES.get(repeats, f'{repeats} times')}, "
                     f"{'BOS first' if arguments.get('bos') else 'no BOS'}, seed {arguments.get('seed')}.")
    elif "seed" in arguments:
        found.append(f"Seed {arguments['seed']}.")
    if "fold" in arguments:
        found.append(f"Measures of the weights: LayerNorm {'folded in' if arguments['fold'] else 'left out'}.")
    if "samples" in arguments:
        found.append(f"Baseline: {plural(arguments['samples'], 'random pair')} of the same shapes.")
    if arguments.get("fill"):
        said = {"mean": "their mean at each position over other sequences", "zero": "zero",
                "resample": "what they say on another sequence"}
        found.append(f"What cut heads say is replaced by {said.get(arguments['fill'], arguments['fill'])}"
                     + (f", drawn with seed {arguments['reference_seed']}" if "reference_seed" in arguments else "")
                     + (f"; later patterns {arguments['patterns']}." if arguments.get("patterns") else "."))
    return " ".join(found)


def maps_caption(columns, run):
    """Caption of `score_maps`."""
    return ("One cell a head, layers down, heads across; hatched: no value; frames: the kinds of heads named below. "
            f"{KINDS} {capital('; '.join(map(explained, columns)))}. {measured(run)}")


def matching_caption(x, y, threshold, run, *, absent=0, unnamed=0):
    """Caption of `matching_against_copying`. absent: heads without a value; unnamed: found heads too many to name."""
    dashed = "" if threshold is None else f"Dashed: the threshold of the verdict, {threshold:g}. "
    return (f"One point a head. Across: {explained(x)}. Up: {explained(y)}. Bars: one standard error over sequences. "
            f"{dashed}Dotted: the levels of a head that does neither. {KINDS} "
            + (f"{capital(plural(absent, 'head'))} without a value not drawn. " if absent else "")
            + (f"{capital(plural(unnamed, 'head'))} with a verdict not named for want of room. " if unnamed else "")
            + measured(run))


def threshold_caption(n_heads, n_shown, run):
    """Caption of `threshold_figure`."""
    return ("Heads that match (above the threshold, and above their control at 1 % after Holm) and copy or suppress, "
            "by their induction score; bars: one standard error. Dashed: thresholds, with how many induction heads "
            "each leaves. Published choices run from 0.3 to 0.8: where heads stand near a line, the list depends on it. "
            + (f"The strongest {n_shown} of {n_heads} are drawn. " if n_heads > n_shown else "") + measured(run))


def loss_caption(cut, run):
    """Caption of `loss_by_position`. cut: names of the heads cut together, or none."""
    heads = f" and with {listing(cut)} cut" if cut else ""
    return (f"Loss of each next token of repeated random ids, clean{heads}; bands: one standard error over sequences. "
            "Shaded: tokens that stand in a copy, of which induction can know all but the very first; dotted: an "
            f"even guess, ln(vocabulary). {measured(run)}")


def web_caption(which, n_above, n_drawn, n_pairs, run):
    """Caption of `composition_web`. which: "q", "k" or "v"."""
    part = {"q": "queries", "k": "keys", "v": "values"}[which]
    many = f"{n_above} of {plural(n_pairs, 'pair')} above the baseline's 99th percentile" if n_pairs else "There is no pair"
    drawn = f"; the strongest {n_drawn} are drawn" if n_drawn < n_above else "; all of them are drawn" if n_above else ""
    return (f"{which.upper()}-composition: how far an earlier head's output (OV) reaches into a later head's {part}: "
            "||AB|| / (||A|| ||B||) minus the mean of random factors (Elhage et al. 2021). One node a head, layers "
            f"from left to right; wider is stronger. {many}{drawn}. In colour: pairs of heads with a verdict. "
            + measured(run))


def circuit_caption(run):
    """Caption of `circuit`."""
    how = run.get("arguments", {})
    below, above = how.get("k_below", 0.5), how.get("qv_above", 0.9)
    return ("Each row is a pair: the earlier head tells the later one which token came before. Numbers: the later "
            "head's induction score (the stripe) clean; with the earlier head cut; with only the later one's q, or "
            "only its k, from the cut run; with only the earlier one's direct path removed; k again with another head "
            "of its layer cut instead (the control). v: what the later head adds to the right token's logit with only v "
            f"from the cut run, over what it adds clean. A pair agrees where k falls below {below:g} of clean, q and v keep "
            f"more than {above:g}, and its K-composition (here minus the baseline's mean) lies above the baseline's 99th "
            f"percentile. {measured(run)}")


def phase_caption(runs, *, n_sequences, period, seed, windows, dtype="float32", notes=""):
    """Caption of `phase_change`. runs: [(label, share of the training rows that repeat, or None where unknown)].

    notes: what else a reader of this training has to know, in sentences.
    """
    shares = [f"{label}: {f'{100 * share:.0f} % of the rows repeat' if share else 'no planted repeats'}"
              for label, share in runs if share is not None]
    planted = any(share for _, share in runs) or not shares
    trained = f" ({'; '.join(shares)})" if shares else ""
    return (f"Small GPT-2s trained alike{trained}, scored in {dtype}. Scores: one thin "
            "line a head, the best of the last step bold and named; dashed grey: the same induction head on its control. "
            f"{n_sequences} sequences of {period} distinct ids twice, no BOS, seed {seed}; losses of the copies on another "
            f"draw, seed {seed + 1}. In-context learning: loss of the last 20 tokens minus that of tokens 41 to 60 in "
            f"{windows} held-out windows, band: one standard error; below 0 is learning. Steps on a log scale; step 0 "
            f"stands apart at the left.{' ' + notes if notes else ''}{' ' + REPEATS if planted else ''}")
