"""A load is complete and exact, or one error that names everything wrong. Formats, names, mapping, torture."""

import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import inspector
from inspector.errors import ArgumentError, InspectorError, SourceError, WeightsError

from . import models
from .models import LAYOUTS, save, tensors_of, tiny_config, tiny_model


def stored(weights):
    """{checkpoint name: tensor} of loaded Weights, through the package's own names."""
    found = {"wte.weight": weights.W_E, "wpe.weight": weights.W_pos,
             "ln_f.weight": weights.ln_f_weight, "ln_f.bias": weights.ln_f_bias, "lm_head.weight": weights.W_U.T}
    for n, b in enumerate(weights.blocks):
        wide = [torch.cat(list(part), dim=-1) for part in (b.W_Q, b.W_K, b.W_V)]           # heads side by side
        bias = [part.flatten() for part in (b.b_Q, b.b_K, b.b_V)]
        layer = {"ln_1.weight": b.ln_1_weight, "ln_1.bias": b.ln_1_bias,
                 "attn.c_attn.weight": torch.cat(wide, dim=-1), "attn.c_attn.bias": torch.cat(bias),
                 "attn.c_proj.weight": torch.cat(list(b.W_O)), "attn.c_proj.bias": b.b_O,
                 "ln_2.weight": b.ln_2_weight, "ln_2.bias": b.ln_2_bias, "mlp.c_fc.weight": b.W_in,
                 "mlp.c_fc.bias": b.b_in, "mlp.c_proj.weight": b.W_out, "mlp.c_proj.bias": b.b_out}
        found |= {f"h.{n}.{name}": tensor for name, tensor in layer.items()}
    return found


def assert_same_weights(weights, model, dtype=torch.float32):
    """Every tensor of the transformers model, bit for bit, and no other."""
    ours, theirs = stored(weights), tensors_of(model, prefix=False, lm_head=True)
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor.to(dtype)), name


def rewrite(folder, change):
    """Apply change(dict of tensors) to a folder's model.safetensors."""
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file(change(tensors) or tensors, path)


def set_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def one_line(error):
    text = str(error)
    return text and "\n" not in text and len(text) < 4000


# -- the fixture -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("tie", [True, False])
def test_the_tiny_model_is_adversarial(tie):
    config, model = tiny_config(tie_word_embeddings=tie), tiny_model(tie_word_embeddings=tie)
    lengths = [config.vocab_size, config.n_positions, config.n_embd, config.n_head, config.n_embd // config.n_head,
               config.n_layer, config.n_inner, 3 * config.n_embd]
    assert len(set(lengths)) == len(lengths)
    assert config.layer_norm_epsilon != type(config)().layer_norm_epsilon
    for name, parameter in model.named_parameters():
        away = parameter - 1 if "ln_" in name and name.endswith("weight") else parameter
        assert (away != 0).all(), name                                  # no bias 0, no gain 1 anywhere
        assert away.std() > 0.1, name
        assert (parameter.flatten().unique().numel() == parameter.numel()), name
    for block in model.transformer.h:
        square = block.attn.c_proj.weight
        assert (square - torch.eye(config.n_embd)).abs().mean() > 0.1
        assert (square - square.T).abs().mean() > 0.1
    assert torch.equal(model.lm_head.weight, model.transformer.wte.weight) is tie
    ids = torch.arange(31)[None] * 3
    peaks = torch.stack(model(ids, output_attentions=True).attentions)[..., 5:, :].amax(-1)
    assert 0.5 < peaks.mean() < 0.95                                    # peaked, yet no head is one-hot throughout
    assert all(p.std() > 0.05 for p in peaks.flatten(0, 2))


