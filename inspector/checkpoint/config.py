"""The GPT-2 config: every key that changes the arithmetic is implemented or refused by name.

Keys, defaults and aliases follow transformers' `GPT2Config` (5.24). A key that is neither implemented, nor known to
leave the forward pass alone, nor at its default, is an error: a config that asks for something else must not load as
plain GPT-2.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, SourceError
from .activations import ACTIVATIONS, REFUSED

USED = {
    "n_layer", "n_head", "n_embd", "n_inner", "n_positions", "vocab_size", "activation_function", "layer_norm_epsilon",
    "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "tie_word_embeddings",
    "bos_token_id",
}
# Other names of the same keys: transformers' attribute_map.
ALIASES = {"hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head",
           "num_hidden_layers": "n_layer"}
# Keys that would change the arithmetic; only these values are GPT-2 as implemented here.
ONLY = {"add_cross_attention": (False, None), "pruned_heads": ({}, None), "quantization_config": (None,),
        "is_decoder": (False, True, None), "is_encoder_decoder": (False, None), "cross_attention_hidden_size": (None,)}
# Keys that never reach the arithmetic of an evaluation forward pass.
IGNORED = {
    "model_type", "architectures", "attn_pdrop", "embd_pdrop", "resid_pdrop", "summary_type", "summary_use_proj",
    "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "use_cache", "initializer_range",
    "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "task_specific_params",
    "transformers_version", "torch_dtype", "dtype", "_name_or_path", "name_or_path", "gradient_checkpointing",
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "tokenizer_class", "prefix",
    "output_attentions", "output_hidden_states", "return_dict", "use_return_dict", "torchscript", "use_bfloat16",
    "tf_legacy_loss", "predict_special_tokens", "_num_labels", "_attn_implementation_autoset", "attn_implementation",
    "_attn_implementation", "resid_dropout", "embd_dropout", "attn_dropout", "output_past", "auto_map",
    "chunk_size_feed_forward", "_commit_hash",
    "n_ctx",           # the size of old files' mask buffer; transformers takes the length from n_positions alone
    # generation settings that old configs carried
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
    "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
}
MOST_LAYERS = 10_000     # a larger number is a mistake, and would be a list of a million missing tensors


@dataclass(frozen=True)
class Config:
    """What the forward pass needs to know. Sizes are counts of elements; `d_head = d_model / n_head`."""

    n_layer: int
    n_head: int
    d_model: int
    d_mlp: int
    n_positions: int
    vocab_size: int
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    reorder_and_upcast_attn: bool = False
    tie_word_embeddings: bool = True
    bos_token_id: int | None = None        # as the file says; not always inside the vocabulary

    @property
    def d_head(self):
        """Width of one head's q, k, v and z."""
        return self.d_model // self.n_head

    def scale(self, layer):
        """The factor on q.k in `layer`: 1/sqrt(d_head), 1, and / (layer + 1), as the two switches say."""
        factor = self.d_head ** -0.5 if self.scale_attn_weights else 1.0
        return factor / (layer + 1) if self.scale_attn_by_inverse_layer_idx else factor


def _refuse(key, value, expected):
    raise ConfigError(f"config.json: {key} is {repr(value)[:80]}; expected {expected}")


def _whole(raw, key, default=None, most=None):
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most is not None and value > most):
        _refuse(key, value, "a whole number of at least 1" if most is None else f"a whole number from 1 to {most}")
    return value


def _switch(raw, key, default):
    value = raw.get(key, default)
    if not isinstance(value, bool):
        _refuse(key, value, "true or false")
    return value


def _activation(raw):
    value = raw.get("activation_function", "gelu_new")
    if not isinstance(value, str) or (value not in ACTIVATIONS and value not in REFUSED):
        _refuse("activation_function", value, "one of " + ", ".join(sorted(ACTIVATIONS)))
    if value in REFUSED:
        raise ConfigError(f"config.json: activation_function {value!r} has parameters of its own and is not supported; "
                          "expected one of " + ", ".join(sorted(ACTIVATIONS)))
    return value


def _epsilon(raw):
    value = raw.get("layer_norm_epsilon", 1e-5)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        _refuse("layer_norm_epsilon", value, "a number from 0 up to 1")
    return float(value)


def _bos(raw):
    value = raw.get("bos_token_id", 50256)
    if isinstance(value, bool) or not isinstance(value, int | None):
        _refuse("bos_token_id", value, "a whole number or null")
    return value


def _one_name_each(raw):
    """The dict with aliases under the one name used here. Raises ConfigError where two names disagree."""
    found = {key: value for key, value in raw.items() if key not in ALIASES}
    for alias, key in ALIASES.items():
        if alias in raw and found.setdefault(key, raw[alias]) != raw[alias]:
            raise ConfigError(f"config.json: {key} is {repr(found[key])[:80]} but {alias}, another name for it, is "
                              f"{repr(raw[alias])[:80]}; keep the right one")
    return found


def parse(raw):
    """A Config from the dict in `config.json`.

    Raises ConfigError naming the key: another model type, a switch or value outside GPT-2's arithmetic, an unknown key.
    """
    if not isinstance(raw, dict):
        raise ConfigError(f"config.json holds a {type(raw).__name__}; expected an object of keys")
    kind = raw.get("model_type", "gpt2")         # the oldest files do not say
    if kind != "gpt2":
        raise ConfigError(f"this checkpoint is a {repr(kind)[:80]} model; inspector reads GPT-2 (model_type 'gpt2') only")
    raw = _one_name_each(raw)
    for key, allowed in ONLY.items():
        if raw.get(key, allowed[0]) not in allowed:
            raise ConfigError(f"config.json: {key} = {repr(raw[key])[:80]} changes the arithmetic and is not supported; "
                              f"only {allowed[0]!r} is")
    if unknown := sorted(set(raw) - USED - IGNORED - set(ONLY)):
        raise ConfigError(f"config.json: unknown key(s) {', '.join(map(repr, unknown))[:500]}; they may change the "
                          "arithmetic, so the checkpoint is not loaded. Remove them if they do not")
    n_head, d_model = _whole(raw, "n_head", 12), _whole(raw, "n_embd", 768)
    if d_model % n_head:
        raise ConfigError(f"config.json: n_embd {d_model} is not a multiple of n_head {n_head}")
    return Config(
        n_layer=_whole(raw, "n_layer", 12, most=MOST_LAYERS),
        n_head=n_head,
        d_model=d_model,
        d_mlp=4 * d_model if raw.get("n_inner") is None else _whole(raw, "n_inner"),
        n_positions=_whole(raw, "n_positions", 1024),
        vocab_size=_whole(raw, "vocab_size", 50257),
        activation_function=_activation(raw),
        layer_norm_epsilon=_epsilon(raw),
        scale_attn_weights=_switch(raw, "scale_attn_weights", True),
        scale_attn_by_inverse_layer_idx=_switch(raw, "scale_attn_by_inverse_layer_idx", False),
        reorder_and_upcast_attn=_switch(raw, "reorder_and_upcast_attn", False),
        tie_word_embeddings=_switch(raw, "tie_word_embeddings", True),
        bos_token_id=_bos(raw),
    )


def read_json(path: Path):
    """What a JSON file holds. Raises SourceError when it cannot be read or is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not valid JSON: {error}") from error


def read(path: Path):
    """(Config, the raw dict) of a `config.json`. Raises SourceError as `read_json`, ConfigError as `parse`."""
    raw = read_json(path)
    return parse(raw), raw
