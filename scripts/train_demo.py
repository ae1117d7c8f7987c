"""Train the demo model: a small GPT-2 that grows previous-token and induction heads.

    python scripts/train_demo.py                  # train, about an hour on two cores; resumes after a stop
    python scripts/train_demo.py --layers 1       # the control: one layer, which cannot hold an induction circuit
    python scripts/train_demo.py --repeats 0      # text alone, no planted repeats

Text: docstrings of the standard library and of the packages pinned in constraints.txt, and `pydoc_data.topics`: always
at hand, the same wherever the same versions are installed. A quarter of the rows (in the first half of the steps:
half) are random ids repeated with a random period, so that induction pays everywhere (Olsson et al. 2022, "In-context
Learning and Induction Heads", use the same sequences as a test). In the second half windows start at random
positions: a model that only sees windows starting at 0 never learns the position embeddings beyond them.

The folder `build/demo/<run>/` holds the tokenizer, one checkpoint per logged step (fp16), `facts.json` (the run's data and
floors), `training.csv` (scores of every checkpoint) and the state to resume from. `--ship` copies the last checkpoint, and
with it the tables of the runs found beside it, to where the package looks for it.
"""

import argparse
import ast
import hashlib
import json
import math
import pydoc_data.topics
import shutil
import sysconfig
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import tqdm
from transformers import GPT2Config, GPT2LMHeadModel

PACKAGES = ["torch", "transformers", "numpy", "pandas", "matplotlib", "tokenizers", "safetensors", "huggingface_hub"]
VOCAB, WIDTH, HEADS, CONTEXT = 2048, 192, 6, 256
TOKENS_PER_STEP = 6144
SAMPLE = 64             # held-out windows that are scored and shipped with the tests
END = "<|endoftext|>"


# -- text ------------------------------------------------------------------------------------------------------------

def docstrings(path):
    """Every docstring of one source file, dedented, in order of appearance."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [text for text in found if text]


def documents():
    """(training, held out): documents of at least 200 characters, each once; one in fifty is held out, by its hash."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    site = Path(sysconfig.get_path("purelib"))
    files = [f for f in sorted(stdlib.rglob("*.py")) if not {"site-packages", "test", "tests"} & set(f.parts)]
    for package in PACKAGES:
        files += sorted((site / package).rglob("*.py"))
    texts = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    for path in tqdm(files, desc="reading docstrings"):
        texts += docstrings(path)
    training, held_out, seen = [], [], set()
    for text in texts:
        digest = hashlib.sha256(text.encode()).digest()
        if len(text) < 200 or digest in seen:
            continue
        seen.add(digest)
        (held_out if digest[0] % 50 == 0 else training).append(text)
    return training, held_out


def train_tokenizer(texts):
    """A byte-level BPE as GPT-2's, with the one special token GPT-2 has."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[END], initial_alphabet=sorted(alphabet))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def stream(tokenizer, texts):
    """All documents as one row of ids, each followed by the end-of-text id; int32 [n]."""
    end = tokenizer.token_to_id(END)
    parts = [np.array([*e.ids, end], dtype=np.int32) for e in tokenizer.encode_batch(texts)]
    return np.concatenate(parts)


def prepare(folder):
    """Tokenizer and id streams, made once and kept in the run's folder."""
    if not (folder / "train.npy").exists():
        training, held_out = documents()
        order = np.random.default_rng(0).permutation(len(training))
        tokenizer = train_tokenizer(training)
        tokenizer.save(str(folder / "tokenizer.json"))
        np.save(folder / "held_out.npy", stream(tokenizer, held_out))
        np.save(folder / "train.npy", stream(tokenizer, [training[i] for i in order]))
    return np.load(folder / "train.npy"), np.load(folder / "held_out.npy")


# -- floors ----------------------------------------------------------------------------------------------------------

def ngram_floors(train, held_out):
    """Cross-entropy of held-out text (nats per token) under a unigram and an interpolated bigram model; any rows of ids.

    The bigram is Witten and Bell's interpolation (1991; Chen and Goodman 1998, section 2.5): with c(a) followers of a
    counted, of which u(a) are distinct, p(b|a) = (c(a,b) + u(a) p(b)) / (c(a) + u(a)); p(b) is add-one unigram.
    """
    unigram = (np.bincount(train, minlength=VOCAB) + 1) / (len(train) + VOCAB)
    pairs = np.bincount(train[:-1].astype(np.int64) * VOCAB + train[1:], minlength=VOCAB**2).reshape(VOCAB, VOCAB)
    total, distinct = pairs.sum(1), (pairs > 0).sum(1)
    a, b = held_out[..., :-1], held_out[..., 1:]
    weight = (total + distinct)[a]
    p = np.where(weight > 0, (pairs[a, b] + distinct[a] * unigram[b]) / np.maximum(weight, 1), unigram[b])
    return float(-np.log(unigram[b]).mean()), float(-np.log(p).mean())