def test_layouts_differ_as_they_say(tmp_path):
    model = tiny_model()
    names = {layout: {p.name for p in save(model, tmp_path / layout, layout).iterdir()} for layout in LAYOUTS}
    assert names["safetensors"] == {"config.json", "model.safetensors"}
    assert "model.safetensors.index.json" in names["sharded"]
    assert sum(n.endswith(".safetensors") for n in names["sharded"]) == 3
    assert names["bin"] == names["bin-old"] == {"config.json", "pytorch_model.bin"}
    assert "pytorch_model.bin.index.json" in names["sharded-bin"]
    assert (tmp_path / "bin" / "pytorch_model.bin").read_bytes()[:2] == b"PK"
    assert (tmp_path / "bin-old" / "pytorch_model.bin").read_bytes()[:2] != b"PK"
    hub = (tmp_path / "hub" / "model.safetensors").read_bytes()
    start = 8 + struct.unpack("<Q", hub[:8])[0]
    assert start % 2 == 1                                               # no float of it is aligned
    header = json.loads(hub[8:start])
    assert [*header] == ["__metadata__", *sorted(set(header) - {"__metadata__"})]
    assert "h.0.attn.bias" in header
    assert "wte.weight" in header
    assert "transformer.h.0.attn.masked_bias" in load_file(tmp_path / "buffers" / "model.safetensors")


# -- formats and names -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_weights(layout, tmp_path):
    model = tiny_model()
    loaded = inspector.load(save(model, tmp_path, layout))
    expected = model if layout != "float16" else model.half().float()
    assert_same_weights(loaded.weights, expected)
    assert loaded.dtype == "float32"
    assert loaded.weights.W_U.data_ptr() == loaded.weights.W_E.data_ptr()         # tied: one tensor


@pytest.mark.parametrize("layout", ["safetensors", "no-prefix", "sharded", "bin", "hub"])
def test_an_untied_head_is_read(layout, tmp_path):
    model = tiny_model(tie_word_embeddings=False)
    weights = inspector.load(save(model, tmp_path, layout)).weights
    assert_same_weights(weights, model)
    assert not torch.equal(weights.W_U.T, weights.W_E)


def test_an_untied_head_that_is_absent_is_an_error(tmp_path):
    folder = save(tiny_model(tie_word_embeddings=False), tmp_path, lm_head=False)
    with pytest.raises(WeightsError, match=r"missing: lm_head\.weight$"):
        inspector.load(folder)


def test_a_tied_head_that_is_another_is_an_error(tmp_path):
    # transformers 5 takes the file's head and does not tie; older versions drop it. Neither is guessed.
    folder = save(tiny_model(tie_word_embeddings=False), tmp_path)
    set_config(folder, tie_word_embeddings=True)
    with pytest.raises(WeightsError, match=r"lm_head\.weight differs from wte\.weight.*tie_word_embeddings to false"):
        inspector.load(folder)


def test_each_file_can_be_named_itself(tmp_path):
    model = tiny_model()
    for layout, name in [("safetensors", "model.safetensors"), ("bin", "pytorch_model.bin"),
                         ("sharded", "model.safetensors.index.json"), ("sharded-bin", "pytorch_model.bin.index.json")]:
        folder = save(model, tmp_path / layout, layout)
        assert_same_weights(inspector.load(folder / name).weights, model)
        assert_same_weights(inspector.load(str(folder / name)).weights, model)
    other = tmp_path / "bin" / "step_100.bin"
    (tmp_path / "bin" / "pytorch_model.bin").rename(other)
    assert_same_weights(inspector.load(other).weights, model)


def test_tensors_that_are_views_or_parameters_in_a_bin(tmp_path):
    model = tiny_model()
    folder = save(model, tmp_path)
    tensors = {name: torch.nn.Parameter(t.T.contiguous().T if t.ndim == 2 else t) for name, t in tensors_of(model).items()}
    assert not tensors["transformer.h.0.attn.c_proj.weight"].is_contiguous()
    torch.save(tensors, folder / "pytorch_model.bin")
    weights = inspector.load(folder / "pytorch_model.bin").weights
    assert_same_weights(weights, model)
    assert not any(tensor.requires_grad for tensor in stored(weights).values())


