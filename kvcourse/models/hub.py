"""Models of the Hugging Face hub, as far as the engine can run them: decoders of the Llama type with full attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcourse.tasks.course import UserError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

LLAMA_TYPE = ("llama", "mistral", "qwen2", "qwen3", "smollm3")  # SmolLM 1 and 2 call themselves llama


def load_hub(name: str, dtype: str = "float32") -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model with the hub id `name` (or in that folder) and its tokenizer; downloads with the hub's progress bars.

    UserError, one sentence, when there is no such model, no connection, or no support for its architecture.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    try:
        config = AutoConfig.from_pretrained(name)
        check_architecture(config, name)
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModelForCausalLM.from_pretrained(name, config=config, dtype=dtype)
    except (OSError, ValueError, ImportError) as error:  # what Transformers raises for all that can be missing
        raise UserError(_sentence(name, error)) from error
    return model, tokenizer


def check_architecture(config: PretrainedConfig, name: str | None = None) -> None:
    """UserError with the reason when the engine cannot run a model with this config."""
    reason = unsupported(config)
    if reason:
        raise UserError(f"The engine cannot run {name or config.model_type}: {reason}.")


def unsupported(config: PretrainedConfig) -> str | None:
    """Why the engine cannot run such a model: it needs plain keys and values of all tokens in all layers."""
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    if config.is_encoder_decoder:
        return "it is an encoder with a decoder, and the engine runs decoders alone"
    if getattr(config, "kv_lora_rank", None) is not None:
        return "it caches one latent vector (MLA) in place of keys and values"
    if "sliding_attention" in kinds or window is not None:
        return f"it has sliding-window attention ({window} tokens), and the engine keeps all tokens"
    if others := sorted(kinds - {"full_attention"}):
        return f"it has layers of the kind {', '.join(others)}, and the engine runs full attention"
    if config.model_type not in LLAMA_TYPE:
        return f"its architecture {config.model_type!r} is not one of {', '.join(LLAMA_TYPE)}"
    return None


def _sentence(name: str, error: Exception) -> str:
    text = str(error)
    if "not a valid model identifier" in text:
        why = "the hub has no model with this name"
    elif "gated" in text or "restricted" in text:
        why = "the hub wants you to log in and accept its terms first"
    elif "connect" in text or "offline" in text.lower():
        why = "it is not on this machine and the hub cannot be reached"
    else:
        why = text.strip().splitlines()[0].rstrip(".")
    return f"The model {name!r} cannot be loaded: {why}. `random` and `recall` are always here."
