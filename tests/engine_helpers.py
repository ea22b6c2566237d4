"""What the engine's tests share: a random model whose tokens show every cache bug, its oracle, and ragged prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import torch
from transformers import LlamaForCausalLM

from kvcourse.engine import Engine
from kvcourse.models.random_llama import VOCAB, random_llama


@cache
def random_model(seed: int = 0) -> LlamaForCausalLM:
    """The course's random model: its greedy tokens change with nearly every damage to the cache."""
    torch.set_num_threads(1)
    return random_llama(seed)


_answers: dict[tuple, tuple[list[int], torch.Tensor]] = {}


def generate(model, prompt: Sequence[int], max_new_tokens: int, eos=None) -> tuple[list[int], torch.Tensor]:
    """Tokens and first-step logits of Transformers' own greedy `generate`, remembered. eos None: the model's own."""
    key = (id(model), tuple(prompt), max_new_tokens, eos)
    if key not in _answers:
        ids = torch.tensor([prompt])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            **({} if eos is None else {"eos_token_id": eos}),
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        _answers[key] = out.sequences[0, len(prompt) :].tolist(), out.logits[0][0].float()
    return _answers[key]


def tokens(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=count)


def ragged_prompts() -> list[list[int]]:
    """Shared prefixes, block-aligned ends, one token, a prompt twice, a prompt that is another one's prefix."""
    shared = tokens(70, seed=1)
    tails = [shared + tokens(length, seed=length) for length in (1, 5, 10, 26)]
    return [*tails, [7], shared[:32], shared[:16], tokens(33, seed=9), tails[1], [7, 8]]


def serve(engine: Engine, prompts: Sequence[Sequence[int]], max_new_tokens: int = 12, **kwargs) -> list:
    """All prompts through the engine, invariants checked after every step; the requests in order."""
    ids = [engine.add_request(prompt, max_new_tokens, keep_logits=True, **kwargs) for prompt in prompts]
    while engine.has_work:
        engine.step()
        engine.check()
    assert engine.blocks_in_use == 0
    return [engine.request(i) for i in ids]


def assert_exact(model, requests, max_new_tokens: int = 12) -> None:
    """Tokens equal those of `generate`, first-step logits agree within 1e-3."""
    for request in requests:
        want, logits = generate(model, request.tokens[: request.num_prompt], max_new_tokens)
        assert request.error is None
        assert request.output == want, f"request {request.id} differs"
        assert (request.first_logits - logits).abs().max() < 1e-3
