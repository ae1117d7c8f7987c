"""The induction circuit, causally: does a later head find its tokens through an earlier one, and through which input?

An earlier head p (previous-token) is cut, and a later head h (induction) reads q, k or v from that run, the other two from
the clean one; what lies between them, MLPs and other heads, passes the cut on. If h matches "the token before me" (Elhage et
al. 2021, "A Mathematical Framework for Transformer Circuits", section "Induction heads"; Olsson et al. 2022), its keys
carry what p wrote, and it is k that must fail: K-composition.
"""

import pandas as pd
import torch

from ..model.attention import attention_scores, mask_future, mix, softmax
from ..model.forward import layers, qkv
from ..record import run_record
from .ablation import next_seed
from .cutting import POSITIONS_AT_ONCE, attend, clean_run, edits_of, fills_of
from .direct import direct_logits, direct_unembedding, final_scale
from .head_names import head_names, parse_heads
from .prompts import draw, longest_period
from .scores import pattern_scores
from .verdicts import mean_se

K_BELOW, QV_ABOVE = 0.5, 0.9          # this package's own: k loses more than half, q and v at most a tenth
MEASURES = ("clean", "cut", "q", "k", "v", "direct", "control_cut", "control_k", "logit", "logit_v")


def look(q, k, scale):
    """The pattern of given q and k: [*batch, query, key] from [*batch, pos, d_head]."""
    return softmax(mask_future(attention_scores(q, k, scale)))


def stripe(q, k, scale, symbols):
    """The score `induction` of given q and k, [sequence, pos, d_head] or [cut, sequence, ...]: [sequence], [cut, sequence].

    Sequences stand where `pattern_scores` has heads: to it they are the same.
    """
    return pattern_scores(look(q, k, scale), symbols)["induction"]


def next_token_logit(z, W_O, columns, final):
    """A head's part of the right next token's logit above its vocabulary mean, mean over queries: [sequence].

    z: [sequence, query, d_head], W_O: [d_head, d_model], columns: [sequence, d_model, query] of `direct_unembedding` at
    each query's next token, final: [sequence, query], the final LayerNorm's scale.
    """
    logits = direct_logits(z[:, None], W_O[None], columns)                                   # [sequence, 1, query, token]
    return (logits[:, 0].diagonal(0, -2, -1) / final).mean(-1)


def cut_streams(model, resid, layer, last, fill):
    """{later layer: what it reads with one head of `layer` cut}, up to layer `last`: [head cut, sequence, pos, d_model]."""
    alone = [((layer, head),) for head in range(model.config.n_head)]
    edits = {layer: edits_of(model, alone, layer, fill, {})[layer]}
    return {step.index + 1: step.resid_post
            for step in layers(model, resid, start=layer, stop=last, kernel=attend, edits=edits)}


def from_one_layer(model, ids, prompts, layer, pairs, fill, unembedding):
    """{pair: {measure: [sequence]}} for the pairs whose earlier head is in `layer`. ids: [sequence, pos]."""
    first = prompts.bos + prompts.period                     # the queries first .. n-2 are in copy 2 and have a next token
    symbols = prompts.symbols.to(ids.device)
    resid, _ = clean_run(model, ids)
    z = next(layers(model, resid[layer], start=layer, stop=layer + 1, kernel=attend)).z      # [sequence, head, pos, d_head]
    streams = cut_streams(model, resid[layer], layer, max(h[0] for _, h in pairs), fill)
    columns = unembedding[:, ids[:, first + 1:].cpu()].movedim(0, 1)                         # [sequence, d_model, query]
    final = final_scale(model, resid[-1][:, first:-1]).cpu()                                 # [sequence, query]
    found = {}
    for p, h in pairs:
        said = z[:, p[1]] - (fill[layer][..., p[1], :, :] if fill else 0)                    # [sequence, pos, d_head]
        direct = resid[h[0]] - said @ model.weights.blocks[layer].W_O[p[1]]                  # [sequence, pos, d_model]
        # Clean and direct are [sequence, pos, d_head]; the cut ones have the head that was cut in front.
        (q, k, v), (cut_q, cut_k, cut_v), (direct_q, direct_k, _) = (
            [part[..., h[1], :, :] for part in qkv(model, h[0], stream)] for stream in (resid[h[0]], streams[h[0]], direct))
        scale, W_O = model.config.scale(h[0]), model.weights.blocks[h[0]].W_O[h[1]].double().cpu()
        seen = look(q, k, scale)[:, first:-1]                                                # [sequence, query, key]
        logit, logit_v = (next_token_logit(mix(seen, each).double().cpu(), W_O, columns, final)
                          for each in (v, cut_v[p[1]]))
        clean, cut, cut_k_only = (stripe(*both, scale, symbols) for both in ((q, k), (cut_q, cut_k), (q, cut_k)))
        others = [head for head in range(model.config.n_head) if head != p[1]]
        found[p, h] = {"clean": clean, "cut": cut[p[1]], "q": stripe(cut_q[p[1]], k, scale, symbols), "k": cut_k_only[p[1]],
                       "v": clean, "direct": stripe(direct_q, direct_k, scale, symbols),
                       "control_cut": cut[others].mean(0), "control_k": cut_k_only[others].mean(0),
                       "logit": logit, "logit_v": logit_v}
    return found


