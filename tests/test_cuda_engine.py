"""Kernels as the engine's attention: the tokens are those of Transformers' generate, on each device there is."""

from __future__ import annotations

import copy

import pytest
import torch
from cuda_attention import KernelAttention
from engine_helpers import generate, random_model, tokens

from kvcourse.engine import Engine
from kvcourse.engine.scheduler import schedule_chunked

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")),
]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_tokens_through_kernels_equal_generate(device):
    model = random_model()
    there = copy.deepcopy(model).to(device) if device != "cpu" else model
    engine = Engine(
        there, num_blocks=32, block_size=16, budget=24, scheduler=schedule_chunked, attention=KernelAttention(32, 16)
    )
    prompts = [tokens(37, seed=1), [7], tokens(18, seed=2)]
    requests = [engine.request(engine.add_request(prompt, 6)) for prompt in prompts]
    while engine.has_work:
        engine.step()
    for request, prompt in zip(requests, prompts, strict=True):
        assert request.error is None and request.output == generate(model, prompt, 6)[0]