def test_head_slices_are_the_columns_of_that_head(tmp_path):
    model = tiny_model()
    block = inspector.load(save(model, tmp_path)).weights.blocks[1]
    c_attn, c_proj = model.transformer.h[1].attn.c_attn, model.transformer.h[1].attn.c_proj
    for head in range(4):
        for offset, weight, bias in ((0, block.W_Q, block.b_Q), (24, block.W_K, block.b_K), (48, block.W_V, block.b_V)):
            columns = slice(offset + 6 * head, offset + 6 * (head + 1))
            assert torch.equal(weight[head], c_attn.weight[:, columns])
            assert torch.equal(bias[head], c_attn.bias[columns])
        assert torch.equal(block.W_O[head], c_proj.weight[6 * head:6 * (head + 1)])
    assert block.W_Q.data_ptr() == block.W_QKV.data_ptr()               # views, no copies
    assert block.W_K.data_ptr() == block.W_QKV.data_ptr() + 24 * 4


# -- complete or an error --------------------------------------------------------------------------------------------

def test_everything_wrong_is_named_in_one_message(tmp_path):
    folder = save(tiny_model(), tmp_path, "no-prefix")

    def change(tensors):
        for name in ("h.0.ln_1.bias", "h.1.ln_1.bias", "h.2.mlp.c_fc.weight", "wpe.weight"):
            del tensors[name]
        tensors["h.1.attn.c_attn.weight"] = tensors["h.1.attn.c_attn.weight"].T.contiguous()
        tensors["wte.weight"] = tensors["wte.weight"][:-1].clone()
        tensors |= {"h.3.ln_1.weight": torch.ones(24), "score.weight": torch.ones(2, 24),
                    "transformer.ln_f.bias": torch.ones(24), "h.0.mlp.c_fc.bias": torch.ones(50, dtype=torch.int8)}
        tensors["a\nb"] = torch.ones(1)

    rewrite(folder, change)
    with pytest.raises(WeightsError) as caught:
        inspector.load(folder)
    text = str(caught.value)
    assert "missing: wpe.weight, h.{0-1}.ln_1.bias, h.2.mlp.c_fc.weight. " in text
    assert "h.1.attn.c_attn.weight is [72, 24], expected [24, 72]" in text
    assert "wte.weight is [96, 24], expected [97, 24]" in text
    assert "twice, with and without prefix: ln_f.bias" in text
    assert "unexpected: " in text
    for name in ("h.3.ln_1.weight", "score.weight", r"'a\nb'"):
        assert name in text
    assert "h.0.mlp.c_fc.bias (int8, strided, cpu)" in text
    assert one_line(caught.value)


def test_a_file_of_more_or_fewer_layers_is_an_error(tmp_path):
    folder = save(tiny_model(), tmp_path)
    set_config(folder, n_layer=2)
    with pytest.raises(WeightsError, match="unexpected: ") as caught:
        inspector.load(folder)
    for name in tensors_of(tiny_model(), prefix=False):
        assert (name in str(caught.value)) == name.startswith("h.2."), name
    set_config(folder, n_layer=9_999)
    with pytest.raises(WeightsError, match=r"missing: h\.\{3-9998\}\.ln_1\.weight, ") as caught:
        inspector.load(folder)
    assert one_line(caught.value)


def test_names_in_words_lose_nothing():
    from inspector.checkpoint.reading import in_words
    assert in_words([]) == ""
    assert in_words(["h.4.b"]) == "h.4.b"
    assert in_words(["h.0.b", "h.1.b", "h.2.b", "h.5.b", "h.7.b", "h.8.b"]) == "h.{0-2, 5, 7-8}.b"
    assert in_words(["h.1.a", "wte.weight", "h.2.a", "h.2.b"]) == "h.{1-2}.a, wte.weight, h.2.b"
    assert in_words(["b", "h.0.b", "h.01.b", "h.x.b"]) == "b, h.0.b, h.01.b, h.x.b"


