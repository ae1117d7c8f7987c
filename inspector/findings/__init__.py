"""What the heads do: prompts, scores, controls and verdicts as tables.

What a head looks at: `prompts.py` draws sequences with a known repeat, `scores.py` says what each score reads from a
pattern, `protocols.py` holds the published ways to measure, `verdicts.py` decides against the control, and `table.py` puts
it together as `heads`. What it says: `values.py` (what each weight brings), `direct.py` (what a part adds to a logit),
`copying.py`, `attribution.py` (one next token), `in_text.py` (the repeats of a text). What its weights say: `circuits/`.
What happens without it: `cutting.py`, `ablation.py`, `causes.py` (who feeds whom), `learning.py` (loss along a text).
`study.py` combines all of it; `published/` holds what others measured.
"""
