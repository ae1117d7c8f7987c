"""Every GPT-2 config key that changes the arithmetic is implemented, or refused by name."""

import json
import math

import pytest
import torch
from transformers import GPT2Config
from transformers.activations import ACT2CLS, ACT2FN

from inspector.checkpoint import config as configs
from inspector.checkpoint.activations import ACTIVATIONS, REFUSED
from inspector.errors import ConfigError, SourceError

from .models import GPT2_CONFIG, tiny_config


def raw(**changes):
    """The dict that transformers writes for the tiny model, with changes; a value of `...` takes the key away."""
    found = {**json.loads(tiny_config().to_json_string(use_diff=False)), **changes}
    return {key: value for key, value in found.items() if value is not ...}


# -- activations -----------------------------------------------------------------------------------------------------

def test_the_activations_are_all_of_transformers_that_have_no_parameters():
    learned = {name for name in ACT2CLS if any(True for _ in ACT2FN[name].parameters())}
    assert learned == set(REFUSED)
    assert set(ACT2CLS) - learned == set(ACTIVATIONS)
    assert len(ACTIVATIONS) == 22


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_each_activation_is_transformers_own_in_float64(name):
    x = torch.cat([torch.linspace(-12, 12, 4801, dtype=torch.float64), torch.linspace(-200, 200, 801, dtype=torch.float64),
                   torch.tensor([0.0, -0.0, 1e-300, -1e-12, 5e-324, 1e6, -1e6], dtype=torch.float64)])
    ours, theirs = ACTIVATIONS[name](x), ACT2FN[name](x)
    assert ours.dtype == torch.float64
    assert ((ours - theirs).abs() <= 4e-16 * x.abs()).all()          # seen: 2.2e-16, one rounding, in the gelu kind


def test_no_two_kinds_of_activation_are_the_same_function():
    # So that a name mapped to its neighbour's function would be seen above. These are one by definition.
    same = [{"gelu", "gelu_python"}, {"silu", "swish"},
            {"gelu_new", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"}]
    x = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    names = sorted(ACTIVATIONS)
    for one in names:
        for other in names:
            if one < other and not any({one, other} <= group for group in same):
                assert (ACT2FN[one](x) - ACT2FN[other](x)).abs().max() > 5e-13, (one, other)


def test_activations_by_hand():
    x = torch.tensor(1.0, dtype=torch.float64)
    assert ACTIVATIONS["gelu"](x).item() == pytest.approx(0.5 * (1 + math.erf(1 / math.sqrt(2))), abs=1e-15)
    assert ACTIVATIONS["gelu_new"](x).item() == pytest.approx(
        0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715)), abs=1e-15)
    assert ACTIVATIONS["relu2"](3 * x).item() == 9
    assert ACTIVATIONS["sqrtsoftplus"](x).item() == pytest.approx(math.sqrt(math.log(1 + math.e)), abs=1e-15)


# -- keys that are implemented ---------------------------------------------------------------------------------------

def test_the_hub_config_of_gpt2():
    c = configs.parse(json.loads(GPT2_CONFIG))
    assert (c.n_layer, c.n_head, c.d_model, c.d_head, c.d_mlp, c.n_positions, c.vocab_size) == (
        12, 12, 768, 64, 3072, 1024, 50257)
    assert (c.activation_function, c.layer_norm_epsilon, c.bos_token_id, c.tie_word_embeddings) == (
        "gelu_new", 1e-5, 50256, True)
    assert c.scale(0) == c.scale(11) == 1 / 8


def test_defaults_are_transformers_own():
    ours, theirs = configs.parse({}), GPT2Config()
    assert (ours.n_layer, ours.n_head, ours.d_model, ours.n_positions, ours.vocab_size) == (
        theirs.n_layer, theirs.n_head, theirs.n_embd, theirs.n_positions, theirs.vocab_size)
    assert ours.d_mlp == 4 * theirs.n_embd
    assert theirs.n_inner is None
    for key in ("activation_function", "layer_norm_epsilon", "scale_attn_weights", "scale_attn_by_inverse_layer_idx",
                "reorder_and_upcast_attn", "tie_word_embeddings", "bos_token_id"):
        assert getattr(ours, key) == getattr(theirs, key), key
    assert theirs.add_cross_attention is False


