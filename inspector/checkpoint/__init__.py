"""From a source to a model: find the files, read them, verify them, refuse what is not GPT-2.

`source.py` finds files, `config.py` reads the config, `reading.py` the tensors into the `Weights` of `weights.py`,
`tokens.py` the tokenizer, and `loading.py` puts them together as `load`.
"""