def test_a_wrong_size_in_the_config_is_an_error(tmp_path):
    folder = save(tiny_model(), tmp_path)
    for key, value, said in [("vocab_size", 98, r"wte\.weight is \[97, 24\], expected \[98, 24\]"),
                             ("n_positions", 30, r"wpe\.weight is \[31, 24\], expected \[30, 24\]"),
                             ("n_inner", None, r"h\.2\.mlp\.c_fc\.weight is \[24, 50\], expected \[24, 96\]"),
                             ("n_embd", 28, r"h\.0\.attn\.c_attn\.weight is \[24, 72\], expected \[28, 84\]")]:
        before = json.loads((folder / "config.json").read_text())[key]
        set_config(folder, **{key: value})
        with pytest.raises(WeightsError, match=said):
            inspector.load(folder)
        set_config(folder, **{key: before})
    inspector.load(folder)


def test_shards_that_are_absent_doubled_or_outside(tmp_path):
    folder = save(tiny_model(), tmp_path, "sharded")
    index = folder / "model.safetensors.index.json"
    good = json.loads(index.read_text())
    second = folder / "model-00002-of-00003.safetensors"
    data = second.read_bytes()
    second.unlink()
    with pytest.raises(SourceError, match=r"shards named in .* are absent: 'model-00002-of-00003\.safetensors'"):
        inspector.load(folder)
    second.write_bytes((folder / "model-00001-of-00003.safetensors").read_bytes())
    with pytest.raises(WeightsError, match=r"in more than one shard: transformer\."):
        inspector.load(folder)
    second.write_bytes(data)
    inspector.load(folder)
    for name in ("../model.safetensors", "/etc/passwd", "a/b.bin", "..\\b.bin", "..", "", "\0", 3, None, ["a"]):
        index.write_text(json.dumps({"weight_map": {**good["weight_map"], "x": name}}))
        with pytest.raises(SourceError, match=r"outside its folder|not a valid index|are absent"):
            inspector.load(folder)
    for broken in ("", "[]", "{}", '{"weight_map": 3}', '{"weight_map": ["a"]}', "[" * 100_000, "\udcff"):
        index.write_text(broken, errors="surrogateescape")
        with pytest.raises(SourceError, match=r"not a valid index|not valid JSON") as caught:
            inspector.load(folder)
        assert one_line(caught.value)
    index.write_text('{"weight_map": {}}')
    with pytest.raises(WeightsError, match=r"missing: wte\.weight"):
        inspector.load(folder)


# -- values ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_named(bad, tmp_path):
    folder = save(tiny_model(), tmp_path)

    def change(tensors):
        tensors["transformer.h.1.attn.c_proj.weight"][3, 4] = bad
        tensors["transformer.ln_f.bias"][:2] = bad

    rewrite(folder, change)
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        with pytest.raises(WeightsError, match=r"ln_f\.bias \(2 of 24.*, h\.1\.attn\.c_proj\.weight \(1 of 576|"
                                               r"h\.1\.attn\.c_proj\.weight \(1 of 576.*, ln_f\.bias \(2 of 24"):
            inspector.load(folder, dtype=dtype)


def test_nan_in_a_tied_head_is_named_as_nan(tmp_path):
    folder = save(tiny_model(), tmp_path, "with-lm-head")

    def change(tensors):
        for name in ("lm_head.weight", "transformer.wte.weight"):
            tensors[name][0, 0] = float("nan")

    rewrite(folder, change)
    with pytest.raises(WeightsError, match="NaN or infinite as float32"):
        inspector.load(folder)


def test_a_buffer_may_hold_anything(tmp_path):
    folder = save(tiny_model(), tmp_path, "buffers")

    def change(tensors):
        tensors["transformer.h.0.attn.bias"] = torch.full((1, 1, 9, 9), float("nan"))
        tensors["transformer.h.1.attn.bias"] = torch.ones(1, 1, 31, 31, dtype=torch.uint8)
        tensors["transformer.h.1.attn.masked_bias"] = torch.tensor(float("-inf"))

    rewrite(folder, change)
    assert_same_weights(inspector.load(folder).weights, tiny_model())


