"""Real models by name: their Transformers configs, with the source of the figures.

Only what decides the size of a KV cache is given; the other fields keep the defaults of the config class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Model:
    """A config class of Transformers and the fields in which the model differs from its defaults."""

    name: str
    config_class: str
    source: str
    fields: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)  # of the decoder inside a multimodal config


def model_config(name: str) -> PretrainedConfig:
    """A fresh config of the model called `name`, for example "llama-3-8b"; KeyError lists the names."""
    import transformers

    models = {model.name: model for model in MODELS}
    if name not in models:
        raise KeyError(f"no model {name!r}; there are {', '.join(models)}")
    model = models[name]
    fields = dict(model.fields)
    if model.text:
        fields["text_config"] = dict(model.text)
    return getattr(transformers, model.config_class)(**fields)


def catalog() -> tuple[str, ...]:
    """The names that `model_config` knows."""
    return tuple(model.name for model in MODELS)


def _shape(layers: int, hidden: int, heads: int, kv_heads: int, **more: Any) -> dict[str, Any]:
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    return sizes | {"num_key_value_heads": kv_heads} | more


def _every(period: int, layers: int, other: str = "sliding_attention") -> list[str]:
    """Every `period`-th layer has full attention."""
    return [other if (i + 1) % period else "full_attention" for i in range(layers)]


MODELS = (
    # One shape in all layers.
    Model("gpt-2", "GPT2Config", "defaults of GPT2Config"),
    Model("llama-3-8b", "LlamaConfig", "meta-llama/Meta-Llama-3-8B config.json", _shape(32, 4096, 32, 8)),
    Model("llama-3-70b", "LlamaConfig", "meta-llama/Meta-Llama-3-70B config.json", _shape(80, 8192, 64, 8)),
    Model("qwen3-0.6b", "Qwen3Config", "Qwen/Qwen3-0.6B config.json", _shape(28, 1024, 16, 8, head_dim=128)),
    Model("qwen3-32b", "Qwen3Config", "Qwen/Qwen3-32B config.json", _shape(64, 5120, 64, 8, head_dim=128)),
    Model("phi-3-mini", "Phi3Config", "defaults of Phi3Config"),
    Model("mixtral-8x7b", "MixtralConfig", "defaults of MixtralConfig"),
    # One KV head for all query heads, and fields with other names.
    Model("falcon-7b", "FalconConfig", "defaults of FalconConfig"),
    Model(
        "falcon-40b",
        "FalconConfig",
        "tiiuae/falcon-40b config.json",
        {"num_hidden_layers": 60, "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8}
        | {"new_decoder_architecture": True},
    ),
    Model(
        "starcoder",
        "GPTBigCodeConfig",
        "bigcode/starcoder config.json",
        {"n_layer": 40, "n_embd": 6144, "n_head": 48, "n_positions": 8192, "multi_query": True},
    ),
    # A window that is named but not used, and a window in all layers.
    Model(
        "qwen2.5-7b",
        "Qwen2Config",
        "Qwen/Qwen2.5-7B config.json",
        _shape(28, 3584, 28, 4, use_sliding_window=False, sliding_window=131072, max_window_layers=28),
    ),
    Model("mistral-7b-v0.1", "MistralConfig", "defaults of MistralConfig"),
    # Sliding and full layers in turns.
    Model("gemma-2-2b", "Gemma2Config", "defaults of Gemma2Config"),
    Model("gemma-2-9b", "Gemma2Config", "google/gemma-2-9b config.json", _shape(42, 3584, 16, 8, head_dim=256)),
    Model(
        "gemma-3-1b",
        "Gemma3TextConfig",
        "google/gemma-3-1b-it config.json",
        _shape(26, 1152, 4, 1, head_dim=256, sliding_window=512),
    ),
    Model(
        "gemma-3-12b",
        "Gemma3Config",
        "google/gemma-3-12b-it config.json",
        text=_shape(48, 3840, 16, 8, head_dim=256, sliding_window=1024),
    ),
    Model(
        "gemma-3-27b",
        "Gemma3Config",
        "google/gemma-3-27b-it config.json",
        text=_shape(62, 5376, 32, 16, head_dim=128, sliding_window=1024),
    ),
    Model("gpt-oss-20b", "GptOssConfig", "openai/gpt-oss-20b config.json", {"num_hidden_layers": 24}),
    Model(
        "command-r7b",
        "Cohere2Config",
        "CohereLabs/c4ai-command-r7b-12-2024 config.json",
        _shape(32, 4096, 32, 8, sliding_window=4096, layer_types=_every(4, 32)),
    ),
    Model("llama-4-scout", "Llama4TextConfig", "defaults of Llama4TextConfig"),
    # Layers of different shape, and layers that share the cache of others.
    Model(
        "gemma-4-31b",
        "Gemma4TextConfig",
        "google/gemma-4-31B config.json",
        _shape(60, 5376, 32, 16, head_dim=256, sliding_window=1024, layer_types=_every(6, 60), attention_k_eq_v=True)
        | {"num_global_key_value_heads": 4, "global_head_dim": 512, "hidden_size_per_layer_input": 0},
    ),
    Model(
        "gemma-4-e2b",
        "Gemma4TextConfig",
        "google/gemma-4-E2B config.json",
        _shape(35, 1536, 8, 1, head_dim=256, sliding_window=512, layer_types=_every(5, 35))
        | {"global_head_dim": 512, "num_kv_shared_layers": 20},
    ),
    Model("gemma-3n-e4b", "Gemma3nTextConfig", "defaults of Gemma3nTextConfig"),
    Model(
        "mimo-v2.5",
        "MiMoV2FlashConfig",
        "XiaomiMiMo/MiMo-V2.5 config.json",
        _shape(48, 4096, 64, 4, head_dim=192, v_head_dim=128, sliding_window=128, swa_num_key_value_heads=8),
    ),
    # One latent vector in place of keys and values.
    Model(
        "deepseek-v2",
        "DeepseekV2Config",
        "deepseek-ai/DeepSeek-V2 config.json",
        _shape(60, 5120, 128, 128, kv_lora_rank=512, qk_rope_head_dim=64, num_experts_per_tok=6),
    ),
    Model("deepseek-v3", "DeepseekV3Config", "defaults of DeepseekV3Config"),
    # Most layers keep a state of constant size.
    Model("jamba-v0.1", "JambaConfig", "defaults of JambaConfig"),
    Model("qwen3-next-80b", "Qwen3NextConfig", "defaults of Qwen3NextConfig"),
    Model("qwen3.5-9b", "Qwen3_5Config", "Qwen/Qwen3.5-9B config.json", text=_shape(32, 4096, 16, 4, head_dim=256)),
    Model(
        "bamba-9b",
        "BambaConfig",
        "ibm-ai-platform/Bamba-9B config.json",
        _shape(32, 4096, 32, 8, attn_layer_indices=[9, 18, 27], mamba_d_state=128),
    ),
    Model(
        "falcon-h1-0.5b",
        "FalconH1Config",
        "tiiuae/Falcon-H1-0.5B-Base config.json",
        _shape(36, 1024, 8, 2, head_dim=64, mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64, mamba_d_state=128),
    ),
    Model(
        "lfm2-1.2b",
        "Lfm2Config",
        "LiquidAI/LFM2-1.2B config.json",
        _shape(16, 2048, 32, 8)
        | {"layer_types": ["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)]},
    ),
)