# -- batches ---------------------------------------------------------------------------------------------------------

def repeated_row(rng, length):
    """Random ids: a prefix of random length, then a block of distinct ids repeated to the end; int32 [length]."""
    longest = max(9, length // 2)
    period = int(rng.integers(8, longest + 1))
    prefix = int(rng.integers(0, max(1, length - 2 * period) + 1)) if rng.random() < 0.5 else 0
    block = rng.permutation(VOCAB - 1)[:period] + 1          # id 0 is the end-of-text token
    head = rng.permutation(VOCAB - 1)[:prefix] + 1
    return np.concatenate([head, np.tile(block, -(-length // period))])[:length].astype(np.int32)


def batch(step, *, data, seed, steps, share):
    """(ids, positions, number of repeated rows, which come first): ids and positions int64 [row, length].

    Made from seed and step alone, so that a resumed run agrees with one that was never stopped.
    """
    rng = np.random.default_rng([seed, step])
    done = step / steps
    forming = done < 0.5
    if forming:               # short rows from position 0 and twice the repeats: where the heads form
        length, share = 64, min(1.0, 2 * share)
    elif done < 0.75:
        length = (64, 128, 128, 256)[step % 4]
    else:
        length = (128, 256, 256)[step % 3]
    n_rows = TOKENS_PER_STEP // length
    n_repeated = round(share * n_rows)
    rows = [repeated_row(rng, length) for _ in range(n_repeated)]
    for start in rng.integers(0, len(data) - length, n_rows - n_repeated):
        rows.append(data[start:start + length])
    offsets = rng.integers(0, CONTEXT - length + 1, n_rows) * (rng.random(n_rows) < (0 if forming else 0.75))
    positions = offsets[:, None] + np.arange(length)[None]
    return torch.from_numpy(np.stack(rows).astype(np.int64)), torch.from_numpy(positions), n_repeated


# -- training --------------------------------------------------------------------------------------------------------

def sinusoids(n, width, amplitude=0.1):
    """Where the position embeddings start (Vaswani et al. 2017, section 3.5, with base 1,000): [n, width].

    From GPT-2's own random start, and from sinusoids as small as the token embeddings (0.03), this small model had found
    no previous-token head after 1,400 steps: "one back" had to be learned for each position alone, under the tokens'
    noise. In sinusoids it is one linear map for all positions. They are learned on from there like any weight.
    """
    angle = torch.arange(n)[:, None] * 1000 ** (-torch.arange(0, width, 2) / width)
    return amplitude * torch.cat([angle.sin(), angle.cos()], dim=1)


def learning_rate(step, steps, peak=1.5e-3, warmup=150):
    """Linear warm-up, then half a cosine down to a fiftieth of the peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))))


def logged_steps(steps, count=36):
    """About `count` steps on a log scale, 0 and the last included."""
    return sorted({0, steps} | {round(s) for s in np.geomspace(8, steps, count - 1)})


def save_checkpoint(model, folder, step):
    """One checkpoint in fp16 as transformers writes it, with the run's tokenizer beside it."""
    target = folder / f"step_{step:06d}"
    half = GPT2LMHeadModel(model.config).half()
    half.load_state_dict(model.state_dict())
    half.config.activation_function = "gelu_new"
    half.save_pretrained(target)
    (target / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())


def train(folder, *, layers, steps, seed, share, save_every=200):
    """Run (or go on) to `steps`; leaves checkpoints and, every so many steps, `state.pt` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data, held_out = prepare(folder)
    unigram, bigram = ngram_floors(data, held_out)
    facts = {"layers": layers, "steps": steps, "seed": seed, "repeats": share, "tokens": len(data),
             "held_out_tokens": len(held_out), "unigram_nats": unigram, "bigram_nats": bigram}
    (folder / "facts.json").write_text(json.dumps(facts, indent=2))
    print(json.dumps(facts))

    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=WIDTH, n_layer=layers, n_head=HEADS,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
                        activation_function="gelu_pytorch_tanh")    # gelu_new, fused
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.wpe.weight.copy_(sinusoids(CONTEXT, WIDTH))
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
                                  lr=0.0, betas=(0.9, 0.98))
    first = 0
    state_file = folder / "state.pt"
    if state_file.exists():
        state = torch.load(state_file, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    kept = set(logged_steps(steps))
    bar = tqdm(range(first, steps), initial=first, total=steps, desc=f"{layers} layers")
    if first == 0:
        save_checkpoint(model, folder, 0)
    for step in bar:
        ids, positions, n_repeated = batch(step, data=data, seed=seed, steps=steps, share=share)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        # The fused kernel's backward pass only pays on long rows (measured: 0.4 against 0.8 s a step at 64 tokens).
        model.config._attn_implementation = "sdpa" if ids.shape[1] > 128 else "eager"
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids, position_ids=positions).logits
        each = torch.nn.functional.cross_entropy(logits[:, :-1].float().transpose(1, 2), ids[:, 1:], reduction="none")
        loss = each.mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            bar.set_postfix(text=f"{each[n_repeated:].mean():.3f}", repeats=f"{each[:n_repeated].mean():.3f}",
                            length=ids.shape[1])
        if step + 1 in kept:
            save_checkpoint(model, folder, step + 1)
        if (step + 1) % save_every == 0 or step + 1 == steps:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, folder / "state.tmp")
            (folder / "state.tmp").replace(state_file)


# -- what came of it -------------------------------------------------------------------------------------------------

def checkpoints(folder):
    """{step: folder} of a run, in order."""
    return {int(path.name[5:]): path for path in sorted(folder.glob("step_*"))}


def row_losses(model, ids, batch_rows=16):
    """Loss of every next token: ids [row, pos] -> [row, pos - 1], nats."""
    from inspector.model.forward import embed, layers, losses, unembed
    found = []
    for rows in ids.split(batch_rows):
        *_, last = layers(model, embed(model, rows))
        found.append(losses(unembed(model, last.resid_post), rows))
    return torch.cat(found)


def score_checkpoint(path, held_out, period=50):
    """One row of training.csv: best heads on repeats, loss in both copies, loss on held-out text and by position."""
    import inspector
    from inspector.findings.prompts import draw
    model = inspector.load(path)
    table = inspector.heads(model, period=period)
    best, previous = table["induction"].idxmax(), table["previous_token"].idxmax()
    copies = row_losses(model, draw(model, period=period, seed=1).ids).mean(0)
    text = row_losses(model, held_out)
    late, early = text[:, -20:].mean(1), text[:, 40:60].mean(1)      # the published score is the 500th minus the 50th token
    return {"previous_token": table["previous_token"][previous],
            "previous_token_head": f"{table['layer'][previous]}.{table['head'][previous]}",
            "induction": table["induction"][best], "induction_head": f"{table['layer'][best]}.{table['head'][best]}",
            "induction_control": table["induction_control"][best],
            "induction_verdicts": int(sum("induction" in v for v in table["verdict"])),
            "first_copy_loss": float(copies[:period - 1].mean()), "second_copy_loss": float(copies[period:].mean()),
            "held_out_loss": float(text.mean()), "in_context": float((late - early).mean()),
            "in_context_se": float((late - early).std() / len(text) ** 0.5)}


def windows(held_out, count):
    """Held-out ids as [window, CONTEXT], `count` of them, evenly spread."""
    whole = held_out[:len(held_out) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)
    return torch.from_numpy(whole[np.linspace(0, len(whole) - 1, count).round().astype(int)].astype(np.int64))


def score_run(folder):
    """Write training.csv of a run: every checkpoint scored alike."""
    held_out = windows(np.load(folder / "held_out.npy"), SAMPLE)
    facts = json.loads((folder / "facts.json").read_text())
    rows = [{"layers": facts["layers"], "step": step, **score_checkpoint(path, held_out)}
            for step, path in tqdm(checkpoints(folder).items(), desc="scoring")]
    pd.DataFrame(rows).round(5).to_csv(folder / "training.csv", index=False)


def ship(folder):
    """Copy the last checkpoint into the package, with the tables of this run and of the runs beside it."""
    import inspector
    target = Path(inspector.__file__).parent / "demo"
    last = list(checkpoints(folder).values())[-1]
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copyfile(last / name, target / name)
    tables = [pd.read_csv(path) for path in sorted(folder.parent.glob("*/training.csv"))]
    pd.concat(tables, ignore_index=True).to_csv(target / "training.csv", index=False)
    shutil.copyfile(folder / "facts.json", target / "facts.json")
    # A sample of the held-out text for the tests, with its own floors: the text itself is made anew by nobody but this.
    sample, data = windows(np.load(folder / "held_out.npy"), SAMPLE).numpy(), target.parent.parent / "tests" / "data"
    unigram, bigram = ngram_floors(np.load(folder / "train.npy"), sample)
    np.save(data / "held_out.npy", sample.astype(np.int16))
    floors = {"source": "scripts/train_demo.py: docstrings kept out of training", "unigram_nats": unigram,
              "bigram_nats": bigram}
    (data / "held_out.json").write_text(json.dumps(floors, indent=2) + "\n")


def main():
    """Read the arguments, train, score, ship."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=4, help="4 is the demo, 1 the control")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=float, default=0.25, help="share of rows that are repeated random ids")
    parser.add_argument("--out", type=Path, help="run folder; default build/demo/layers_N")
    parser.add_argument("--ship", action="store_true", help="make this run the package's demo model")
    args = parser.parse_args()
    folder = args.out or Path("build/demo") / f"layers_{args.layers}"
    train(folder, layers=args.layers, steps=args.steps, seed=args.seed, share=args.repeats)
    score_run(folder)
    if args.ship:
        ship(folder)


if __name__ == "__main__":
    main()
