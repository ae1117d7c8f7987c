"""Checkpoint tensors: read, renamed once, verified whole, and cut into the forward pass's Weights.

A load is complete or an error: all missing, unexpected and misshapen tensors are named in one message before anything is
used. Layout: facts of `openai-community/gpt2` (160 tensors, Conv1D matrices stored [in, out]).
"""

import pickle
import re
import warnings
import zipfile

import torch

from ..errors import SourceError, WeightsError
from .source import weight_files
from .weights import Block, Weights

# The causal mask, saved with the weights by old versions of transformers: no weights.
BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def read_tensors(path):
    """{name as stored: tensor} of one file. Safetensors are memory-mapped: no copy is made in memory."""
    read = _read_safetensors if path.name.endswith(".safetensors") else _read_pickle
    try:
        path.open("rb").close()       # for the system's own reason: safetensors calls what it may not open absent
        return read(path)
    except SourceError:
        raise
    except Exception as error:        # a broken file raises nearly anything; the reader's own words say what is wrong
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:300] or type(error).__name__
        raise SourceError(f"{path} cannot be read: {reason}") from error


def _read_safetensors(path):
    from safetensors import safe_open
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}                 # noqa: SIM118 (not a dict)


def _read_pickle(path):
    try:
        with warnings.catch_warnings(action="ignore"):         # of old formats, which are read all the same
            # weights_only: a pickle may hold any code; only plain tensors are read.
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise SourceError(f"{path} holds more than plain tensors, or is no pickle; such a file may run any code, so it is "
                          "not read. Convert it to safetensors where you trust it") from error
    if not isinstance(found, dict) or not all(isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in found.items()):
        raise SourceError(f"{path} does not hold a dictionary of names and tensors")
    return {name: tensor.detach() for name, tensor in found.items()}                 # some hold Parameters


def expected_shapes(config):
    """{name without prefix: shape} of every tensor a checkpoint of this config must hold, lm_head apart."""
    d, m = config.d_model, config.d_mlp
    shapes = {"wte.weight": (config.vocab_size, d), "wpe.weight": (config.n_positions, d),
              "ln_f.weight": (d,), "ln_f.bias": (d,)}
    for n in range(config.n_layer):
        layer = {"ln_1.weight": (d,), "ln_1.bias": (d,), "attn.c_attn.weight": (d, 3 * d), "attn.c_attn.bias": (3 * d,),
                 "attn.c_proj.weight": (d, d), "attn.c_proj.bias": (d,), "ln_2.weight": (d,), "ln_2.bias": (d,),
                 "mlp.c_fc.weight": (d, m), "mlp.c_fc.bias": (m,), "mlp.c_proj.weight": (m, d), "mlp.c_proj.bias": (d,)}
        shapes |= {f"h.{n}.{name}": shape for name, shape in layer.items()}
    return shapes


def in_words(names):
    """Names in one line, the same tensor of several layers together: h.{0-2, 5}.ln_1.bias, wte.weight."""
    layers = {}
    for name in names:
        match = re.fullmatch(r"h\.(0|[1-9]\d{0,5})\.(.+)", name)
        found = layers.setdefault((bool(match), match[2] if match else name), [])
        if match:
            found.append(int(match[1]))
    words = (f"h.{_ranges(found)}.{name}" if in_layer else name for (in_layer, name), found in layers.items())
    return ", ".join((word if word.isprintable() else ascii(word))[:120] for word in words)


def _ranges(numbers):
    """[0, 1, 2, 5] -> "{0-2, 5}"; [4] -> "4"."""
    parts = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
    return text if len(numbers) == 1 else "{" + text + "}"