def test_float16_that_overflows_is_named(tmp_path):
    folder = save(tiny_model(), tmp_path)

    def change(tensors):
        tensors["transformer.h.2.mlp.c_fc.weight"].view(-1)[:3] = 1e5

    rewrite(folder, change)
    assert inspector.load(folder).weights.blocks[2].W_in.max() == 1e5
    with pytest.raises(WeightsError, match=r"infinite as float16.*: h\.2\.mlp\.c_fc\.weight "
                                           r"\(3 of 1200, stored as float32\)$"):
        inspector.load(folder, dtype="float16")


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16"])
def test_every_dtype_is_a_rounding_of_the_file(name, tmp_path):
    model, dtype = tiny_model(), getattr(torch, name)
    folder = save(model, tmp_path)
    for asked in (name, dtype):
        loaded = inspector.load(folder, dtype=asked)
        assert loaded.dtype == name
        assert {tensor.dtype for tensor in stored(loaded.weights).values()} == {dtype}
        assert_same_weights(loaded.weights, model, dtype)
    wide = {n: t.double() + 1e-12 for n, t in tensors_of(model).items()}            # a float64 file keeps its digits
    save_file(wide, folder / "model.safetensors")
    assert torch.equal(inspector.load(folder, dtype="float64").weights.W_E, wide["transformer.wte.weight"])


@pytest.mark.parametrize(("argument", "value"), [
    ("dtype", "int8"), ("dtype", "half"), ("dtype", None), ("dtype", torch.int64),
    ("device", "meta"), ("device", "gpu"), ("device", "cuda:99"), ("device", 3.5), ("device", "")])
def test_a_wrong_dtype_or_device_is_one_error(argument, value, tmp_path):
    with pytest.raises(ArgumentError, match=f"^{argument} ") as caught:
        inspector.load(save(tiny_model(), tmp_path), **{argument: value})
    assert one_line(caught.value)


# -- memory ----------------------------------------------------------------------------------------------------------

MEASURE = """
import sys, torch, safetensors.torch, inspector
from inspector.checkpoint.loading import load
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024
torch.set_num_threads(1)
before = anonymous()
model = load(sys.argv[1], dtype=sys.argv[2])
print(anonymous() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to read a process's own memory")
def test_gpt2_small_is_mapped_and_not_copied(stand_in_folder):
    grown = {}
    for dtype in ("float32", "bfloat16"):
        run = subprocess.run([sys.executable, "-c", MEASURE, str(stand_in_folder), dtype], capture_output=True, text=True,
                             env={**os.environ, "PYTHONPATH": str(Path(inspector.__file__).parent.parent)}, check=True)
        grown[dtype] = float(run.stdout)
    assert grown["float32"] < 60               # MiB; seen: 13. A copy of the weights would be 475
    assert grown["bfloat16"] > 200             # the measure does see a copy; seen: 250, halves of 475


def test_the_stand_in_has_the_hub_files_layout_and_loads_exactly(stand_in_folder):
    path = stand_in_folder / "model.safetensors"
    with path.open("rb") as file:
        start = 8 + struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(start - 8))
    assert (path.stat().st_size, start, len(header)) == (548_105_171, 14_291, 161)
    w = inspector.load(stand_in_folder).weights
    assert w.W_E.data_ptr() % 4 == 3                                    # mapped where it lies, aligned to nothing
    named = {"wpe.weight": w.W_pos, "ln_f.weight": w.ln_f_weight, "h.0.ln_1.bias": w.blocks[0].ln_1_bias,
             "h.5.attn.c_attn.weight": w.blocks[5].W_QKV, "h.11.attn.c_proj.weight": w.blocks[11].W_O.flatten(0, 1),
             "h.7.mlp.c_fc.bias": w.blocks[7].b_in, "h.10.mlp.c_proj.weight": w.blocks[10].W_out}
    for name, tensor in named.items():
        assert torch.equal(tensor, models.stand_in_tensor(name, models.stand_in_shapes()[name])), name
    # Sums and products over such tensors are those over aligned copies.
    x = torch.randn(9, 768, generator=torch.Generator().manual_seed(0))
    block = w.blocks[3]
    torch.testing.assert_close(torch.addmm(block.b_QKV, x, block.W_QKV),
                               torch.addmm(block.b_QKV.clone(), x, block.W_QKV.clone()), rtol=0, atol=1e-5)
    assert torch.equal(block.ln_2_weight.exp(), block.ln_2_weight.clone().exp())


@pytest.mark.parametrize("layout", ["safetensors", "bin", "hub"])
def test_writing_into_the_weights_does_not_touch_the_file(layout, tmp_path):
    folder = save(tiny_model(), tmp_path, layout)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    weights = inspector.load(folder).weights
    weights.W_E.zero_()
    weights.blocks[0].W_O.zero_()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert_same_weights(inspector.load(folder).weights, tiny_model())


# -- hashes ----------------------------------------------------------------------------------------------------------

def test_sha256_and_release(tmp_path, monkeypatch):
    import hashlib
    folder = save(tiny_model(), tmp_path / "one")
    model = inspector.load(folder)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert model.sha256 == {"model.safetensors": digest}
    assert model.release is None
    from inspector.checkpoint.releases import RELEASES
    monkeypatch.setitem(RELEASES, digest, "the tiny one")
    assert inspector.load(folder).release == "the tiny one"
    sharded = inspector.load(save(tiny_model(), tmp_path / "three", "sharded"))
    assert len(sharded.sha256) == 3
    assert sharded.release is None


def test_known_releases_are_hashes():
    from inspector.checkpoint.releases import RELEASES
    assert RELEASES["248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"] == (
        "openai-community/gpt2 model.safetensors")
    assert all(len(digest) == 64 and int(digest, 16) for digest in RELEASES)


# -- torture ---------------------------------------------------------------------------------------------------------

class Arbitrary:
    """Unpickling this makes a file: code of the file's own, run by whoever reads it carelessly."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("how", ["pickle", "torch", "torch-old", "beside tensors"])
