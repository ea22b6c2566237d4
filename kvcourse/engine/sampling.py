"""From logits to tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kvcourse.engine.request import Request


def sample(logits: Tensor, requests: Sequence[Request]) -> list[int]:
    """One token for each request from its row of logits: the likeliest, or one drawn at the request's temperature."""
    tokens = logits.argmax(-1).tolist()
    for index, request in enumerate(requests):
        if request.temperature > 0:
            tokens[index] = _draw(logits[index], request)
    return tokens


def _draw(logits: Tensor, request: Request) -> int:
    """A new generator for every token, from seed and position: preemption and company change nothing."""
    generator = torch.Generator(logits.device).manual_seed(request.seed * 1_000_003 + request.num_tokens)
    chances = torch.softmax(logits.float() / request.temperature, dim=-1)
    return int(torch.multinomial(chances, 1, generator=generator))