def verified(tensors, config):
    """The tensors under their names without prefix, complete and of the right shapes; buffers left out.

    Raises WeightsError naming every missing, unexpected, doubled and misshapen tensor at once.
    """
    found, doubled = {}, []
    for stored, tensor in tensors.items():
        name = stored.removeprefix("transformer.")
        if BUFFER.fullmatch(name):
            continue
        if name in found:
            doubled.append(name)
        found[name] = tensor
    shapes = expected_shapes(config)
    if "lm_head.weight" in found or not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.d_model)
    known = {name: tensor for name, tensor in found.items() if name in shapes}
    wrong = [f"{name} is {list(tensor.shape)}, expected {list(shapes[name])}"
             for name, tensor in known.items() if tuple(tensor.shape) != shapes[name]]
    odd = [f"{name} ({tensor.dtype}, {tensor.layout}, {tensor.device})".replace("torch.", "")
           for name, tensor in known.items()
           if tensor.dtype not in FLOATS or tensor.layout != torch.strided or tensor.is_meta]
    problems = {
        "twice, with and without prefix": in_words(doubled),
        "missing": in_words(name for name in shapes if name not in found),
        "unexpected": in_words(name for name in found if name not in shapes),
        "wrong shape": "; ".join(wrong),
        "not plain floating point (quantised and sparse checkpoints are not supported)": ", ".join(odd),
    }
    if any(problems.values()):
        raise WeightsError("the weights do not fit the config. "
                           + ". ".join(f"{kind}: {names}" for kind, names in problems.items() if names))
    return found


def converted(tensors, dtype, device):
    """The tensors in one dtype on one device; those already there are not copied.

    Raises WeightsError naming every tensor that then holds NaN or an infinity.
    """
    found = {name: tensor.to(device=device, dtype=dtype) for name, tensor in tensors.items()}
    bad = []
    for name, tensor in found.items():
        low, high = torch.aminmax(tensor)        # NaN passes through both; no copy of the tensor's size is made
        if not (torch.isfinite(low) and torch.isfinite(high)):
            before = tensors[name].dtype
            stored = "" if before == dtype else f", stored as {before}"
            bad.append(f"{name} ({int((~torch.isfinite(tensor)).sum())} of {tensor.numel()}{stored})")
    if bad:
        text = f"values that are NaN or infinite as {dtype}, so nothing is computed from the weights: {', '.join(bad)}"
        raise WeightsError(text.replace("torch.", ""))
    return found


def read_weights(files, config, *, dtype, device):
    """Weights of a checkpoint in one dtype on one device. A file already in that dtype stays memory-mapped.

    Raises SourceError for a file that cannot be read, WeightsError for tensors that are not all there, or not finite.
    """
    tensors = {}
    for path in weight_files(files.weights):
        part = read_tensors(path)
        if doubled := set(part) & set(tensors):
            raise WeightsError(f"tensors stand in more than one shard: {', '.join(sorted(doubled))}")
        tensors |= part
    w = converted(verified(tensors, config), dtype, device)
    tied = config.tie_word_embeddings
    if tied and "lm_head.weight" in w and not torch.equal(w["lm_head.weight"], w["wte.weight"]):
        # transformers 5 uses such a head, older versions drop it: the file does not say which model is meant.
        raise WeightsError("the config ties lm_head to wte (tie_word_embeddings), but the file's lm_head.weight differs "
                           "from wte.weight; set tie_word_embeddings to false if lm_head is meant, else remove it")

    def block(n):
        h = f"h.{n}."
        return Block(
            w[h + "ln_1.weight"], w[h + "ln_1.bias"], w[h + "attn.c_attn.weight"], w[h + "attn.c_attn.bias"],
            w[h + "attn.c_proj.weight"].unflatten(0, (config.n_head, config.d_head)), w[h + "attn.c_proj.bias"],
            w[h + "ln_2.weight"], w[h + "ln_2.bias"], w[h + "mlp.c_fc.weight"], w[h + "mlp.c_fc.bias"],
            w[h + "mlp.c_proj.weight"], w[h + "mlp.c_proj.bias"])

    return Weights(W_E=w["wte.weight"], W_pos=w["wpe.weight"], blocks=tuple(map(block, range(config.n_layer))),
                   ln_f_weight=w["ln_f.weight"], ln_f_bias=w["ln_f.bias"],
                   W_U=w["wte.weight" if tied else "lm_head.weight"].T)
