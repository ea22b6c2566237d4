"""The engine's greedy tokens equal those of Transformers' `generate`, for every combination of sockets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from engine_helpers import VOCAB, assert_exact, generate, ragged_prompts, random_model, serve, tokens

from kvcourse.engine import Engine
from kvcourse.engine.blocks import PlainAllocator
from kvcourse.engine.reference import MemoryTier, PrefixCache
from kvcourse.engine.scheduler import schedule_chunked, schedule_whole
from kvcourse.models.load import load_model
from kvcourse.models.recall_task import recall_prompt
from kvcourse.tasks.course import UserError
from kvcourse.workload.prompts import chats

CACHES = {"plain": PlainAllocator, "prefix": PrefixCache}
SCHEDULERS = {"whole": schedule_whole, "chunked": schedule_chunked}
TIERS = {"no tiers": lambda: None, "write back": MemoryTier, "write through": lambda: MemoryTier(write_through=True)}
POOL_TOKENS = {"ample": 1536, "tight": 112}  # the longest request needs 107


def engine(model, cache, scheduler, tiers, block_size, budget, pool, **kwargs) -> Engine:
    return Engine(
        model,
        num_blocks=POOL_TOKENS[pool] // block_size,
        block_size=block_size,
        budget=budget,
        prefix_cache=CACHES[cache],
        scheduler=SCHEDULERS[scheduler],
        tiers=TIERS[tiers](),
        **kwargs,
    )


@pytest.mark.parametrize(
    ("cache", "scheduler", "tiers", "block_size", "budget", "pool"),
    [
        ("plain", "whole", "no tiers", 16, 8192, "ample"),
        ("plain", "whole", "no tiers", 1, 8192, "tight"),
        ("plain", "chunked", "no tiers", 4, 16, "tight"),
        ("plain", "chunked", "write back", 16, 7, "tight"),
        ("plain", "whole", "write through", 4, 50, "ample"),
        ("prefix", "whole", "no tiers", 16, 8192, "ample"),
        ("prefix", "whole", "no tiers", 4, 8192, "tight"),
        ("prefix", "whole", "write back", 16, 8192, "tight"),
        ("prefix", "chunked", "no tiers", 1, 64, "tight"),
        ("prefix", "chunked", "no tiers", 16, 2, "ample"),
        ("prefix", "chunked", "write back", 4, 7, "tight"),
        ("prefix", "chunked", "write through", 16, 16, "tight"),
    ],
)
def test_tokens_equal_generate(cache, scheduler, tiers, block_size, budget, pool):
    model = random_model()
    requests = serve(engine(model, cache, scheduler, tiers, block_size, budget, pool), ragged_prompts())
    assert_exact(model, requests)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cache", "scheduler", "tiers", "block_size", "budget", "pool"),
    itertools.product(CACHES, SCHEDULERS, TIERS, (1, 4, 16), (3, 40, 8192), POOL_TOKENS),
)
def test_tokens_equal_generate_in_every_combination(cache, scheduler, tiers, block_size, budget, pool):
    model = random_model()
    requests = serve(engine(model, cache, scheduler, tiers, block_size, budget, pool), ragged_prompts())
    assert_exact(model, requests)


def test_the_trained_model_recalls_the_same_answers_through_the_engine():
    model = load_model("recall").model
    rng = np.random.default_rng(0)
    prompts = [recall_prompt(rng, context=200)[0] for _ in range(3)]
    prompts.append(prompts[0][:100] + prompts[1][100:])
    running = engine(model, "prefix", "chunked", "write back", 16, 64, "ample")
    requests = serve(running, prompts, 6)
    assert_exact(model, requests, 6)
    assert requests[3].metrics.reused == 96


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_real_model_answers_real_text_as_generate_does(scheduler):
    try:
        loaded = load_model("smollm2")
    except UserError as error:
        pytest.skip(str(error))
    template = loaded.tokenizer.apply_chat_template
    chosen = chats(users=3, system_words=120)
    texts = [template(list(prompt.messages), add_generation_prompt=True, tokenize=False) for prompt in chosen]
    prompts = [loaded.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    running = engine(loaded.model, "prefix", scheduler, "write back", 16, 128, "ample")
    requests = serve(running, prompts, 12)
    assert_exact(loaded.model, requests, 12)
    assert running.metrics.reused > 0


def test_the_tight_pool_does_preempt():
    running = engine(random_model(), "prefix", "chunked", "no tiers", 4, 40, "tight")
    serve(running, ragged_prompts())
    assert running.metrics.preemptions > 0 and running.metrics.recomputed > 0


@pytest.mark.parametrize("cache", CACHES)
def test_a_second_run_is_as_exact_as_the_first(cache):
    model = random_model()
    running = engine(model, cache, "whole", "no tiers", 16, 8192, "ample")
    first = serve(running, ragged_prompts())
    computed = running.metrics.computed
    second = serve(running, ragged_prompts())
    assert_exact(model, first + second)
    assert (running.metrics.computed < 2 * computed) == (cache == "prefix")


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 64])
def test_a_prompt_that_is_cached_to_its_last_block_leaves_one_token_to_compute(length):
    model = random_model()
    running = engine(model, "prefix", "whole", "no tiers", 16, 8192, "ample")
    first, second = (serve(running, [tokens(length, seed=length)], 5)[0] for _ in range(2))
    assert_exact(model, [first, second], 5)
    assert second.metrics.reused == (length - 1) // 16 * 16


def test_evicted_blocks_come_back_from_the_tier():
    model = random_model()
    running = engine(model, "prefix", "whole", "write back", 4, 8192, "tight")
    first = tokens(80, seed=3)
    serve(running, [first])
    serve(running, [tokens(96, seed=4)])  # pushes the first one out
    again = serve(running, [first])[0]
    assert_exact(model, [again])
    assert again.metrics.loaded[1] > 0
    assert again.metrics.reused + again.metrics.loaded[1] == 76
    assert again.metrics.computed == 4 + 11


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_aborts_in_mid_flight_disturb_nobody(scheduler):
    model = random_model()
    running = engine(model, "prefix", scheduler, "no tiers", 4, 40, "tight")
    prompts = ragged_prompts()
    ids = [running.add_request(prompt, 12, keep_logits=True) for prompt in prompts]
    for victim in (1, 0, 8, 6):
        for _ in range(3):
            running.step()
        running.abort(ids[victim])
        running.check()
    running.run()
    running.check()
    assert running.request(ids[0]).finish_reason == "aborted"
    assert_exact(model, [running.request(i) for i in ids if running.request(i).finish_reason != "aborted"])


def test_an_end_token_stops_like_generate():
    model = random_model()
    prompt = tokens(20, seed=5)
    free, _ = generate(model, prompt, 12)
    stop = free[4]
    want, _ = generate(model, prompt, 12, eos=stop)
    running = Engine(model)
    for eos in (stop, [stop], {stop, VOCAB - 1}):
        running.add_request(prompt, 12, eos=eos)
    running.add_request(prompt, 12, eos=())
    assert list(running.run().values()) == [want, want, want, free]
    assert [request.finish_reason for request in running.finished.values()] == ["eos"] * 3 + ["length"]


def test_the_models_own_end_token_is_the_default():
    model = random_model()
    prompt = tokens(20, seed=5)
    free, _ = generate(model, prompt, 12)
    before = model.generation_config.eos_token_id
    model.generation_config.eos_token_id = [free[2], 1]
    try:
        running = Engine(model)
        running.add_request(prompt, 12)
        assert running.run() == {0: free[: free.index(free[2]) + 1]}
    finally:
        model.generation_config.eos_token_id = before


def test_sampling_depends_on_the_seed_alone():
    model = random_model()
    prompts = ragged_prompts()

    def draw(pool: str, scheduler: str, seed: int) -> list[list[int]]:
        running = engine(model, "prefix", scheduler, "no tiers", 4, 40, pool)
        return [r.output for r in serve(running, prompts[:4], temperature=0.9, seed=seed)]

    first = draw("ample", "whole", seed=1)
    assert first == draw("tight", "chunked", seed=1)
    assert first != draw("ample", "whole", seed=2)
    assert first != [generate(model, prompt, 12)[0] for prompt in prompts[:4]]
    hot = serve(Engine(model), prompts[:1], temperature=1e6)[0].output
    assert len(set(hot)) > 6, "nearly uniform draws of 1,024 tokens"


def test_half_precision_is_near():
    model = random_model(seed=7).to(torch.bfloat16)
    running = engine(model, "prefix", "chunked", "no tiers", 16, 40, "ample")
    for request in serve(running, ragged_prompts()[:4], 4):
        _, logits = generate(model, request.tokens[: request.num_prompt], 4)
        assert (request.first_logits - logits).abs().max() < 0.05 * logits.abs().max()
