"""What the heads do: prompts, scores, controls and verdicts as tables.

`prompts.py` draws sequences with a known repeat, `scores.py` says what each score reads from a pattern, `protocols.py`
holds the published ways to measure, `verdicts.py` decides against the control, and `table.py` puts it together as `heads`.
"""
