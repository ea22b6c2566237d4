"""Values as short text, for reports: a learner reads one line, not a dump."""

from __future__ import annotations

from typing import Any

MAX_CHARS = 240
CONFIG_KEYS = (
    "num_hidden_layers", "n_layer", "num_attention_heads", "n_head", "num_key_value_heads", "num_kv_heads",
    "multi_query", "new_decoder_architecture", "hidden_size", "head_dim", "v_head_dim", "kv_lora_rank",
    "qk_rope_head_dim", "use_sliding_window", "sliding_window", "max_window_layers", "layer_types",
    "num_kv_shared_layers", "swa_num_key_value_heads", "per_layer_config",
)  # fmt: skip


def show(value: Any, limit: int = MAX_CHARS) -> str:
    """`value` in at most `limit` characters; arrays and tensors with dtype and shape, configs by their KV fields."""
    kind = type(value)  # looked up on the class: an object of the learner's is asked nothing
    if hasattr(kind, "to_diff_dict") and hasattr(kind, "model_type"):
        text = _show_config(value)
    elif hasattr(kind, "dtype") and hasattr(kind, "shape"):
        text = _show_array(value)
    elif kind in (list, tuple) and value:
        parts = [show(item, limit) for item in value[:64]]
        inner = ", ".join(_run_lengths(parts)) + (", …" if len(value) > 64 else "")
        text = f"[{inner}]" if kind is list else f"({inner}{',' if len(value) == 1 else ''})"
    elif kind is int and abs(value) >= 10_000:
        text = f"{value:,}"
    else:
        text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def show_call(name: str, args: tuple, kwargs: dict[str, Any]) -> str:
    """A call as one would type it: `name(1, 2, bits=8)`."""
    parts = [show(arg) for arg in args] + [f"{key}={show(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(parts)})"


def _show_config(config: Any) -> str:
    fields = config.to_dict()
    text = fields.get("text_config")
    if isinstance(text, dict):
        fields = {**text, **{key: value for key, value in fields.items() if key != "text_config"}}
    shown = [f"{key}={show(fields[key], 90)}" for key in CONFIG_KEYS if fields.get(key) is not None]
    return f"{type(config).__name__}({', '.join(shown)})"


def _show_array(value: Any) -> str:
    shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
    if len(shape) == 0:
        return f"{value.item()!r} ({dtype})"
    flat = value.reshape(-1)[:8].tolist()
    numbers = ", ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in flat)
    more = ", …" if _size(shape) > len(flat) else ""
    return f"[{numbers}{more}] ({dtype}, shape {list(shape)})"


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _run_lengths(parts: list[str]) -> list[str]:
    """Three or more equal neighbours become `x × n`, so a list of 80 equal layers stays readable."""
    out: list[str] = []
    start = 0
    for i in range(1, len(parts) + 1):
        if i == len(parts) or parts[i] != parts[start]:
            count = i - start
            out += [f"{parts[start]} × {count}"] if count >= 3 else parts[start:i]
            start = i
    return out
