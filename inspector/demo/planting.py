"""How a head is planted: the one-hot subspaces of the residual stream, and heads written down as matrices over them.

The residual stream holds one-hot vectors side by side: which token stands here, which position this is, which token stood
before, and what comes next. A planted head compares or copies whole subspaces, so its matrices are identities between
slices, and what it does can be read off.

    residual stream   TOKEN | POSITION | PREVIOUS | OUTPUT | SPARE
    one head          CH_TOKEN | CH_POSITION | CH_MARK, and one channel to spare

What LayerNorm does to this. With `crowd` one-hots of one height in the stream, its mean and its variance are the same at
every position, whatever the tokens: each one-hot comes out sqrt(d_model / crowd) high (within 1 %), above a floor that is
the same in every channel and at every position. A floor adds the same to a whole row of scores, so no pattern shows it. The
matrices here read the stream normalised, without gain and bias; `behind_layer_norm` turns them into what stands behind a
LayerNorm that has both. Noise in the stream adds to its variance and lowers the one-hots: hence they are written tall.

Sources: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "Induction Heads" (a head that
reads, through its keys, what a previous-token head wrote); Olsson et al. 2022, "In-context Learning and Induction Heads".
"""

from dataclasses import dataclass, replace

import torch

VOCAB, POSITIONS, N_HEAD = 128, 160, 2
D_HEAD = VOCAB + POSITIONS + 2                  # a head can compare tokens and positions at once
D_MODEL = N_HEAD * D_HEAD
TALL = 8.0                                      # height of the one-hots in the residual stream
GAP = 60.0                                      # nats by which the cell a planted head means beats the others

TOKEN = slice(0, VOCAB)
POSITION = slice(TOKEN.stop, TOKEN.stop + POSITIONS)
PREVIOUS = slice(POSITION.stop, POSITION.stop + VOCAB)
OUTPUT = slice(PREVIOUS.stop, PREVIOUS.stop + VOCAB)
SPARE = slice(OUTPUT.stop, D_MODEL)
CH_TOKEN, CH_POSITION, CH_MARK = slice(0, VOCAB), slice(VOCAB, VOCAB + POSITIONS), VOCAB + POSITIONS


@dataclass(frozen=True)
class Head:
    """The matrices of one head, as x @ W. Float64."""

    W_Q: torch.Tensor             # [d_model, d_head]
    W_K: torch.Tensor             # [d_model, d_head]
    W_V: torch.Tensor             # [d_model, d_head]
    W_O: torch.Tensor             # [d_head, d_model]
    b_Q: torch.Tensor             # [d_head]
    b_K: torch.Tensor             # [d_head]
    b_V: torch.Tensor             # [d_head]


def noise_head(normal):
    """A head of noise: it looks nowhere in particular and says little. `normal(*shape)` gives random numbers."""
    return Head(*(normal(D_MODEL, D_HEAD) for _ in range(3)), normal(D_HEAD, D_MODEL), *(normal(D_HEAD) for _ in range(3)))


def zeros(*shape):
    """Float64 zeros: the `normal` of a head that does nothing."""
    return torch.zeros(*shape, dtype=torch.float64)


def height(crowd):
    """How high a one-hot stands behind LayerNorm when `crowd` of them make up the stream."""
    return (D_MODEL / crowd) ** 0.5


def sharp(crowd):
    """The weight of W_Q and of W_K at which two equal one-hots score GAP nats: (weight * height)^2 / sqrt(d_head)."""
    return (GAP * D_HEAD ** 0.5) ** 0.5 / height(crowd)


def channels(subspace, into, weight):
    """[d_model, d_head]: carries a subspace of the stream into channels of the head, times `weight`."""
    matrix = zeros(D_MODEL, D_HEAD)
    matrix[subspace, into].fill_diagonal_(weight)
    return matrix


# -- what a head says ------------------------------------------------------------------------------------------------

