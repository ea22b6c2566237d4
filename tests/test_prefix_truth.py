"""The reference solution of lesson 2 against what others made: recorded traces, an oracle of block ids, real rotary
code, a second process, and the engine with a model.

The published traces are not part of the project. They are looked for in $KVCOURSE_TRACES, in ../shared/traces and among
the downloads; a test without its trace is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from engine_helpers import assert_exact, ragged_prompts, random_model, serve, tokens

from autograde.sources import script_path, solution_namespace
from kvcourse.engine import Engine
from kvcourse.engine.fake import FakeModel
from kvcourse.tasks.course import UserError, find_lesson
from kvcourse.workload import TINY, Trace, as_engine, generate, load_trace, replay_cache, replay_trace, truth
from kvcourse.workload.prompts import shared_prefix, weather

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "traces"
if BESIDE.is_dir():
    os.environ.setdefault("KVCOURSE_TRACES", str(BESIDE))

MOONCAKE = {"mooncake_conversation": truth.CONVERSATION, "mooncake_synthetic": truth.SYNTHETIC_MOONCAKE}
LESSON = find_lesson("prefix")
solved = SimpleNamespace(**solution_namespace(LESSON))


@cache
def published(name: str) -> Trace:
    try:
        return load_trace(name)
    except UserError as missing:
        pytest.skip(str(missing))


@cache
def generated(size: str) -> Trace:
    return generate(TINY) if size == "tiny" else generate()


def same_hits(trace: Trace, capacity: int, tokens_per_block: int = 1) -> int:
    """Hits of the whole trace, after every single request was found to have those of the oracle."""
    got = replay_cache(solved.PrefixCache(capacity, tokens_per_block), trace, tokens_per_block=tokens_per_block)
    want = replay_trace(as_engine(trace, "both")(capacity), trace)
    assert got.hits == want.hits and got.hit_tokens == want.hit_tokens
    return got.hit_blocks


# --- traces: the cache's own rule is "both" of as_engine: copies are kept, the older one is found


@pytest.mark.parametrize(
    ("name", "capacity"),
    [("mooncake_conversation", 10_000), ("mooncake_synthetic", 1_000), ("mooncake_synthetic", 10_000)],
)
def test_recorded_hits(name, capacity):
    assert same_hits(published(name), capacity) == MOONCAKE[name].engine_both_a[capacity]


@pytest.mark.parametrize("capacity", [1_000, 10_000])
def test_recorded_hits_of_full_blocks(capacity):
    """A last block that is not full takes a block and has no id: two tokens a block, so that one can be left out."""
    trace = published("mooncake_synthetic").convention("F")
    assert same_hits(trace, capacity, tokens_per_block=2) == truth.SYNTHETIC_MOONCAKE.engine_f[capacity]


@pytest.mark.slow
@pytest.mark.parametrize("capacity", truth.CAPACITIES)
@pytest.mark.parametrize("name", MOONCAKE)
def test_recorded_hits_at_every_capacity(name, capacity):
    hits = same_hits(published(name), capacity)
    assert hits == MOONCAKE[name].engine_both_a.get(capacity, hits)
    full = same_hits(published(name).convention("F"), capacity, tokens_per_block=2)
    assert full == MOONCAKE[name].engine_f.get(capacity, full)


@pytest.mark.parametrize("name", MOONCAKE)
def test_a_cache_that_never_forgets(name):
    """With room for everything the hits are those of the ceiling, less the last block of prompts that are all there."""
    trace, want = published(name), MOONCAKE[name]
    room = trace.distinct_blocks() + want.whole_prompts
    cache = solved.PrefixCache(room, 1)
    got = replay_cache(cache, trace)
    assert got.hit_blocks == want.lru_a[None] - want.whole_prompts
    assert cache.stats()["evictions"] == 0


@pytest.mark.parametrize("capacity", [16, 32, 64, 128])
def test_generated_prompts_token_by_token(capacity):
    """Synthetic prompts have their tokens: real blocks of 4, with partial last ones."""
    trace = generated("tiny").convention("F")
    cache, hits = solved.PrefixCache(capacity, trace.block_size), []
    for number, request in enumerate(trace):
        allocation = cache.allocate(number, request.prompt())
        hits.append(0 if allocation is None else allocation.hit_tokens // trace.block_size)
        if allocation is not None:
            cache.free(number)
    want = replay_trace(as_engine(trace, "both")(capacity), trace)
    assert tuple(hits) == want.hits


@pytest.mark.parametrize("capacity", [500, 5_000])
def test_generated_hits(capacity):
    assert same_hits(generated("default"), capacity) > 0


# --- keys


def test_keys_are_the_same_in_every_process():
    """Another process, another random start of hash(): the same keys, with and without extras."""
    code = (
        "import importlib.util, json, sys\n"
        f"spec = importlib.util.spec_from_file_location('lesson', {str(script_path(LESSON))!r})\n"
        "lesson = importlib.util.module_from_spec(spec)\n"
        "sys.modules['lesson'] = lesson\n"
        "spec.loader.exec_module(lesson)\n"
        "for extra in ((), (('salt', 'tenant-a'), ('lora', 'sql-v2'))):\n"
        "    print(json.dumps([key.hex() for key in lesson.block_keys(range(40), 16, extra)]))\n"
    )
    environment = os.environ | {"PYTHONHASHSEED": "2024"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    keys = [[bytes.fromhex(key) for key in json.loads(line)] for line in run.stdout.splitlines()]
    assert keys[0] == solved.block_keys(range(40), 16)
    assert keys[1] == solved.block_keys(range(40), 16, (("salt", "tenant-a"), ("lora", "sql-v2")))


# --- the figures of the lesson's text


def test_the_lessons_figures():
    assert solved.shared_prefix_length(*weather()) == 2
    assert solved.shared_prefix_length(*weather(novel_first=True)) == 0
    assert solved.shared_prefix_length(*shared_prefix()) == 3000
    assert solved.shared_prefix_length(*shared_prefix(unique_first=True)) == 0
    assert round(100 * 3000 / 3040, 1) == 98.7
    cache = solved.PrefixCache(2000, 8)
    first, second = shared_prefix()
    assert cache.allocate(1, first).hit_tokens == 0 and cache.allocate(2, second).hit_tokens == 3000
    first, second = shared_prefix(unique_first=True)
    assert cache.allocate(3, first).hit_tokens == cache.allocate(4, second).hit_tokens == 0


# --- the engine


@pytest.mark.parametrize("num_blocks", [14, 64])
def test_the_engines_tokens_are_those_of_transformers(num_blocks):
    """The cache in the engine's socket, with room and without: every request gets the tokens that it gets alone."""
    model = random_model()
    engine = Engine(model, num_blocks, 8, prefix_cache=solved.PrefixCache)
    prompts = [prompt[:60] for prompt in ragged_prompts()]
    assert_exact(model, serve(engine, prompts))
    assert_exact(model, serve(engine, prompts))
    assert engine.metrics.reused > 0


