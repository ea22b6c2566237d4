"""Runs an unmodified Transformers model over the pool, through its attention interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from kvcourse.engine.layout import StepLayout
from kvcourse.engine.pool import KVPool
from kvcourse.engine.sockets import Attention, SocketError

IMPLEMENTATION = "kvcourse_paged"


class Runner(Protocol):
    """What the engine asks of a model: its shape, and logits [len(sample), vocab_size] for the tokens at `sample`."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    context: int
    eos: frozenset[int]
    dtype: torch.dtype
    device: torch.device

    def forward(
        self, input_ids: Tensor, layout: StepLayout, sample: Tensor, pool: KVPool, attention: Attention
    ) -> Tensor: ...


@dataclass
class _Step:
    """Travels through the model's forward as a keyword to every attention layer."""

    pool: KVPool
    attention: Attention
    layout: StepLayout
    num_calls: int = 0


class TransformersRunner:
    """A Llama-type model of Transformers. ValueError if not all of its layers are full attention."""

    def __init__(self, model: Any) -> None:
        config = model.config
        check_architecture(model)
        _register()
        self.model = model.eval()
        # Submodels may hold a config of their own; the layers ask theirs which attention to call.
        configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
        self.configs = list(configs.values())
        self.num_layers = config.num_hidden_layers
        self.num_kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.vocab_size = config.vocab_size
        self.context = getattr(config, "max_position_embeddings", None) or 1 << 20
        self.eos = _eos_tokens(model)
        parameter = next(model.parameters())
        self.dtype, self.device = parameter.dtype, parameter.device

    def forward(
        self, input_ids: Tensor, layout: StepLayout, sample: Tensor, pool: KVPool, attention: Attention
    ) -> Tensor:
        step = _Step(pool, attention, layout)
        with torch.inference_mode(), self._attached():
            out = self.model(
                input_ids=input_ids[None],
                position_ids=layout.positions[None],
                use_cache=False,  # the pool is the cache
                logits_to_keep=sample,  # only rows that end get logits
                kvcourse_step=step,
            )
        if step.num_calls != self.num_layers:
            calls = f"{step.num_calls} calls for {self.num_layers} layers"
            raise ValueError(f"{type(self.model).__name__} did not send every layer through our attention: {calls}.")
        return out.logits[0]

    @contextmanager
    def _attached(self) -> Iterator[None]:
        """Our attention is set for one forward only: the setting belongs to the model object, and others use it too.

        Set on the configs, not with `set_attn_implementation`, which walks through all modules.
        """
        before = [config._attn_implementation for config in self.configs]
        try:
            for config in self.configs:
                config._attn_implementation = IMPLEMENTATION
            yield
        finally:
            for config, name in zip(self.configs, before, strict=True):
                config._attn_implementation = name


def check_architecture(model: Any) -> None:
    """ValueError unless every layer of the model keeps plain keys and values of all tokens."""
    config, name = model.config, type(model).__name__
    kinds = getattr(config, "layer_types", None)
    others = sorted({kind for kind in kinds or () if kind != "full_attention"})
    problem = None
    if getattr(config, "is_encoder_decoder", False) or hasattr(config, "text_config"):
        problem = "it is more than a decoder of text"
    elif others:
        problem = f"it has {' and '.join(others)} layers"
    elif kinds is None and getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        problem = f"its layers have a sliding window of {config.sliding_window} tokens"
    elif getattr(config, "kv_lora_rank", None):
        problem = "its cache is a latent vector (MLA)"
    elif getattr(config, "num_kv_shared_layers", 0):
        problem = f"{config.num_kv_shared_layers} of its layers share keys and values"
    elif getattr(config, "attn_logit_softcapping", None):
        problem = "it caps attention logits"
    elif not getattr(model, "_supports_attention_backend", False):
        problem = "it does not use Transformers' attention interface"
    if problem:
        raise ValueError(f"The engine runs models with full attention in every layer; {name} is not one: {problem}.")


def _register() -> None:
    from transformers import AttentionInterface

    # No mask function is registered under this name: Transformers then builds no mask at all, and looks for no packed
    # sequences in the positions. The attention socket masks by itself.
    AttentionInterface.register(IMPLEMENTATION, _paged_attention)


def _paged_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    """Every layer calls it, with query [1, heads, T, head_dim], key and value [1, kv_heads, T, head_dim], rotated."""
    step: _Step = kwargs["kvcourse_step"]
    assert mask is None, "positions of several sequences stand in one row: a mask from outside cannot be right"
    step.num_calls += 1
    k_pool, v_pool = step.pool.layer(module.layer_idx)
    query, key, value = (x[0].transpose(0, 1).contiguous() for x in (query, key, value))  # [T, heads, head_dim]
    try:
        step.attention.write(key, value, k_pool, v_pool, step.layout.slot_mapping)
        out = step.attention.attend(query, k_pool, v_pool, step.layout, scaling)
    except Exception as error:
        where = f"layer {module.layer_idx} raised {type(error).__name__}"
        raise SocketError("attention", f"{where}: {error}") from error
    if not isinstance(out, Tensor) or out.shape != query.shape or out.dtype != query.dtype:
        got = f"{list(out.shape)} {out.dtype}" if isinstance(out, Tensor) else type(out).__name__
        raise SocketError("attention", f"attend gave {got}, a tensor {list(query.shape)} {query.dtype} is needed.")
    return out[None], None


def _eos_tokens(model: Any) -> frozenset[int]:
    """The tokens after which `generate` stops."""
    eos = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if eos is None:
        return frozenset()
    return frozenset([eos] if isinstance(eos, int) else eos)
