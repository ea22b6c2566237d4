"""Random model shapes for hidden tests."""

from __future__ import annotations

from random import Random
from typing import Any

KINDS = ("sliding_attention", "full_attention")


def attention(rng: Random, *without: str, **more: Any) -> dict[str, Any]:
    """Random layers, heads and head dimension, where every shortcut is right: one KV head per query head, and a head
    dimension of hidden size / heads. Each property then departs from that in one way."""
    heads, head_dim = rng.choice((6, 10, 12, 14)), rng.choice((8, 12, 20, 24))
    shape = {"num_hidden_layers": rng.randint(3, 7), "hidden_size": heads * head_dim, "num_attention_heads": heads}
    shape |= {"num_key_value_heads": heads, "head_dim": head_dim} | more
    return {name: value for name, value in shape.items() if name not in without}


def build(config_class: str, **fields: Any) -> Any:
    import transformers

    return getattr(transformers, config_class)(**fields)


def mixed(rng: Random, layers: int) -> list[str]:
    """Sliding and full layers in random order, both kinds present, the last one full."""
    return [rng.choice(KINDS) for _ in range(layers - 2)] + list(KINDS)


def sliding(rng: Random) -> Any:
    """A model with a window of 100 to 199 tokens in every layer."""
    return build("MistralConfig", **attention(rng, sliding_window=rng.randint(100, 199)))


def hybrid(rng: Random) -> Any:
    """A model with attention in every second layer and a constant state in the others."""
    return build("JambaConfig", **attention(rng, num_hidden_layers=6, attn_layer_period=2, attn_layer_offset=1))
