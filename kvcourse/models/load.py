"""`load_model(name)`: the three models of the course, and any Llama-type model of the Hugging Face hub.

- `random`: random weights, built in memory; token equality on it proves that a cache is exact.
- `recall`: trained here and bundled; a damaged cache shows as wrong answers.
- `smollm2`: SmolLM2-135M-Instruct; real text. `python -m kvcourse.models fetch smollm2` fetches it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvcourse.tasks.course import UserError, did_you_mean

if TYPE_CHECKING:
    import torch
    from transformers import LlamaConfig, PreTrainedModel, PreTrainedTokenizerBase

NAMES = ("random", "recall", "smollm2")
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model in evaluation mode, and its tokenizer."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def config(self) -> LlamaConfig:
        return self.model.config


def load_model(name: str, device: str | torch.device = "cpu", dtype: str | torch.dtype | None = None) -> LoadedModel:
    """Load `random`, `recall`, `smollm2`, a hub id such as "Qwen/Qwen3-0.6B", or a folder in the hub's format.

    dtype: "float32" (the default: only there are tokens exact), "float16" or "bfloat16". UserError, one sentence, for
    an unknown name, device or dtype, for weights that are not here, and for architectures the engine cannot run.
    """
    dtype_name = _dtype_name(dtype)
    target = _device(device)
    import torch

    if name == "random":
        from kvcourse.models.random_llama import byte_tokenizer, random_llama

        model, tokenizer = random_llama(), byte_tokenizer()
    elif name == "recall":
        from kvcourse.models.recall import load_recall, recall_tokenizer

        model, tokenizer = load_recall(), recall_tokenizer()
    elif name == "smollm2":
        from kvcourse.models.smollm2 import load_smollm2

        model, tokenizer = load_smollm2(dtype_name)
    elif isinstance(name, str) and ("/" in name or (name and Path(name).is_dir())):
        from kvcourse.models.hub import load_hub

        model, tokenizer = load_hub(name, dtype_name)
    else:
        hub = 'A hub id has the form "owner/name".'
        raise UserError(f"There is no model {name!r}. {did_you_mean(str(name), NAMES)} {hub}")
    return LoadedModel(name, model.to(device=target, dtype=getattr(torch, dtype_name)).eval(), tokenizer)


def _dtype_name(dtype: str | torch.dtype | None) -> str:
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise UserError(f"There is no dtype {name!r} for a model here. Known names: {', '.join(DTYPES)}.")
    return name


def _device(device: str | torch.device) -> torch.device:
    import torch

    try:
        target = torch.device(device)
    except (RuntimeError, TypeError):
        raise UserError(f'There is no device {str(device)!r}; use "cpu", "cuda" or "cuda:1".') from None
    try:
        torch.empty(1, device=target)
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch built without CUDA
        raise UserError(f"The device {str(device)!r} cannot be used here: {str(error).splitlines()[0]}.") from None
    return target