def test_a_pickle_with_code_is_refused_and_does_not_run(how, tmp_path):
    folder, marker = save(tiny_model(), tmp_path / "model", "bin"), tmp_path / "it ran"
    path = folder / "pytorch_model.bin"
    if how == "pickle":
        path.write_bytes(pickle.dumps(Arbitrary(marker)))
    elif how == "beside tensors":
        torch.save({**tensors_of(tiny_model()), "x": Arbitrary(marker)}, path)
    else:
        torch.save(Arbitrary(marker), path, _use_new_zipfile_serialization=how == "torch")
    with pytest.raises(SourceError, match="more than plain tensors") as caught:
        inspector.load(folder)
    assert one_line(caught.value)
    assert not marker.exists()
    torch.load(path, weights_only=False) if how != "pickle" else pickle.loads(path.read_bytes())
    assert marker.exists()                                              # the file was a real danger


@pytest.mark.parametrize("value", [[1, 2], {}, {"model": {"wte.weight": torch.ones(2)}}, {3: torch.ones(2)},
                                   {"wte.weight": 3}, torch.ones(3), None, "text"], ids=lambda value: repr(value)[:30])
def test_a_bin_of_other_things_is_one_error(value, tmp_path):
    folder = save(tiny_model(), tmp_path, "bin")
    torch.save(value, folder / "pytorch_model.bin")
    with pytest.raises((SourceError, WeightsError)) as caught:
        inspector.load(folder)
    assert one_line(caught.value)


@pytest.mark.parametrize(("kind", "tensor"), [
    ("float32, sparse_coo, cpu", torch.ones(97, 24).to_sparse()),
    ("float32, strided, meta", torch.empty(97, 24, device="meta")),
    ("complex64, strided, cpu", torch.ones(97, 24, dtype=torch.complex64)),
    ("bool, strided, cpu", torch.ones(97, 24, dtype=torch.bool)),
    ("int64, strided, cpu", torch.ones(97, 24, dtype=torch.int64)),
    ("float8_e5m2, strided, cpu", torch.ones(97, 24).to(torch.float8_e5m2)),
], ids=["sparse", "meta", "complex", "bool", "int", "float8"])
def test_a_tensor_of_another_kind_is_named(kind, tensor, tmp_path):
    folder = save(tiny_model(), tmp_path, "bin")
    torch.save({**tensors_of(tiny_model()), "transformer.wte.weight": tensor}, folder / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=rf"not plain floating point \(.*\): wte\.weight \({kind}\)$") as caught:
        inspector.load(folder)
    assert one_line(caught.value)