def agrees(row, k_below=K_BELOW, qv_above=QV_ABOVE):
    """Whether a row of `causes` shows K-composition: k below `k_below` of clean, q and v above `qv_above` of clean.

    The stripe cannot see v: for v it is the logit of the right next token that counts, in either sign.
    """
    kept_v = row["logit_v"] / row["logit"] if row["logit"] else 0.0
    return bool(row["k"] < k_below * row["clean"] and row["q"] > qv_above * row["clean"] and kept_v > qv_above)


@torch.no_grad()
def causes(model, previous, induction, *, fill="mean", period=None, repeats=2, n_sequences=16, bos=False, seed=0,
           k_below=K_BELOW, qv_above=QV_ABOVE, progress=None):
    """What each later head of `induction` owes to each head of `previous`: a DataFrame with a row a pair.

    previous, induction: heads in any form of `parse_heads`, or none; pairs whose second head is in no later layer are left
    out, so the table may be empty. fill: what a cut head says instead, as for `ablate`, from sequences drawn with seed + 1.
    `n_sequences` of a period (None = 50, or as much as the model can hold) of distinct ids, `repeats` times.

    Columns: layer_from, head_from (p), layer, head (h), then h's stripe (the score `induction`, at most 1):
    clean; cut, all of h's input from the run without p; q, k, v, only that input from there (v is clean: no pattern
    shows v); direct, h reading the clean stream minus what p alone added to it, MLPs and other heads untouched;
    control_cut and control_k, the same with another head of p's layer cut, mean over these (NaN where p is the only one).
    Then logit, h's part of the right next token's logit minus its vocabulary mean (final LayerNorm scale of the clean run,
    queries of copies 2..m), and logit_v, the same with v from the run without p. Each with NAME_se over sequences. agrees:
    see `agrees`. The run record is in `.attrs["run"]`.

    Raises ArgumentError.
    """
    previous, induction = parse_heads(model, previous, least=0), parse_heads(model, induction, least=0)
    options = {"period": longest_period(model, bos, repeats) if period is None else period, "repeats": repeats,
               "n_sequences": n_sequences, "bos": bos}
    prompts = draw(model, seed=seed, **options)
    fills = fills_of(model, draw(model, seed=next_seed(seed), **options).ids, fill)
    ids, unembedding = prompts.ids.to(model.device), direct_unembedding(model)
    pairs = {}                                                                               # {layer of p: [(p, h)]}
    for p, h in ((p, h) for p in previous for h in induction if p[0] < h[0]):
        pairs.setdefault(p[0], []).append((p, h))
    at_once = max(1, POSITIONS_AT_ONCE // (ids.shape[1] * model.config.n_head))
    work = [(slice(a, min(a + at_once, len(ids))), layer) for a in range(0, len(ids), at_once) for layer in pairs]
    parts = {}                                               # {pair: {measure: [values of some sequences]}}
    for rows, layer in progress(work, desc="causes") if progress is not None else work:
        found = from_one_layer(model, ids[rows], prompts, layer, pairs[layer], fills(rows), unembedding)
        for pair, measured in found.items():
            for name, values in measured.items():
                parts.setdefault(pair, {}).setdefault(name, []).append(values.double().cpu())
    rows = []
    for (p, h), measured in parts.items():
        row = {"layer_from": p[0], "head_from": p[1], "layer": h[0], "head": h[1]}
        for name in MEASURES:
            row[name], row[name + "_se"] = map(float, mean_se(torch.cat(measured[name])))
        rows.append({**row, "agrees": agrees(row, k_below, qv_above)})
    numbers = [name + end for name in MEASURES for end in ("", "_se")]
    table = pd.DataFrame(rows, columns=["layer_from", "head_from", "layer", "head", *numbers, "agrees"])
    table.attrs = {"run": run_record(model, "causes", previous=head_names(previous), induction=head_names(induction),
                                     fill=fill, seed=seed, reference_seed=next_seed(seed), k_below=k_below,
                                     qv_above=qv_above, kernel="scan", **options)}
    return table
