"""What a study found, in sentences: for its page and for the terminal. Pure functions of a `findings.study.Study`."""

from ..findings.ablation import next_seed
from .captions import capital
from .words import head_name, listing, number, plural, signed

ROLES = {
    "previous_token": ("previous-token head", "looks at the token just before"),
    "current_token": ("current-token head", "looks at the token itself"),
    "first_token": ("first-token head", "looks at the first token"),
    "duplicate_token": ("duplicate-token head", "looks at earlier occurrences of its token"),
    "induction": ("head that matches", "looks at what followed earlier occurrences of its token"),
    "copies": ("head that copies", "raises the tokens it looks at: what it adds to the right next token, in logits"),
    "suppresses": ("head that suppresses", "lowers the right next token: by so many logits"),
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
    """Which heads are what, one sentence a finding, and the head nearest to being one."""
    if study.run["arguments"]["n_sequences"] < 2:
        return ["One sequence has no spread, so that no head can get a verdict: take more."]
    found, n = study.found, len(study.table)
    heads, against = found.get("induction_head", ()), found.get("anti_induction_head", ())
    alone = [head for head in found.get("induction", ()) if head not in (*heads, *against)]
    said = []
    if heads:
        one = len(heads) == 1
        said.append(f"{named(heads)} {'is an induction head: it looks' if one else 'are induction heads: they look'} at "
                    f"what followed earlier occurrences of {'its' if one else 'their'} token, and "
                    f"{'raises' if one else 'raise'} it.")
    else:
        said.append(f"None of the {plural(n, 'head')} is an induction head: none both looks at what followed earlier "
                    "occurrences of its token and raises it.")
    if against:
        said.append(f"{named(against)} {'looks' if len(against) == 1 else 'look'} there too and "
                    f"{'lowers' if len(against) == 1 else 'lower'} it: anti-induction.")
    if alone:
        said.append(f"{named(alone)} {'looks' if len(alone) == 1 else 'look'} there, but copying is not shown.")
    others = study.table[["induction" not in verdict for verdict in study.table["verdict"]]]
    if len(others) and others["induction"].notna().any():
        row = others.loc[others["induction"].idxmax()]
        said.append(f"The highest stripe of a head without the verdict: {head_name(int(row['layer']), int(row['head']))}, "
                    f"{number(row['induction'])}.")
    return said


def percents(values):
    """98–100 %, or 8 % where they are all alike."""
    low, high = (f"{100 * value:.0f}" for value in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def circuit_sentences(study):
    """Who feeds whom: by the causal test, by which route, and what the weights say to it."""
    run, tested = study.run["arguments"], study.circuit
    if not len(tested):
        missing = [words for words, there in (("no previous-token head was found", study.found.get("previous_token")),
                                              ("no head that matches", study.found.get("induction"))) if not there]
        why = listing(missing) or "no head that matches lies in a later layer than a previous-token head"
        return [f"No pair could be tested: {why}."]
    good = tested[tested["agrees"]]
    below, above = (f"{100 * run[name]:g} %" for name in ("k_below", "qv_above"))
    rule = (f"A pair agrees when, with the first head cut, the second keeps less than {below} of its stripe if only its "
            f"keys come from that run, more than {above} of it if only its queries do, and more than {above} of what it "
            "adds to the right token if only its values do; and the two compose more than 99 % of random factors.")
    if not len(good):
        return [f"Of {plural(len(tested), 'tested pair')} none agrees.", rule]
    said = []
    for source, rows in good.groupby(["layer_from", "head_from"]):
        fed = named(zip(rows["layer"], rows["head"], strict=True))
        one = len(rows) == 1
        said.append(f"{head_name(*source)} feeds {fed} through {'its' if one else 'their'} keys: with keys from the run "
                    f"without {head_name(*source)} {'it keeps' if one else 'they keep'} {percents(rows['k_left'])} of the "
                    "stripe.")
        if (rows["route"] == "direct").all():
            said.append(f"The direct path carries it: without it alone {percents(rows['direct_left'])} is left.")
        elif (rows["route"] == "indirect").all():
            said.append(f"Not by the direct path, without which {percents(rows['direct_left'])} is left, but by what lies "
                        "between, such as the MLPs; K-composition in the weights measures the direct path alone.")
        ranks = rows["k_composition_rank"].astype(int)
        place = f"{ranks.min()}" if ranks.min() == ranks.max() else f"{ranks.min()} to {ranks.max()}"
        said.append(f"By K-composition in the weights it is number {place} of the {study.table['head'].max() + 1} heads of "
                    "its layer.")
    pairs = study.circuits.pairs
    return [*said, f"{len(good)} of {plural(len(tested), 'tested pair')} agree{'s' if len(good) == 1 else ''}. {rule} That "
                   f"last part alone says little: {pairs['k_composition_high'].eq(True).sum()} of all "
                   f"{plural(len(pairs), 'pair')} pass it."]


def control_words(row):
    """What other sets do to the loss: +0.010 on average, 0.000 to +0.031."""
    low, high, mean = (signed(row[name], 3) for name in ("control_low", "control_high", "control_mean"))
    return mean if row["n_controls"] == 1 else f"{mean} on average, {low} to {high}"


def set_sentences(study):
    """What the loss does when the heads of a role are cut together, a sentence or two a role."""
    said = []
    for role, rows in study.sets.groupby("role", sort=False):
        free, frozen = (rows[rows["patterns"] == patterns].iloc[0] for patterns in ("free", "frozen"))
        heads = free["cut"].split()
        which = f"{ROLES[role][0]}s {listing(heads)} together" if len(heads) > 1 else f"{ROLES[role][0]} {heads[0]}"
        words = (f"Without the {which} the loss in the repeats goes from {free['clean_loss']:.2f} to {free['loss']:.2f} "
                 f"nats ({signed(free['change'])}); if later heads keep the patterns they had, {signed(frozen['change'])}.")
        if free["n_controls"]:
            words += (f" {capital(plural(free['n_controls'], 'other set'))} of as many heads from the same layers: "
                      f"{control_words(free)}; patterns kept {control_words(frozen)}.")
        if free["control_shared"]:
            words += f" But each of these shares {plural(free['control_shared'], 'head')} with the set, for want of others."
        if isinstance(free["rest"], str):
            words += (f" All the others there, {listing(free['rest'].split())}: {signed(free['rest_change'], 3)}; "
                      f"patterns kept {signed(frozen['rest_change'], 3)}.")
        said.append(words)
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
    return f"Beside ours: {study.published.attrs['summary']}."


def protocol_sentence(study):
    """How it was measured."""
    run = study.run["arguments"]
    return (f"{plural(run['n_sequences'], 'sequence')} of {run['period']} distinct random ids, {run['repeats']} times"
            f"{', BOS first' if run['bos'] else ', no BOS'}, seed {run['seed']}; as many unrepeated ones as control; what "
            f"a cut head says instead is its mean over sequences of seed {next_seed(run['seed'])}.")


def sentences(study):
    """All of it, in reading order."""
    return [*verdict_sentences(study), *circuit_sentences(study), *set_sentences(study), learning_sentence(study),
            published_sentence(study)]


def unsaid(study):
    """What was left out and no sentence has told yet: {what: why}."""
    return {what: why for what, why in study.left_out.items() if what not in ("in-context learning", "published")}
