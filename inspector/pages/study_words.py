"""What a study found, in sentences: for its page and for the terminal. Pure functions of a `findings.study.Study`."""

from ..findings.ablation import next_seed
from .captions import capital
from .words import head_name, listing, plural, signed

ROLES = {
    "previous_token": ("previous-token head", "looks at the token just before"),
    "current_token": ("current-token head", "looks at the token itself"),
    "first_token": ("first-token head", "looks at the first token"),
    "duplicate_token": ("duplicate-token head", "looks at earlier copies of its token"),
    "induction": ("head that matches", "looks at what followed earlier copies of its token"),
    "copies": ("head that copies", "raises the tokens it looks at"),
    "suppresses": ("head that suppresses", "lowers the right next token"),
    "induction_head": ("induction head", "matches and copies"),
    "anti_induction_head": ("anti-induction head", "matches and suppresses"),
}


def named(heads):
    """((1, 1), (1, 2)) -> "1.1 and 1.2"."""
    return listing(head_name(*head) for head in heads)


def told(verdict):
    """A head's words without those that another one of them includes: an induction head matches and copies anyway."""
    included = {"induction_head": {"induction", "copies"}, "anti_induction_head": {"induction", "suppresses"}}
    return [word for word in verdict if not any(word in included.get(other, ()) for other in verdict)]


def verdict_sentences(study):
    """Which heads are what, one sentence a finding."""
    found, n = study.found, len(study.table)
    heads, against = found.get("induction_head", ()), found.get("anti_induction_head", ())
    alone = [head for head in found.get("induction", ()) if head not in (*heads, *against)]
    said = []
    if heads:
        one = len(heads) == 1
        said.append(f"{named(heads)} {'is an induction head: it looks' if one else 'are induction heads: they look'} at "
                    "what "
                    f"followed earlier copies of {'its' if one else 'their'} token, and {'raises' if one else 'raise'} it.")
    else:
        said.append(f"None of the {plural(n, 'head')} is an induction head: none both looks at what followed earlier "
                    "copies of "
                    "its token and raises it.")
    if against:
        said.append(f"{named(against)} {'looks' if len(against) == 1 else 'look'} there too and "
                    f"{'lowers' if len(against) == 1 else 'lower'} it: anti-induction.")
    if alone:
        said.append(f"{named(alone)} {'looks' if len(alone) == 1 else 'look'} there, but copying is not shown.")
    return said


def circuit_sentence(study):
    """Who feeds whom, by the causal test and the weights."""
    run, tested = study.run["arguments"], study.circuit
    if not len(tested):
        missing = [words for words, there in (("no previous-token head was found", study.found.get("previous_token")),
                                              ("no head that matches", study.found.get("induction"))) if not there]
        why = listing(missing) or "no head that matches lies in a later layer than a previous-token head"
        return f"No pair could be tested: {why}."
    good = tested[tested["agrees"]]
    rule = (f"with the first one cut, the second keeps less than {run['k_below']:g} of its stripe if only its keys know of "
            "it, "
            f"and more than {run['qv_above']:g} if only its queries or its values do; and the two compose more than random "
            "factors do")
    if not len(good):
        return f"Of {plural(len(tested), 'tested pair')} none agrees: {rule}."
    by_source = {}
    for row in good.itertuples():
        by_source.setdefault(head_name(row.layer_from, row.head_from), []).append(head_name(row.layer, row.head))
    pairs = listing(f"{source} feeds {listing(fed)}" for source, fed in by_source.items())
    return f"{capital(pairs)} ({len(good)} of {plural(len(tested), 'tested pair')}): {rule}."


def control_words(row):
    """What random sets do to the loss: +0.01 on average, 0.00 to +0.03."""
    return f"{signed(row['control_mean'])} on average, {signed(row['control_low'])} to {signed(row['control_high'])}"


def set_sentences(study):
    """What the loss does when the heads of a role are cut together, a sentence or two a role."""
    said = []
    for role, rows in study.sets.groupby("role", sort=False):
        free, frozen = (rows[rows["patterns"] == patterns].iloc[0] for patterns in ("free", "frozen"))
        heads = free["cut"].split()
        which = f"{ROLES[role][0]}s {listing(heads)} together" if len(heads) > 1 else f"{ROLES[role][0]} {heads[0]}"
        said.append(f"Without the {which} the loss in the repeats goes from {free['clean_loss']:.2f} to {free['loss']:.2f} "
                    "nats "
                    f"({signed(free['change'])}); if later heads keep the patterns they had, {signed(frozen['change'])}."
                    + (f" {capital(plural(free['n_controls'], 'random set'))} of as many heads from the same layers: "
                       f"{control_words(free)}; with patterns kept {control_words(frozen)}." if free["n_controls"] else ""))
    return said


def learning_sentence(study):
    """In-context learning on the text, or why there is no number."""
    if study.learning is None:
        return f"In-context learning: not measured; {study.left_out.get('in-context learning', '')}."
    bands, n = study.learning.bands, study.learning.n_windows
    first, last = bands.early, bands.late
    return (f"In-context learning on the text, the loss of tokens {last[0]} to {last[1]} minus that of {first[0]} to "
            f"{first[1]}: {bands} ({plural(n, 'window')} of {study.learning.n_tokens} tokens).")


def published_sentence(study):
    """How the published figures compare, in one sentence."""
    if study.published is None:
        return f"Published figures: {study.left_out.get('published', 'none for this model')}."
    whom = "TransformerLens on this model" if study.published.attrs["release"] == "demo" else "the published"
    return f"Beside {whom}: {study.published.attrs['summary']}."


def protocol_sentence(study):
    """How it was measured."""
    run = study.run["arguments"]
    return (f"{run['n_sequences']} sequences of {run['period']} distinct random ids, {run['repeats']} times"
            f"{', BOS first' if run['bos'] else ', no BOS'}, seed {run['seed']}; as many unrepeated ones as control; what "
            "a cut "
            f"head says instead is its mean over sequences of seed {next_seed(run['seed'])}.")


def sentences(study):
    """All of it, in reading order."""
    return [*verdict_sentences(study), circuit_sentence(study), *set_sentences(study), learning_sentence(study),
            published_sentence(study)]
