"""The forward pass: ids -> q, k, v, scores, pattern, z, residual stream, logits.

Read `attention.py` first: one layer's attention as pure functions. `forward.py` strings the layers together.

Axis names, used at the end of lines throughout the package, outermost first:

    batch     texts computed together; absent for a single one
    layer     transformer layers, from 0
    head      attention heads of one layer, from 0; a head is written 5.1 (layer.head)
    pos       positions in the text, from 0 (BOS included where there is one)
    query     the position that looks (row, destination)
    key       the position looked at (column, source); key <= query
    d_model   width of the residual stream
    d_head    width of one head's q, k, v and z; n_head * d_head = d_model
    d_mlp     width of the MLP's hidden layer
    vocab     token ids
"""