def test_every_key_transformers_knows_is_handled_here():
    known = set(GPT2Config().to_dict()) | set(json.loads(tiny_config().to_json_string(use_diff=False)))
    assert known <= configs.USED | configs.IGNORED | set(configs.ONLY)
    assert set(GPT2Config.attribute_map.items()) == set(configs.ALIASES.items())
    # The keys of GPT-2's own class, one by one: none may be waved through that changes a number.
    own = set(GPT2Config.__annotations__)
    harmless = {"resid_pdrop", "embd_pdrop", "attn_pdrop", "initializer_range", "summary_type", "summary_use_proj",
                "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "use_cache", "eos_token_id",
                "pad_token_id"}
    assert own & configs.IGNORED == harmless
    assert own - harmless - {"add_cross_attention"} == configs.USED


def test_sizes_are_read():
    c = configs.parse(raw())
    assert (c.n_layer, c.n_head, c.d_model, c.d_mlp, c.n_positions, c.vocab_size, c.d_head) == (3, 4, 24, 50, 31, 97, 6)
    assert c.layer_norm_epsilon == 2e-3
    assert configs.parse(raw(n_inner=None)).d_mlp == 96


def test_scale_follows_both_switches():
    plain = configs.parse(raw())
    unscaled = configs.parse(raw(scale_attn_weights=False))
    by_layer = configs.parse(raw(scale_attn_by_inverse_layer_idx=True))
    both = configs.parse(raw(scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True))
    assert [plain.scale(i) for i in range(3)] == [6 ** -0.5] * 3
    assert [unscaled.scale(i) for i in range(3)] == [1.0] * 3
    assert [by_layer.scale(i) for i in range(3)] == [6 ** -0.5, 6 ** -0.5 / 2, 6 ** -0.5 / 3]
    assert [both.scale(i) for i in range(3)] == [1.0, 1 / 2, 1 / 3]


@pytest.mark.parametrize("key", ["reorder_and_upcast_attn", "tie_word_embeddings", "scale_attn_weights",
                                 "scale_attn_by_inverse_layer_idx"])
def test_switches_are_read(key):
    assert getattr(configs.parse(raw(**{key: True})), key) is True
    assert getattr(configs.parse(raw(**{key: False})), key) is False


@pytest.mark.parametrize(("alias", "key"), sorted(configs.ALIASES.items()))
def test_aliases_are_the_same_keys(alias, key):
    value = raw()[key]
    assert configs.parse(raw(**{key: ..., alias: value})) == configs.parse(raw())
    assert configs.parse(raw(**{alias: value})) == configs.parse(raw())
    with pytest.raises(ConfigError, match=f"{key} is {value} but {alias}.* is {2 * value}"):
        configs.parse(raw(**{alias: 2 * value}))


def test_n_ctx_is_not_the_number_of_positions():
    # transformers takes the length from n_positions alone; n_ctx is the size of old files' mask.
    assert configs.parse(raw(n_ctx=7)).n_positions == 31
    assert configs.parse(raw(n_positions=..., n_ctx=7)).n_positions == GPT2Config(n_ctx=7).n_positions == 1024


@pytest.mark.parametrize("key", ["bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id"])
@pytest.mark.parametrize("value", [None, -1, 97, 50256])
def test_token_ids_outside_the_vocabulary_do_not_stop_a_load(key, value):
    c = configs.parse(raw(**{key: value}))
    assert c.bos_token_id == (value if key == "bos_token_id" else 5)


