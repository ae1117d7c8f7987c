"""What a head's weights say, before any text is read (Elhage et al. 2021; Olsson et al. 2022).

`folding.py` puts LayerNorm into the matrices, `eigen.py` reads products of them by their eigenvalues, `composition.py`
pairs of heads against a random baseline, `positions.py` what position embeddings alone would attend to, `directions.py`
the leading directions of a head and their tokens, and `table.py` puts it together as `circuits`.

W_QK = W_Q W_K^T and W_OV = W_V W_O are [d_model, d_model] but of rank d_head. Nothing here makes them, nor anything of
vocab by vocab: every number comes from [d_head, d_head] products of the factors. Biases are outside all of this.
"""
