"""Measure the demo model with TransformerLens, and write what it reads as a golden file: an independent truth.

    python -m venv lens && lens/bin/pip install -c constraints.txt transformer-lens==4.3.0
    lens/bin/python scripts/golden_transformerlens.py

The file is inspector/findings/published/demo.json, which `inspector check --against published --model demo` compares with.
Nothing of the package `inspector` runs here: transformers loads the weights, TransformerLens (MIT) runs the model in float64
and processes its weights (fold_ln, center_writing_weights, center_unembed; value biases are not folded, so that a head's
result keeps its own b_V). What is written, by TransformerLens' definitions:

    ids                 [2, 100] drawn from seed 0; every row is run twice in a row, without BOS (its Exploratory demo)
    the three scores    means over the two rows of the pattern's diagonals: offset 1 (199 entries), 100 (100) and 99 (101)
    loss                per position, mean over the two rows, nats: of tokens 1 to 199
    OV copying          sum Re(l) / sum |l| of W_V W_O, and of W_E W_V W_O W_U (its Main demo)
    attribution         one prompt, its last position: what each head, MLP and embedding adds to the likeliest token's logit
                        (stack_head_results, logit_attrs; the vocabulary mean is gone by center_unembed)
    composition         all_composition_scores Q, K, V, nothing subtracted; pairs by (earlier head, later head)
    head detector       detect_head on a sentence that repeats, with BOS, error measure "mul": previous, duplicate,
                        induction, and previous with BOS and the current token left out
"""

import argparse
import hashlib
import json
import os
import platform
from importlib import metadata
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")       # the demo lies in a folder: nothing is looked up anywhere

import torch
from transformer_lens.head_detector import detect_head
from transformer_lens.model_bridge import TransformerBridge
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parent.parent
PERIOD, ROWS = 100, 2
PROMPT = "The cat sat on the mat. The dog saw that the cat sat on the"
REPEATING = "one two three one two three one two three"
DIGITS = 8
BOUND, LOSS_BOUND = 1e-5, 1e-4          # for ours in float32: a loss of ten nats has seven digits


def plain(tensor):
    """Nested lists of a tensor's numbers with DIGITS significant digits."""
    def rounded(x):
        return [rounded(y) for y in x] if isinstance(x, list) else float(f"{x:.{DIGITS}g}")

    return rounded(tensor.double().tolist())


def load(folder):
    """The model as a TransformerBridge in float64 with folded, centred weights."""
    hf_model = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), bos_token="<|endoftext|>",
                                        eos_token="<|endoftext|>", name_or_path=str(folder), add_bos_token=True)
    bridge = TransformerBridge.boot_transformers(str(folder), hf_model=hf_model, tokenizer=tokenizer, dtype=torch.float64,
                                                 device="cpu")
    bridge.enable_compatibility_mode(disable_warnings=True, fold_value_biases=False)
    return bridge


def scores(model, ids):
    """{name: [layer, head]} of the three scores, and "loss" [position], on rows that repeat."""
    tokens = ids.repeat(1, 2)
    _, cache = model.run_with_cache(tokens)
    patterns = torch.stack([cache["pattern", layer] for layer in range(model.cfg.n_layers)])    # [layer, row, head, q, k]

    def diagonal(offset):
        return patterns.diagonal(-offset, -2, -1).mean(-1).mean(1)

    losses = model(tokens, return_type="loss", loss_per_token=True)
    return {"previous_token": diagonal(1), "duplicate_token": diagonal(PERIOD), "induction": diagonal(PERIOD - 1),
            "loss": losses.mean(0)}


def copying(model):
    """{name: [layer, head]} eigenvalue ratios in the residual basis and through the vocabulary."""
    def ratio(values):
        return values.real.sum(-1) / values.abs().sum(-1)

    vocabulary = model.W_E @ model.OV @ model.W_U
    return {"ov_copying": ratio(model.OV.eigenvalues), "ov_copying_vocab": ratio(vocabulary.eigenvalues)}


def attribution(model, prompt):
    """(what was asked, {name: what each head, MLP and embedding adds}): the most likely token's logit after the prompt."""
    tokens = model.to_tokens(prompt, prepend_bos=False)
    logits, cache = model.run_with_cache(tokens)
    target, n_layer = int(logits[0, -1].argmax()), model.cfg.n_layers

    def added(stack):
        return cache.logit_attrs(stack, target, pos_slice=-1)[:, 0]             # applies the final LayerNorm itself

    heads = added(cache.stack_head_results(layer=-1, pos_slice=-1)).view(n_layer, model.cfg.n_heads)
    mlps = added(torch.stack([cache["mlp_out", layer][:, -1] for layer in range(n_layer)]))
    embeddings = added(torch.stack([cache["embed"][:, -1], cache["pos_embed"][:, -1]]))
    return {"ids": tokens[0].tolist(), "target": target}, {"heads": heads, "mlps": mlps, "embeddings": embeddings}


def composition(model):
    """{"q", "k", "v": one number a pair}, pairs in the order of (layer_from, head_from, layer, head)."""
    n_layer, n_head = model.cfg.n_layers, model.cfg.n_heads
    layer = torch.arange(n_layer).repeat_interleave(n_head)
    pairs = (layer[:, None] < layer[None, :]).view(n_layer, n_head, n_layer, n_head)
    return {mode.lower(): model.all_composition_scores(mode).scores[pairs] for mode in "QKV"}


def detected(model):
    """{name: [layer, head]} of the head detector on a sentence that repeats; it puts BOS first by itself."""
    def found(kind, **options):
        return detect_head(model, REPEATING, kind, error_measure="mul", **options)

    return {"previous": found("previous_token_head"), "duplicate": found("duplicate_token_head"),
            "induction": found("induction_head"),
            "previous_without": found("previous_token_head", exclude_bos=True, exclude_current_token=True)}


@torch.no_grad()
def golden(folder):
    """Everything as a dict that JSON can hold, in the form of the other files of that folder."""
    model = load(folder)
    # Id 0 is <|endoftext|>: every other one may come.
    ids = torch.randint(1, model.cfg.d_vocab, (ROWS, PERIOD), generator=torch.Generator().manual_seed(0))
    asked, parts = attribution(model, PROMPT)
    found = {"tl-seed0": scores(model, ids), "ov": copying(model), "attribution": parts, "composition": composition(model),
             "detector": detected(model)}
    arrays = {f"{family} {name}": plain(array) for family, named in found.items() for name, array in named.items()}
    packages = ("transformer-lens", "transformers", "torch", "numpy")
    return {
        "release": "demo",
        "sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "source": "scripts/golden_transformerlens.py: TransformerLens (MIT) in float64",
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}},
        "inputs": {"ids": ids.tolist(), "detector": {"sentence": [REPEATING], "repeating": [REPEATING]},
                   "attribution": asked},
        "exact": {name: LOSS_BOUND if name.endswith(" loss") else BOUND for name in arrays}, "sequences": {},
        "arrays": arrays}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=ROOT / "inspector" / "demo")
    parser.add_argument("--out", type=Path, default=ROOT / "inspector" / "findings" / "published" / "demo.json")
    args = parser.parse_args()
    text = json.dumps(golden(args.model))
    args.out.write_text(text.replace(', "', ',\n"') + "\n", encoding="utf-8")
    print(f"{args.out}: {len(text):,} characters")


if __name__ == "__main__":
    main()
