"""What a Transformers cache really holds: an oracle for the arithmetic of cache sizing.

The model keeps its true layers, KV heads, head dimensions, windows and state shapes. What never reaches the cache
(hidden size, experts, vocabulary) is cut down, so that an 80-layer model runs on a laptop in about a second.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

DTYPES = {16: "bfloat16", 32: "float32"}
WINDOW_FIELDS = ("sliding_window", "attention_chunk_size")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads")
SMALL = {
    "intermediate_size": 32,
    "intermediate_size_mlp": 32,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "ffn_hidden_size": 32,
    "n_inner": 32,
    "vocab_size": 64,
    "vocab_size_per_layer_input": 64,
    "hidden_size_per_layer_input": 8,
    "laurel_rank": 8,
    "num_experts": 2,
    "num_local_experts": 2,
    "n_routed_experts": 2,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 1,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "mamba_dt_rank": 4,
    "mamba_chunk_size": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def measured_cache_bytes(config: PretrainedConfig, tokens: int, bits: int = 16, window: int | None = None) -> list[int]:
    """Bytes that the cache of each layer holds after one forward pass over `tokens` tokens.

    `window` replaces the window of sliding layers, so that a short prompt can reach beyond it. Convention of
    Transformers: a sliding layer keeps the last `window - 1` tokens, since the next token brings its own key and value;
    the arithmetic of the course (and of engines) counts `window`. bits: 16 (bfloat16) or 32 (float32).
    """
    import torch
    from transformers import AutoModelForCausalLM

    small = small_config(config, window)
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # random weights that leave the caller's seed alone
        model = AutoModelForCausalLM.from_config(small, dtype=getattr(torch, DTYPES[bits])).eval()
        output = model(input_ids=torch.arange(tokens).reshape(1, tokens) % SMALL["vocab_size"], use_cache=True)
    cache = output.cache if getattr(output, "cache", None) is not None else output.past_key_values
    held = [sum(tensor.numel() * tensor.element_size() for tensor in _held(layer)) for layer in cache.layers]
    return held + [0] * (small.num_hidden_layers - len(held))  # layers that share another's cache may have no entry


def small_config(config: PretrainedConfig, window: int | None = None) -> PretrainedConfig:
    """A copy of the decoder's config whose model is tiny and whose cache has the true shape."""
    config = config.get_text_config(decoder=True)
    fields = config.to_dict()
    fields |= {name: value for name, value in SMALL.items() if fields.get(name) is not None}
    if window is not None:
        fields |= {name: window for name in WINDOW_FIELDS if fields.get(name) is not None}
    return type(config).from_dict(fields | _heads(config, fields))


def _heads(config: PretrainedConfig, fields: dict[str, Any]) -> dict[str, Any]:
    """As few query heads as the KV heads allow, and a hidden size that leaves head dimension and states as they are."""
    layers = list(config.per_layer_config)
    head_dim = getattr(layers[0], "head_dim", None) or config.hidden_size // config.num_attention_heads
    hidden, heads = 64, math.lcm(*filter(None, (getattr(layer, name, None) for layer in layers for name in KV_HEADS)))
    small = {"head_dim": head_dim}
    if "hidden_size" in config.attribute_map or config.model_type == "falcon":  # head_dim is hidden_size / heads
        heads = 2 if getattr(config, "multi_query", False) else config.num_attention_heads
        hidden, small = heads * head_dim, {}
    if getattr(config, "kv_lora_rank", None) is not None:
        heads = small["num_key_value_heads"] = 2
    if hasattr(config, "conv_L_cache"):  # its state is as wide as the model
        hidden = config.hidden_size
    if hasattr(config, "mamba_expand"):
        small["mamba_expand"] = config.mamba_expand * config.hidden_size // hidden
    names = [config.attribute_map.get(name, name) for name in ("hidden_size", "num_attention_heads")]
    return small | dict(zip(names, (hidden, heads), strict=True))


def _held(layer: Any) -> list[torch.Tensor]:
    """Keys, values and constant states of one cache layer; a layer that shares another's cache holds nothing."""
    states = [
        state for name in ("conv_states", "recurrent_states") for state in (getattr(layer, name, None) or {}).values()
    ]
    tensors = [getattr(layer, "keys", None), getattr(layer, "values", None), *states]
    return [tensor for tensor in tensors if tensor is not None]
