"""What `scripts/benchmark.py` measures, one module a subject.

Each has `measure(setting)`, which yields `Measured` rows. In every task our way is the first row; the others tell how many
times longer they take. Peers that are not installed are named, never faked.
"""