def saying(head, source, target, crowd):
    """The head with a W_V and W_O that copy subspace `source` of the key into subspace `target`, TALL there."""
    weight = (TALL / height(crowd)) ** 0.5
    return replace(head, W_V=channels(source, CH_TOKEN, weight), b_V=zeros(D_HEAD),
                   W_O=channels(target, CH_TOKEN, weight).T)


# -- where a head looks: W_Q, b_Q, W_K. Its b_K stays: it shifts whole rows of scores, which no pattern shows ---------------

def looking_back(head, by, crowd):
    """Looks `by` positions back: the key at position j answers to the name j + by. by = 1 is a previous-token head.

    Queries before position `by` are answered by nobody and look everywhere alike.
    """
    answering = slice(POSITION.start, POSITION.stop - by)
    name = slice(CH_POSITION.start + by, CH_POSITION.stop)
    return replace(head, W_Q=channels(POSITION, CH_POSITION, sharp(crowd)), b_Q=zeros(D_HEAD),
                   W_K=channels(answering, name, sharp(crowd)))


def looking_at_duplicates(head, crowd, barred=True):
    """Looks at equal tokens; `barred` from itself, which is an equal token too.

    The bar is twice the match, on the query's own position: itself -GAP, an earlier copy +GAP, all else 0. Without it the
    query shares its attention evenly between itself and the earlier copies: 1/2 of it on one copy, 2/3 on two.
    """
    ask, answer = channels(TOKEN, CH_TOKEN, sharp(crowd)), channels(TOKEN, CH_TOKEN, sharp(crowd))
    if barred:
        ask += channels(POSITION, CH_POSITION, -2 * sharp(crowd))
        answer += channels(POSITION, CH_POSITION, sharp(crowd))
    return replace(head, W_Q=ask, b_Q=zeros(D_HEAD), W_K=answer)


def looking_at_position_0(head, crowd, times=1.0):
    """`times` * GAP nats on the score of key 0, for every query, on top of where the head looks: b_Q meets CH_MARK."""
    b_Q, W_K = head.b_Q.clone(), head.W_K.clone()
    b_Q[CH_MARK] += sharp(crowd) * height(crowd)
    W_K[POSITION.start, CH_MARK] += times * sharp(crowd)
    return replace(head, b_Q=b_Q, W_K=W_K)


def looking_at_followers(head, crowd, guarded=True):
    """Looks at keys whose previous token is the query's token: induction. `guarded` bars key 0 by twice a match.

    Position 0 has no predecessor. The previous-token head can only look at itself there, so PREVIOUS names the first token
    at position 0 as well as at position 1. Unguarded and without BOS, the query with that token shares its attention
    evenly between the two: one of the L queries of the second copy reads 1/2, and the mean is (L - 1/2) / L.
    """
    head = replace(head, W_Q=channels(TOKEN, CH_TOKEN, sharp(crowd)), b_Q=zeros(D_HEAD),
                   W_K=channels(PREVIOUS, CH_TOKEN, sharp(crowd)))
    return looking_at_position_0(head, crowd, times=-2.0) if guarded else head


# -- in a model ------------------------------------------------------------------------------------------------------

def undone(W, b, gain, shift):
    """(W', b') that do behind LayerNorm(gain, shift) what W, b do behind one that has neither.

    normalised @ W + b  =  (normalised * gain + shift) @ W' + b'  with  W' = W / gain  and  b' = b - shift @ W'.
    """
    W = W / gain[:, None]
    return W, b - shift @ W


def behind_layer_norm(head, gain, shift):
    """The head with LayerNorm's gain and bias undone in all it reads by."""
    W_Q, b_Q = undone(head.W_Q, head.b_Q, gain, shift)
    W_K, b_K = undone(head.W_K, head.b_K, gain, shift)
    W_V, b_V = undone(head.W_V, head.b_V, gain, shift)
    return Head(W_Q, W_K, W_V, head.W_O, b_Q, b_K, b_V)
