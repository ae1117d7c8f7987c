"""From the shell to the first result: fresh processes, the same checkpoint folder, the same ids."""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import inspector

from .measuring import ROOT, Measured, in_turn, missing

TOKENS = 64
THEIRS = """
import sys
import torch
from transformers import GPT2LMHeadModel
from transformer_lens.model_bridge import TransformerBridge
model = GPT2LMHeadModel.from_pretrained(sys.argv[1], attn_implementation="eager", dtype=torch.float32)
model = TransformerBridge.boot_transformers(sys.argv[1], hf_model=model, tokenizer=None, device="cpu")
_, cache = model.run_with_cache(torch.tensor([[int(word) for word in sys.argv[2].split()]]))
print(float(cache["pattern", 5 % model.cfg.n_layers][0, 1, -1, 0]))
"""
OURS = """
import sys
import inspector
trace = inspector.trace(inspector.load(sys.argv[1]), ids=[int(word) for word in sys.argv[2].split()])
print(float(trace.pattern[5 % len(trace.pattern), 1, -1, 0]))
"""


def shell(*command):
    """Run one Python process to its end; returns what it printed. Raises CalledProcessError where it fails."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *command], cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env=environment).stdout


def measure(setting):
    """Yield the rows. The note of TransformerLens' row says how far its one printed number lies from ours."""
    drawn, vocabulary = random.Random(0), inspector.load(setting.source).config.vocab_size
    ids = " ".join(str(drawn.randrange(vocabulary)) for _ in range(TOKENS))
    model = ("--model", setting.source)
    task = f"from the shell to the first result, {TOKENS} tokens"
    with tempfile.TemporaryDirectory(prefix="inspector-benchmark-") as folder:
        ways = {"a script: load, trace, one number": lambda: shell("-c", OURS, setting.source, ids),
                "inspector trace": lambda: shell("-m", "inspector", "trace", *model, "--ids", ids, "--out",
                                                 str(Path(folder, "trace"))),
                "inspector heads": lambda: shell("-m", "inspector", "heads", *model, "--ids", ids),
                "inspector info": lambda: shell("-m", "inspector", "info", *model)}
        absent, theirs, note = missing("transformer_lens"), "TransformerLens: the same script", ""
        if absent is None:
            ways[theirs] = lambda: shell("-c", THEIRS, setting.source, ids)
            numbers = [float(shell("-c", code, setting.source, ids).split()[-1]) for code in (OURS, THEIRS)]
            note = f"its number lies {abs(numbers[0] - numbers[1]):.0e} from ours"
        ways["(import torch alone: the floor)"] = lambda: shell("-c", "import torch")
        for way, seconds in in_turn(ways, setting.repetitions).items():
            yield Measured(task, way, seconds, note=note if way == theirs else "")
        if absent:
            yield Measured(task, theirs, note=absent)
