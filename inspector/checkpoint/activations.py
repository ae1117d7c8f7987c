"""The activation functions a GPT-2 config may name: every one of transformers' that has no parameters.

Names as in `transformers.activations.ACT2CLS` (5.24): 22 without parameters; `prelu` and `xielu` learn theirs and are
refused. Each takes and returns a tensor of any shape. This module imports torch only when a function is called, so that
reading a config stays light.
"""

import math

REFUSED = ("prelu", "xielu")


def _functional():
    import torch.nn.functional
    return torch.nn.functional


def _gelu_tanh(x):
    # Hendrycks and Gimpel 2016 (arXiv 1606.08415), section 2: the tanh approximation, x/2 (1 + tanh u), written as
    # x sigmoid(2u), which is the same. torch's own takes twice as long in float32.
    cubic = x.addcmul(x, x * x, value=0.044715)
    return cubic.mul_(2 * math.sqrt(2 / math.pi)).sigmoid_().mul_(x)


def _gelu_fast(x):
    # The constant is sqrt(2 / pi) cut to ten digits, as the checkpoints that name it were trained with.
    return 0.5 * x * (1 + (x * 0.7978845608 * (1 + 0.044715 * x * x)).tanh())


def _laplace(x):
    # Ma et al. 2022 (arXiv 2209.10655), the attention activation of MEGA: mu = sqrt(1/2), sigma = sqrt(1/(4 pi)).
    return 0.5 * (1 + ((x - 0.707107) / (0.282095 * math.sqrt(2))).erf())


ACTIVATIONS = {
    "gelu": lambda x: _functional().gelu(x),
    "gelu_python": lambda x: _functional().gelu(x),
    "gelu_10": lambda x: _functional().gelu(x).clamp(-10, 10),
    "gelu_new": _gelu_tanh,
    "gelu_accurate": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_python_tanh": _gelu_tanh,
    "gelu_fast": _gelu_fast,
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
    "hardswish": lambda x: _functional().hardswish(x),
    "laplace": _laplace,
    "leaky_relu": lambda x: _functional().leaky_relu(x),
    "linear": lambda x: x,
    "mish": lambda x: _functional().mish(x),
    "relu": lambda x: x.relu(),
    "relu2": lambda x: x.relu().square(),
    "relu6": lambda x: _functional().relu6(x),
    "sigmoid": lambda x: x.sigmoid(),
    "silu": lambda x: _functional().silu(x),
    "swish": lambda x: _functional().silu(x),
    "sqrtsoftplus": lambda x: _functional().softplus(x).sqrt(),
    "tanh": lambda x: x.tanh(),
}
