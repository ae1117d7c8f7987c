"""inspector: look inside GPT-2 with confidence.

    import inspector
    model = inspector.load("demo")
    trace = inspector.trace(model, "The cat sat on the mat. The cat")
    inspector.heads(model)                  # which heads look back, and which do induction
    inspector.study(model)                  # ... by what evidence: copying, weights, cuts, the circuit
    inspector.check(model, "The cat")       # proof against Hugging Face
    inspector.intervene(model, {"1.1": "zero"}, "The cat sat on the")    # turn a head off
    inspector.report(model, "The cat sat on the mat.", out="reports/cat")
    inspector.explore(trace)                # attention to touch, in a notebook
    inspector.serve(["demo"])               # the live page

Every function is also a verb of the command `inspector`, with the same arguments. Importing this package is light:
torch is imported by the first function used.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "load": "checkpoint.loading",
    "info": "model.sizes",
    "trace": "model.tracing",
    "check": "checks",
    "heads": "findings.table",
    "attribute": "findings.attribution",
    "induction": "findings.in_text",
    "circuits": "findings.circuits.table",
    "ablate": "findings.ablation",
    "intervene": "findings.interventions",
    "study": "findings.study",
    "report": "pages.report",
    "explore": "pages.explorer.notebook",
    "serve": "server.serving",
}
__all__ = ["InspectorError", *_HOME]


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module("." + _HOME[name], __name__), name)
    if name == "InspectorError":
        from .errors import InspectorError
        return InspectorError
    raise AttributeError(f"module 'inspector' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
