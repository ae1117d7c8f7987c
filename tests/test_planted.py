"""The planted model does what it was planted to do: read here by a second route, straight from patterns and weights."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import inspector
from inspector.demo import planted
from inspector.demo.planted import COUNTERFACTUALS, NOISE_HEADS, PLANTED
from inspector.demo.planting import GAP, OUTPUT, POSITION, PREVIOUS, TOKEN
from inspector.model.attention import softmax

BOS = planted.CONFIG["bos_token_id"]
TOLERANCE = {"float32": 1e-6, "float64": 1e-9}
SHAPES = [(50, 2, False), (50, 2, True), (50, 3, False), (50, 3, True), (79, 2, True), (80, 2, False), (25, 6, True),
          (7, 5, False), (2, 2, False)]


@pytest.fixture(scope="module")
def models():
    return {dtype: inspector.load("planted", dtype=dtype) for dtype in TOLERANCE}


@pytest.fixture(scope="module")
def model(models):
    return models["float64"]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The planted model without noise: ties between its cells are exact."""
    folder = tmp_path_factory.mktemp("quiet")
    planted.write(folder, noise=0)
    return inspector.load(folder, dtype="float64")


# -- a second route to the scores: lists of cells, straight from the definitions ------------------------------------------

def prompts(L, m, bos, n=2, repeated=True, seed=1):
    """n rows of ids: L distinct ids m times over or, as a control, m * L distinct ids."""
    generator = torch.Generator().manual_seed(seed)

    def distinct(count):
        return torch.randperm(BOS, generator=generator)[:count].tolist()

    assert repeated or m * L <= BOS
    return [[BOS] * bos + (distinct(L) * m if repeated else distinct(m * L)) for _ in range(n)]


def cells(L, m, bos):
    """{score: {query: keys whose weights are summed}}."""
    o, N = int(bos), int(bos) + m * L
    copies = {i: list(range(i - L, o - 1, -L)) for i in range(o + L, N)}
    return {"previous_token": {i: [i - 1] for i in range(1, N)}, "current_token": {i: [i] for i in range(1, N)},
            "first_token": {i: [0] for i in range(1, N)}, "duplicate_token": copies,
            "induction": {i: [j + 1 for j in keys] for i, keys in copies.items()}}


def score(pattern, wanted):
    """Mean over queries of the weight on the wanted cells. pattern: [..., query, key] -> [...]."""
    pairs = [(i, j) for i, keys in wanted.items() for j in keys]
    return pattern[..., [i for i, _ in pairs], [j for _, j in pairs]].double().sum(-1) / len(wanted)


def readings(model, L=50, m=2, bos=False, repeated=True, n=2):
    """{score: [layer, head]}, means over n prompts."""
    patterns = [inspector.trace(model, ids=row).pattern for row in prompts(L, m, bos, n=n, repeated=repeated)]
    return {name: sum(score(pattern, wanted) for pattern in patterns) / n for name, wanted in cells(L, m, bos).items()}


def read(model, name, **prompt):
    """A score of the head it was planted for."""
    return readings(model, **prompt)[name][PLANTED[name]].item()


# -- what it is ------------------------------------------------------------------------------------------------------

def test_it_is_a_gpt2_in_which_everything_takes_part(model):
    config, weights = model.config, model.weights
    sizes = [config.n_layer, config.n_head, config.d_model, config.d_head, config.d_mlp, config.n_positions,
             config.vocab_size]
    assert sorted(set(sizes)) == sorted(sizes)                       # no two axes can be taken for one another
    assert not config.tie_word_embeddings
    assert config.d_head >= config.n_positions
    for block in weights.blocks:
        for name in ("ln_1_weight", "ln_2_weight"):
            assert getattr(block, name).min() < 0.5
            assert getattr(block, name).max() > 2
        for name in (field.name for field in fields(block)):
            assert getattr(block, name).abs().max() > 0.01, name
    assert weights.W_E.mean(1).std() > 0.3                            # centring has something to remove
    slices = [TOKEN, POSITION, PREVIOUS, OUTPUT]
    for rows, own in ((weights.W_E, TOKEN), (weights.W_pos, POSITION)):
        centred = rows - rows[:, -1:]
        assert [bool(centred[:, part].any()) for part in slices] == [part is own for part in slices]
        assert torch.equal(centred[:, own], 8 * torch.eye(len(rows), dtype=rows.dtype))


def test_the_files_are_the_same_each_time(tmp_path):
    for name in ("one", "two"):
        planted.write(tmp_path / name)
    planted.write(tmp_path / "other", seed=1)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert (tmp_path / "one/model.safetensors").read_bytes() != (tmp_path / "other/model.safetensors").read_bytes()
    assert planted.folder() == planted.folder()


