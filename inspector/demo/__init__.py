"""The two models that are always there: `demo` (trained, the files beside this one) and `planted` (made in code)."""
