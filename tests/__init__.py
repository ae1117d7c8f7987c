"""The tests; `models.py` makes the checkpoints they run on."""