def test_the_engine_computes_less():
    """A chat of three turns: each turn computes what is new since the turn before, up to a block."""
    fake = FakeModel(vocab_size=50)
    computed = {}
    for name, part in (("without", {}), ("with", {"prefix_cache": solved.PrefixCache})):
        engine, prompt = Engine(fake, 64, 4, **part), [token % 50 for token in tokens(30, seed=3)]
        computed[name] = []
        for turn in range(3):
            request = engine.request(engine.add_request(prompt, 6))
            engine.run()
            assert request.output == fake.generate(prompt, 6)
            computed[name].append(request.metrics.computed)
            prompt = [*request.tokens, *[turn + 1] * 5]
        engine.check()
    assert computed["without"] == [35, 46, 57]
    assert computed["with"][0] == 35 and all(number < 20 for number in computed["with"][1:])


# --- rotary keys


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_moved_keys_are_those_of_the_model(theta):
    """The rotary code of Transformers at the new positions gives the keys that `shift_keys` gives."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=64, num_attention_heads=2, head_dim=32, rope_parameters={
        "rope_type": "default", "rope_theta": theta})  # fmt: skip
    rotary, keys = LlamaRotaryEmbedding(config), torch.randn(1, 2, 9, 32, generator=torch.Generator().manual_seed(1))

    def cached(start: int) -> torch.Tensor:
        cos, sin = rotary(keys, torch.arange(start, start + 9)[None])
        return apply_rotary_pos_emb(keys, keys, cos, sin)[1]

    for start, delta in ((0, 1), (7, 200), (300, -300)):
        assert torch.allclose(solved.shift_keys(cached(start), delta, theta), cached(start + delta), atol=1e-4)


def test_a_shifted_prompt_has_shifted_keys_in_every_layer():
    """The same tokens at later positions: after the shift the keys of all layers agree, and the values did before."""
    model = random_model()
    theta = model.config.rope_parameters["rope_theta"]
    ids, positions = torch.tensor([tokens(12, seed=5)]), torch.arange(12)[None]
    with torch.no_grad():
        here, there = (model(ids, position_ids=positions + start, use_cache=True).past_key_values for start in (0, 37))
    for old, new in zip(here.layers, there.layers, strict=True):
        assert torch.allclose(solved.shift_keys(old.keys, 37, theta), new.keys, atol=1e-3)
        assert torch.allclose(old.values, new.values, atol=1e-3)
        assert not torch.allclose(old.keys, new.keys, atol=1e-1)