# -- keys that are refused -------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("changes", "said"), [
    ({"activation_function": "prelu"}, "activation_function 'prelu' has parameters of its own"),
    ({"activation_function": "xielu"}, "activation_function 'xielu' has parameters of its own"),
    ({"activation_function": "gelu_nwe"}, "activation_function is 'gelu_nwe'.*gelu_new"),
    ({"activation_function": ["gelu"]}, "activation_function is"),
    ({"activation_function": None}, "activation_function is None"),
    ({"add_cross_attention": True}, "add_cross_attention = True"),
    ({"pruned_heads": {"0": [1]}}, "pruned_heads = .*'0': .1."),
    ({"is_encoder_decoder": True}, "is_encoder_decoder = True"),
    ({"quantization_config": {"bits": 8}}, "quantization_config"),
    ({"cross_attention_hidden_size": 8}, "cross_attention_hidden_size"),
    ({"model_type": "gpt_neo"}, "is a 'gpt_neo' model; inspector reads GPT-2"),
    ({"model_type": None}, "is a None model"),
    ({"model_type": ["gpt2"]}, "is a .'gpt2'. model"),
    ({"rotary_dim": 64}, "unknown key.* 'rotary_dim'"),
    ({"rotary_dim": 64, "alibi": True}, "'alibi', 'rotary_dim'"),
    ({"layer_norm_eps": 1e-6}, "unknown key.* 'layer_norm_eps'"),
    ({"n_head": 5}, "n_embd 24 is not a multiple of n_head 5"),
    ({"n_head": 0}, "n_head is 0; expected a whole number of at least 1"),
    ({"n_head": "4"}, "n_head is '4'"),
    ({"n_head": 4.0}, "n_head is 4.0"),
    ({"n_head": True}, "n_head is True"),
    ({"n_layer": None}, "n_layer is None"),
    ({"n_layer": -3}, "n_layer is -3"),
    ({"n_layer": 10 ** 9}, "n_layer is 1000000000; expected a whole number from 1 to 10000"),
    ({"n_inner": 0}, "n_inner is 0"),
    ({"n_inner": [50]}, "n_inner is"),
    ({"n_positions": 0}, "n_positions is 0"),
    ({"vocab_size": "many"}, "vocab_size is 'many'"),
    ({"vocab_size": "x" * 10 ** 6}, "vocab_size is 'xxx"),
    ({"layer_norm_epsilon": "1e-5"}, "layer_norm_epsilon is '1e-5'"),
    ({"layer_norm_epsilon": -1e-5}, "layer_norm_epsilon is -1e-05"),
    ({"layer_norm_epsilon": 1}, "layer_norm_epsilon is 1;"),
    ({"layer_norm_epsilon": math.nan}, "layer_norm_epsilon is nan"),
    ({"layer_norm_epsilon": True}, "layer_norm_epsilon is True"),
    ({"scale_attn_weights": 1}, "scale_attn_weights is 1; expected true or false"),
    ({"tie_word_embeddings": None}, "tie_word_embeddings is None"),
    ({"reorder_and_upcast_attn": "false"}, "reorder_and_upcast_attn is 'false'"),
    ({"bos_token_id": [5]}, "bos_token_id is"),
    ({"bos_token_id": False}, "bos_token_id is False"),
])
def test_refused_by_name(changes, said):
    with pytest.raises(ConfigError, match=said) as caught:
        configs.parse(raw(**changes))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("changes", [{"pruned_heads": {}}, {"pruned_heads": None}, {"add_cross_attention": None},
                                     {"is_decoder": True}, {"model_type": ...}, {"n_ctx": 31},
                                     {"task_specific_params": {"text-generation": {"max_length": 50}}}])
def test_old_keys_at_their_empty_values_load(changes):
    assert configs.parse(raw(**changes)) == configs.parse(raw())


@pytest.mark.parametrize("value", [[], "gpt2", 3, None, [{"n_layer": 3}]])
def test_a_config_that_is_no_object_is_refused(value):
    with pytest.raises(ConfigError, match=r"config\.json holds a .*; expected an object"):
        configs.parse(value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"{'n_layer': 3}", b"[" * 100_000,
                                  b'{"n_layer": ' + b"9" * 5000 + b"}", bytes(range(256))])
def test_a_config_that_is_no_json_is_one_error(tmp_path, data):
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"config\.json is not valid JSON"):
        configs.read(path)