def test_it_needs_no_transformers_and_leaves_nothing_behind():
    code = ("import sys, inspector; m = inspector.load('planted'); print(m.files.folder.is_dir(), m.files.folder); "
            "print([n for n in sys.modules if n.split('.')[0] == 'transformers'])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(inspector.__file__).parent.parent)
    there, folder = done.stdout.splitlines()[0].split(" ", 1)
    assert there == "True"
    assert done.stdout.splitlines()[1] == "[]"
    assert not Path(folder).exists()


def test_any_text_becomes_labelled_tokens(model):
    text = "Hé, \"日\"\n\t\\ <b>\x00\x7f😀"
    ids = model.tokenizer.encode(text)
    spelled = "".join(c if ord(c) < 127 else "".join(f"\\x{b:02X}" for b in c.encode()) for c in text)
    assert "".join(model.tokenizer.texts(ids)) == spelled
    assert model.tokenizer.encode("".join(map(chr, range(127)))) == list(range(127))
    assert model.tokenizer.encode("a<|endoftext|>b") == [ord("a"), BOS, ord("b")]
    labels = model.tokenizer.labels(list(range(model.config.vocab_size)))
    assert len(set(labels)) == model.config.vocab_size
    assert [labels[i] for i in (0, 9, 10, 32, 65, 127)] == ["⟨U+0000⟩", "⇥", "⏎", "·", "A", "<|endoftext|>"]
    assert json.loads(model.files.config.read_text())["bos_token_id"] == BOS == model.tokenizer.encode("<|endoftext|>")[0]


# -- what its heads do -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("L", "m", "bos"), SHAPES)
def test_planted_heads_read_one(dtype, L, m, bos, models):
    found = readings(models[dtype], L, m, bos, n=1)
    for name, where in PLANTED.items():
        assert found[name][where].item() == pytest.approx(1, abs=TOLERANCE[dtype]), name


@pytest.mark.parametrize("bos", [False, True])
def test_the_meant_cell_beats_all_others_by_20_nats(model, bos):
    least = {}
    for ids in prompts(50, 2, bos, n=6, seed=2):
        scores = inspector.trace(model, ids=ids).scores
        for name, where in PLANTED.items():
            for i, (key,) in cells(50, 2, bos)[name].items():
                row = scores[where][i, :i + 1]
                others = torch.cat([row[:key], row[key + 1:]])
                gap = (row[key] - others.max()).item()
                least[name] = min(gap, least.get(name, gap))
    assert min(least.values()) > 26, least                # 100 keys at exp(-26) are under 1e-9; 20 nats are asked for
    assert max(least.values()) < GAP + 1, least           # the duplicate and previous-token heads read no noise: 60.2


@pytest.mark.parametrize("bos", [False, True])
def test_each_head_reads_high_in_its_own_score_alone(model, bos):
    for name, found in readings(model, bos=bos).items():
        others = [found[where].item() for where in [*PLANTED.values(), *NOISE_HEADS] if PLANTED.get(name) != where]
        assert len(others) == 8 - (name in PLANTED)
        assert max(others) < 0.1, name


def test_noise_heads_stay_near_uniform(model):
    uniform = {"previous_token": 0.0423, "current_token": 0.0423, "duplicate_token": 0.0138, "induction": 0.0138}
    found = readings(model)
    for where in NOISE_HEADS:
        for name, level in uniform.items():
            assert found[name][where].item() == pytest.approx(level, rel=0.2), (name, where)


@pytest.mark.parametrize("bos", [False, True])
def test_induction_is_heard_in_the_loss(model, bos):
    for ids in prompts(50, 2, bos, n=1):
        losses = inspector.trace(model, ids=ids).losses
        second = losses[bos + 50:]                        # of tokens bos + 51 on: the first token of a copy is no repeat yet
        assert len(second) == 49
        assert second.max() < 0.1
        assert losses[:bos + 49].mean() > 4


def test_much_noise_drowns_induction(tmp_path):
    planted.write(tmp_path, noise=0.05)
    noisy = inspector.load(tmp_path)
    assert read(noisy, "previous_token") == pytest.approx(1, abs=1e-6)
    assert read(noisy, "induction") < 0.9


# -- fractions worked out by hand --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("L", "m"), [(50, 2), (20, 2)])
def test_the_unguarded_head_loses_half_a_query(quiet, model, L, m):
    assert read(quiet, "induction", L=L, m=m, n=1) == pytest.approx(1, abs=1e-9)
    bare = planted.unguarded(quiet)
    assert read(bare, "induction", L=L, m=m, n=1) == pytest.approx((L - 1 / 2) / L, abs=1e-9)
    assert read(bare, "induction", L=L, m=m, bos=True, n=1) == pytest.approx(1, abs=1e-9)
    noisy = read(planted.unguarded(model), "induction", L=L, m=m, n=1)
    assert (L - 1) / L - 1e-9 < noisy < 1 - 1e-6          # noise splits the tie unevenly, in that one query


@pytest.mark.parametrize(("m", "share"), [(2, 1 / 2), (3, (1 / 2 + 2 / 3) / 2)])
@pytest.mark.parametrize("bos", [False, True])
def test_a_naive_duplicate_head_shares_with_itself(model, m, share, bos):
    naive = planted.naive_duplicate(model)
    assert read(naive, "duplicate_token", m=m, bos=bos, n=1) == pytest.approx(share, abs=1e-9)


def test_earlier_copies_share_evenly(quiet):
    pattern = inspector.trace(quiet, ids=prompts(50, 3, True, n=1)[0]).pattern
    for name, look in (("duplicate_token", 0), ("induction", 1)):
        row = pattern[PLANTED[name]][130]
        torch.testing.assert_close(row[[30 + look, 80 + look]], torch.full((2,), 0.5, dtype=row.dtype), rtol=0, atol=1e-6)


# -- LayerNorm takes part ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("without", ["nothing", "centring", "scale", "gain", "bias"])
def test_layer_norm_takes_part(model, without):
    """Layer 0 by hand, with one part of its LayerNorm left out: no part can be forgotten unnoticed."""
    block, ids = model.weights.blocks[0], torch.tensor(prompts(50, 2, False, n=1)[0])
    x = model.weights.W_E[ids] + model.weights.W_pos[:len(ids)]
    if without != "centring":
        x = x - x.mean(-1, keepdim=True)
    if without != "scale":
        x = x / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    if without != "gain":
        x = x * block.ln_1_weight
    if without != "bias":
        x = x + block.ln_1_bias
    q, k = x @ block.W_Q + block.b_Q[:, None], x @ block.W_K + block.b_K[:, None]
    scores = (q @ k.transpose(-1, -2) / model.config.d_head ** 0.5)
    pattern = softmax(scores.masked_fill(torch.ones(len(ids), len(ids)).triu(1).bool(), -torch.inf))
    found = {name: score(pattern[PLANTED[name][1]], cells(50, 2, False)[name]).item()
             for name in ("previous_token", "duplicate_token")}
    far = (pattern - inspector.trace(model, ids=ids).pattern[0]).abs().max().item()
    if without == "nothing":
        assert far < 1e-9
        assert min(found.values()) > 1 - 1e-9
    else:
        assert far > (1e-5 if without == "scale" else 1e-2)
    if without in ("centring", "gain"):
        assert min(found.values()) < 0.95
    if without == "scale":                                # the gap shrinks from 60 to 13 nats: more than fp32 forgives
        assert min(found.values()) < 1 - 1e-6


# -- the counterfactuals -----------------------------------------------------------------------------------------------

def both(model, name, n=2, bos=False):
    """A score of the head planted for it on repeated and on unrepeated prompts."""
    return [read(model, name, repeated=repeated, n=n, bos=bos) for repeated in (True, False)]


def test_induction_needs_the_previous_token_head(model):
    deaf = COUNTERFACTUALS["previous_token_silent"](model)
    found, control = both(model, "induction", n=4)
    assert found == pytest.approx(1, abs=1e-9)
    assert control < 0.03
    found, control = both(deaf, "induction", n=4)
    assert found == pytest.approx(control, abs=0.02)
    assert found < 0.03
    assert read(deaf, "previous_token") == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("bos", [False, True])
def test_a_fixed_offset_head_reads_one_and_so_does_its_control(model, bos):
    blind = COUNTERFACTUALS["fixed_offset"](model)
    assert both(blind, "induction", n=1, bos=bos) == pytest.approx([1, 1], abs=1e-9)
    shorter = planted.fixed_offset(model, period=30)
    assert both(shorter, "induction", n=1, bos=bos) == pytest.approx([0, 0], abs=0.02)     # the stripe is that of 50
    assert read(shorter, "induction", L=30, n=1, bos=bos) == pytest.approx(1, abs=1e-9)


def test_keys_shifted_by_one_make_a_previous_token_head(model):
    found = readings(COUNTERFACTUALS["keys_shifted"](model))
    assert found["previous_token"][PLANTED["induction"]].item() == pytest.approx(1, abs=1e-9)
    assert found["induction"].max() < 0.02


def test_a_counterfactual_changes_one_head_of_a_copy(model):
    ids = prompts(50, 2, False, n=1)[0]
    before = inspector.trace(model, ids=ids)
    changes = {**COUNTERFACTUALS, "unguarded": planted.unguarded, "naive_duplicate": planted.naive_duplicate}
    for name, change in changes.items():
        after = inspector.trace(change(model), ids=ids)
        layer, head = PLANTED["duplicate_token" if name == "naive_duplicate" else "induction"]
        same = [torch.allclose(before.pattern[layer, n], after.pattern[layer, n]) for n in range(2)]
        if name != "previous_token_silent":               # there the change is in W_O, and the whole next layer sees it
            assert same == [n != head for n in range(2)], name
        assert not same[head], name
        assert torch.equal(before.pattern[0, 1], after.pattern[0, 1])
    assert torch.equal(inspector.trace(model, ids=ids).pattern, before.pattern)


# -- what the weights alone say -------------------------------------------------------------------------------------------

def folded(model, layer):
    """(W_Q, W_K, W_V, W_O) of a layer, LayerNorm's gain and centring folded in. Each [head, d_model, d_head], W_O turned."""
    block, d = model.weights.blocks[layer], model.config.d_model
    centre = torch.eye(d, dtype=torch.float64) - 1 / d
    reads = [centre @ (block.ln_1_weight[:, None] * W) for W in (block.W_Q, block.W_K, block.W_V)]
    return (*reads, block.W_O @ centre)


def test_key_composition_with_the_previous_token_head_is_strongest(model):
    layers = [folded(model, layer) for layer in range(4)]
    strength = {}
    for late in range(1, 4):
        for early in range(late):
            for b in range(2):
                for a in range(2):
                    Q, K, V = (W[b] for W in layers[late][:3])
                    W_QK, W_OV = Q @ K.T, V @ layers[late][3][b]
                    source = layers[early][2][a] @ layers[early][3][a]
                    products = {"Q": (source, W_QK), "K": (source, W_QK.T), "V": (source, W_OV)}
                    for kind, (A, B) in products.items():
                        strength[kind, (early, a), (late, b)] = ((A @ B).norm() / A.norm() / B.norm()).item()
    ranked = sorted(strength, key=strength.get, reverse=True)
    assert ranked[0] == ("K", PLANTED["previous_token"], PLANTED["induction"])
    assert strength[ranked[0]] == pytest.approx(128 ** -0.5, rel=0.01)      # two partial identities of rank 128
    assert strength[ranked[1]] < 0.07


def test_only_the_duplicate_head_matches_same_tokens_directly(model):
    """Share of tokens that score themselves highest: directly, or through what the previous-token head writes of them."""
    E = model.weights.W_E - model.weights.W_E.mean(1, keepdim=True)
    layers = [folded(model, layer) for layer in range(4)]
    layer, head = PLANTED["previous_token"]
    through = E @ layers[layer][2][head] @ layers[layer][3][head]
    for where in [(layer, head) for layer in range(4) for head in range(2)]:
        Q, K = layers[where[0]][0][where[1]], layers[where[0]][1][where[1]]
        for name, keys in (("duplicate_token", E), ("induction", through)):
            hits = ((E @ Q) @ (keys @ K).T).argmax(1) == torch.arange(len(E))
            assert hits.double().mean() == 1 if PLANTED[name] == where else hits.double().mean() < 0.1, (name, where)


def test_the_induction_head_copies(model):
    """W_E W_V W_O W_U of the induction head is a multiple of the identity, off a constant: it raises what it attends to."""
    E = model.weights.W_E - model.weights.W_E.mean(1, keepdim=True)
    layer, head = PLANTED["induction"]
    _, _, W_V, W_O = folded(model, layer)
    raised = E @ W_V[head] @ W_O[head] @ (model.weights.ln_f_weight[:, None] * model.weights.W_U)
    raised = raised - raised.mean(1, keepdim=True)
    scale = raised.diagonal().mean()
    torch.testing.assert_close(raised / scale, torch.eye(128, dtype=torch.float64) - 1 / 128, rtol=0, atol=0.02)


# -- against transformers ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("bos", [False, True])
def test_transformers_agrees(model, bos):
    from transformers import GPT2LMHeadModel
    theirs = GPT2LMHeadModel.from_pretrained(planted.folder(), attn_implementation="eager", dtype=torch.float64).eval()
    ids = prompts(50, 3, bos, n=1)[0]
    with torch.no_grad():
        out = theirs(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
    trace = inspector.trace(model, ids=ids)
    for layer in range(4):
        assert (trace.pattern[layer] - out.attentions[layer][0]).abs().max() < 1e-10
        stream = out.hidden_states[layer][0]
        assert (trace.resid_pre[layer] - stream).abs().max() < 1e-10 * stream.abs().max()
    assert (trace.logits - out.logits[0]).abs().max() < 1e-10 * out.logits.abs().max()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_coarse_dtypes_still_find_the_heads(dtype):
    found = readings(inspector.load("planted", dtype=dtype), n=1)
    for name, where in PLANTED.items():
        assert found[name][where] > 0.99, name