def header(entries, data=b"\0" * 64, length=None):
    """A safetensors file with this header text."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(4, 4), offsets=(0, 64)):
    return {"wte.weight": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


LIES = {
    "empty": b"",
    "seven bytes": b"\1\0\0\0\0\0\0",
    "only a length": b"\2\0\0\0\0\0\0\0",
    "text": b"hello, world, hello, world",
    "zeros": b"\0" * 4096,
    "ones": b"\xff" * 4096,
    "a zip": b"PK\3\4" + b"\0" * 100,
    "html": b"<!DOCTYPE html><html></html>",
    "git lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:248dfc39\nsize 548105171\n",
    "no json": header(b"{'a': 1}"),
    "not utf-8": header(b'{"\xff": 1}'),
    "a list": header([1, 2]),
    "nothing in it": header({}),
    "length beyond the file": header(entry(), length=10_000),
    "length huge": header(entry(), length=2 ** 63),
    "length short": header(entry(), length=20),
    "deep": header(b"[" * 50_000),
    "keys missing": header({"wte.weight": {}}),
    "unknown dtype": header(entry(dtype="F31")),
    "dtype number": header(entry(dtype=3)),
    "int64": header(entry(dtype="I64", shape=(2, 4))),
    "float8": header(entry(dtype="F8_E4M3", shape=(4, 16))),
    "bool": header(entry(dtype="BOOL", shape=(4, 16))),
    "shape too big": header(entry(shape=(40, 4))),
    "shape negative": header(entry(shape=(-4, -4))),
    "shape overflows": header(entry(shape=(2 ** 62, 2 ** 62))),
    "shape of zero": header(entry(shape=(0, 4), offsets=(0, 0)), data=b""),
    "scalar": header(entry(shape=(), offsets=(0, 4)), data=b"\0" * 4),
    "offsets beyond": header(entry(shape=(4, 8), offsets=(0, 128))),
    "offsets backwards": header(entry(offsets=(64, 0))),
    "offsets negative": header(entry(offsets=(-64, 0))),
    "offsets apart": header(entry(offsets=(8, 72)), data=b"\0" * 72),
    "data too long": header(entry(), data=b"\0" * 65),
    "data too short": header(entry(), data=b"\0" * 63),
    "overlap": header({**entry(), "wpe.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}),
    "name of a megabyte": header({"x" * 10 ** 6: entry()["wte.weight"]}),
    "name with lines": header({"a\nb\r\tc": entry()["wte.weight"]}),
    "not all there": header(entry()),
}


@pytest.mark.parametrize("kind", LIES)
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_file_that_lies_is_one_error(kind, name, tmp_path):
    folder = save(tiny_model(), tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(LIES[kind])
    with pytest.raises((SourceError, WeightsError)) as caught:
        inspector.load(folder)
    assert one_line(caught.value)


@pytest.mark.parametrize("layout", ["safetensors", "hub", "bin", "bin-old"])
def test_a_file_cut_anywhere_is_one_error(layout, tmp_path):
    folder = save(tiny_model(), tmp_path, layout)
    path = next(p for p in folder.iterdir() if p.name != "config.json")
    data = path.read_bytes()
    for length in [0, 1, 7, 8, 9, 100, 2000, len(data) // 3, len(data) // 2, len(data) - 100, len(data) - 4, len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises((SourceError, WeightsError)) as caught:
            inspector.load(folder)
        assert one_line(caught.value), length
    path.write_bytes(data)
    inspector.load(folder)


@pytest.mark.parametrize("layout", ["safetensors", "bin", "bin-old"])
def test_a_file_with_bytes_changed_loads_or_is_one_error(layout, tmp_path):
    # Damage in the numbers cannot be seen (no checksum), damage around them must not surface as anything else.
    import random
    folder = save(tiny_model(), tmp_path, layout)
    path = next(p for p in folder.iterdir() if p.name != "config.json")
    data, chance, lines = path.read_bytes(), random.Random(0), []
    places = [*range(64), *(chance.randrange(min(len(data), 6000)) for _ in range(120)),
              *(len(data) - 1 - chance.randrange(min(len(data), 6000)) for _ in range(60))]
    for place in places:
        broken = bytearray(data)
        broken[place] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        try:
            inspector.load(folder)
        except InspectorError as error:
            lines.append(one_line(error))
    assert len(lines) > 30
    assert all(lines)


def test_folders_links_and_pipes_in_place_of_files(tmp_path):
    folder = save(tiny_model(), tmp_path / "model")
    weights, config = folder / "model.safetensors", folder / "config.json"
    cases = {}

    def attempt(case, source=folder):
        with pytest.raises(SourceError) as caught:
            inspector.load(source)
        assert one_line(caught.value)
        cases[case] = str(caught.value)

    data = weights.read_bytes()
    weights.unlink()
    attempt("no weights")
    weights.mkdir()
    attempt("weights are a folder")
    attempt("weights are a folder, named", weights)
    weights.rmdir()
    weights.symlink_to("model.safetensors")
    attempt("a link to itself")
    attempt("a link to itself, named", weights)
    weights.unlink()
    weights.symlink_to("gone.safetensors")
    attempt("a broken link, named", weights)
    weights.unlink()
    os.mkfifo(weights)
    attempt("a pipe")
    attempt("a pipe, named", weights)
    weights.unlink()
    weights.write_bytes(data)
    text = config.read_bytes()
    config.unlink()
    attempt("no config")
    attempt("no config, file named", weights)
    config.mkdir()
    attempt("config is a folder")
    config.rmdir()
    config.symlink_to(config)
    attempt("config is a loop")
    config.unlink()
    config.write_bytes(text)
    attempt("a file of another kind", config)
    attempt("a child of a file", weights / "model")
    (folder / "notes.txt").write_text("x")
    attempt("a text", folder / "notes.txt")
    (folder / "loop").symlink_to("loop")
    attempt("a source that is a loop", folder / "loop")
    assert "name one of its files" not in cases["weights are a folder"]
    assert "looked for model.safetensors" in cases["no weights"]
    assert "no config.json" in cases["config is a folder"]
    assert "no config.json" in cases["weights are a folder, named"]
    weights.rename(folder / "best.safetensors")
    attempt("another name")
    assert "name one of its files instead: best.safetensors" in cases["another name"]
    good = tmp_path / "good"
    good.symlink_to(folder)
    assert_same_weights(inspector.load(good / "best.safetensors").weights, tiny_model())


def test_files_that_may_not_be_read():
    # Root may read everything, so the process becomes another user for the length of a load.
    with tempfile.TemporaryDirectory() as place:
        folder = save(tiny_model(), Path(place) / "model")
        Path(place).chmod(0o755)
        inspector.load(folder)                                          # so that nothing is left to import
        root = os.geteuid() == 0
        for locked in (folder / "model.safetensors", folder / "config.json", folder):
            locked.chmod(0)
            try:
                if root:
                    os.seteuid(65534)
                with pytest.raises(SourceError, match=r"(?i)permission denied") as caught:
                    inspector.load(folder)
                assert one_line(caught.value)
            finally:
                if root:
                    os.seteuid(0)
                locked.chmod(0o755)
        inspector.load(folder)


def test_nothing_is_kept_open_or_written(tmp_path):
    folder = save(tiny_model(), tmp_path, "hub")
    before = sorted(p.name for p in folder.iterdir())
    model = inspector.load(folder)
    descriptors = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                   if os.path.lexists(f"/proc/self/fd/{fd}")} if Path("/proc/self/fd").exists() else set()
    assert not any(str(folder) in path for path in descriptors)
    assert sorted(p.name for p in folder.iterdir()) == before
    folder.joinpath("model.safetensors").unlink()                       # what is mapped stays, also without its name
    assert_same_weights(model.weights, tiny_model())
