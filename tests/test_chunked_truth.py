"""The reference of lesson 5's chunks and scheduler against known figures, laws on generated inputs, and the engine."""

from __future__ import annotations

import itertools
import random
from functools import partial
from types import SimpleNamespace

import pytest
from engine_helpers import assert_exact, ragged_prompts, random_model, serve, tokens
from hypothesis import given
from hypothesis import strategies as st

from autograde.sources import solution_namespace
from kvcourse.check.student import LocalStudent
from kvcourse.engine import Engine
from kvcourse.engine.attention import GatherAttention
from kvcourse.engine.blocks import PlainAllocator
from kvcourse.engine.fake import FakeModel
from kvcourse.engine.sockets import Work as EngineWork
from kvcourse.tasks.api import Failure
from kvcourse.tasks.chunked_steps import (
    Call,
    Promise,
    Request,
    Serving,
    Work,
    broken_rule,
    drive,
    follow,
    nobody_starves,
)
from kvcourse.tasks.course import find_lesson

solved = SimpleNamespace(**solution_namespace(find_lesson("chunked")))
prefix = SimpleNamespace(**solution_namespace(find_lesson("prefix")))
schedule_step = solved.schedule_step

A, B, C = 1, 2, 3  # requests
VECTORS = [
    {
        "what": "three prompts of 800 at once, at most 400 of one in a step",
        "prompts": {A: 800, B: 800, C: 800},
        "budget": 1024,
        "longest": 400,
        "steps": [{A: 400, B: 400, C: 224}, {A: 400, B: 400, C: 224}, {A: 1, B: 1, C: 352}],
    },
    {
        "what": "a prompt of 80 beside a decode",
        "decodes": [A],
        "prompts": {B: 80},
        "budget": 50,
        "steps": [{A: 1, B: 49}, {A: 1, B: 31}],
    },
    {
        "what": "a prompt of 100,000 alone",
        "prompts": {A: 100_000},
        "budget": 8192,
        "steps": [*[{A: 8192}] * 12, {A: 1696}],
    },
    {
        "what": "the same behind 60,000 cached tokens",
        "prompts": {A: 100_000},
        "cached": 60_000,
        "budget": 8192,
        "steps": [*[{A: 8192}] * 4, {A: 7232}],
    },
    {
        "what": "a prompt of 100,000 beside 64 decodes",
        "decodes": list(range(10, 74)),
        "prompts": {100: 100_000},
        "budget": 512,
        "steps": [*[dict.fromkeys(range(10, 74), 1) | {100: 448}] * 223, dict.fromkeys(range(10, 74), 1) | {100: 96}],
    },
    {
        "what": "decodes that would fill the budget",
        "decodes": [A, B, C],
        "prompts": {9: 3},
        "budget": 3,
        "steps": [{A: 1, B: 1, 9: 1}] * 2 + [{A: 1, B: 1, C: 1}],  # the last token of 9 is a decode: no prompt is left
    },
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["what"])
def test_known_steps(vector):
    serving = Serving()
    serving.running = [Request(number, 2, 1000, computed=2, written=1) for number in vector.get("decodes", ())]
    for number, count in vector["prompts"].items():
        serving.add(Request(number, count, 1000, computed=vector.get("cached", 0)))
    for want in vector["steps"]:
        plan = schedule_step(*serving.call(vector["budget"], vector.get("longest")))
        assert dict(plan) == want and len(plan) == len(want)
        serving.carry_out(plan)


def test_known_passes():
    passes = solved.chunks(100_000, 8192)
    assert len(passes) == 13 and len(passes[-1]) == 1696
    assert solved.chunks(100_000, 8192, 60_000)[0] == range(60_000, 68_192)
    assert len(solved.chunks(100_000, 8192, 60_000)) == 5


# --- laws


@given(st.integers(1, 300), st.integers(1, 310), st.data())
def test_passes_have_every_position_once(prompt, size, data):
    cached = data.draw(st.integers(0, prompt - 1))
    passes = solved.chunks(prompt, size, cached)
    assert list(itertools.chain(*passes)) == list(range(cached, prompt))
    assert {len(chunk) for chunk in passes[:-1]} <= {size} and 1 <= len(passes[-1]) <= size


@given(st.integers(1, 90), st.integers(1, 40), st.integers(1, 17), st.integers(0, 2**32))
def test_slots_of_all_passes_are_the_tables_slots_in_order(prompt, size, block_size, seed):
    table = random.Random(seed).sample(range(200), -(-prompt // block_size))
    slots = [slot for chunk in solved.chunks(prompt, size) for slot in solved.chunk_slots(table, chunk, block_size)]
    all_slots = [block * block_size + place for block in table for place in range(block_size)]
    assert slots == all_slots[:prompt] and len(set(slots)) == prompt


@given(st.integers(0, 60), st.integers(1, 40), st.none() | st.integers(1, 80))
def test_keys_are_those_that_some_query_sees(start, count, window):
    chunk = range(start, start + count)
    seen = {key for p in chunk for key in range(p + 1) if window is None or key > p - window}
    assert list(solved.chunk_keys(chunk, window)) == sorted(seen)


CALLS = st.builds(
    lambda running, waiting, budget, longest: Call(
        [Work(i, n, c) for i, (n, c) in enumerate(running)],
        [Work(100 + i, n, c) for i, (n, c) in enumerate(waiting)],
        budget,
        longest,
    ),
    st.lists(st.tuples(st.sampled_from((1, 1, 1, 2, 5, 30)), st.integers(0, 50)), max_size=8),
    st.lists(st.tuples(st.sampled_from((1, 2, 5, 30)), st.integers(0, 50)), max_size=5),
    st.integers(2, 40),
    st.none() | st.integers(1, 20),
).filter(Call.is_fair)


@given(CALLS)
def test_the_reference_keeps_the_rules(call):
    plan = schedule_step(*call)
    assert broken_rule(plan, call) is None
    asked = sum(work.tokens for work in call.decodes)
    asked += sum(min(work.tokens, call.longest or work.tokens) for work in call.prompts)
    total = sum(count for _, count in plan)
    assert 1 <= total <= call.budget
    if len(call.decodes) < call.budget:  # else one token is kept, and the prompts may need no more
        assert total == min(asked, call.budget)


@given(CALLS, st.data())
def test_the_referee_allows_no_other_plan(call, data):
    plan = schedule_step(*call)
    other = list(plan)
    i = data.draw(st.integers(0, len(plan) - 1))
    match data.draw(st.sampled_from(("more", "less", "gone", "twice", "swapped", "new", "reversed"))):
        case "more" | "less" as change:
            other[i] = (plan[i][0], plan[i][1] + (1 if change == "more" else -1))
        case "gone":
            del other[i]
        case "twice":
            other.append(plan[i])
        case "swapped":
            other[i], other[0] = other[0], other[i]
        case "new":
            missing = [w.request_id for w in call.running + call.waiting if w.request_id not in dict(plan)]
            other.append((missing[0] if missing else 999, 1))
        case "reversed":
            other.reverse()
    assert (broken_rule(other, call) is None) == (other == plan)


@pytest.mark.parametrize("plan", [None, 0, "plan", [1, 2], [(0, 1.0)], [(0, True)], [(0, 1, 1)], [(True, 1)], {0: 1}])
def test_the_referee_refuses_what_is_no_plan(plan):
    rule = broken_rule(plan, Call([Work(0, 1)], [], 4))
    assert rule is not None and "pairs" in rule.expected


@given(st.integers(0, 2**32), st.integers(2, 30), st.none() | st.integers(1, 12))
def test_many_steps_keep_the_rules(seed, budget, longest):
    with LocalStudent({"schedule_step": schedule_step}).session() as student:
        follow(student.schedule_step, random.Random(seed), budget, longest, steps=12, first_id=1)


@given(st.integers(0, 2**32), st.integers(2, 9), st.none() | st.integers(1, 4))
def test_nobody_starves_under_the_reference(seed, budget, longest):
    with LocalStudent({"schedule_step": schedule_step}).session() as student:
        nobody_starves(student.schedule_step, random.Random(seed), budget, longest, requests=12)


@pytest.mark.parametrize("budget", [2, 3, 7])
def test_the_bound_is_reached(budget):
    """Decodes fill the step but for one token: prompts of three tokens start as late as they may."""
    serving, promises = Serving(), {}
    serving.running = [Request(number, 2, 1000, computed=2, written=1, started=1) for number in range(budget)]
    for number in (100, 101, 102):
        request = Request(number, 3, 1)
        serving.add(request)
        promises[number] = Promise.to(request, (serving.running + serving.waiting)[:-1])
    for _ in range(20):
        serving.carry_out(schedule_step(*serving.call(budget)))
    started = [serving.running[-3 + place].started for place in range(3)]
    assert started == [1, 3, 5], "two tokens of each; its third is a decode, and the older decodes come first"
    assert [promise.start for promise in promises.values()] == started


@pytest.mark.parametrize(
    ("plan_step", "words"),
    [
        (
            lambda *call: [(w.request_id, 1) for w in call[0] if w.tokens == 1][: call[2]] or schedule_step(*call),
            "start",
        ),
        (lambda running, waiting, budget: schedule_step(running[::-1], waiting[::-1], budget), "to "),
    ],
)
def test_unfair_schedulers_are_found(plan_step, words):
    with LocalStudent({"schedule_step": plan_step}).session() as student, pytest.raises(Failure) as failure:
        nobody_starves(student.schedule_step, random.Random(1), 3, None, requests=40)
    assert words in failure.value.expected and failure.value.call.startswith("schedule_step(")


def test_every_prompt_is_computed_once():
    serving, dice = Serving(), random.Random(3)
    for number in range(30):
        serving.add(Request(number, dice.randint(1, 200), dice.randint(1, 30)))
    owed = sum(request.owed for request in serving.waiting)
    steps = drive(lambda call: schedule_step(*call), serving, 64)
    assert sum(sum(step.values()) for step in steps) == owed
    assert all(sum(step.values()) == 64 for step in steps[: owed // 64 // 2])


# --- the engine

CACHES = {"plain": PlainAllocator, "prefix": prefix.PrefixCache}


def run(model, prompts, cache="plain", budget=8192, longest=None, num_blocks=96, block_size=16, new=12, **more):
    engine = Engine(
        model,
        num_blocks,
        block_size,
        budget=budget,
        prefix_cache=CACHES[cache],
        scheduler=partial(schedule_step, longest=longest),
        **more,
    )
    requests = serve(engine, prompts, new)
    assert engine.problems == [], "no plan was refused"
    return engine, requests


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("longest", [1, 7, 16, 48, None])
def test_tokens_equal_generate_for_every_chunk_size(cache, longest):
    model = random_model()
    _, requests = run(model, ragged_prompts(), cache, longest=longest)
    assert_exact(model, requests)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("budget", [2, 7, 16, 48])
def test_tokens_equal_generate_for_every_budget(cache, budget):
    model = random_model()
    engine, requests = run(model, ragged_prompts(), cache, budget=budget)
    assert_exact(model, requests)
    assert (engine.metrics.reused > 0) == (cache == "prefix")


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize(("budget", "longest"), [(7, None), (40, 16), (8192, 5)])
def test_tokens_equal_generate_through_preemptions(cache, budget, longest):
    model = random_model()
    engine, requests = run(model, ragged_prompts(), cache, budget, longest, num_blocks=28, block_size=4)
    assert_exact(model, requests)
    assert engine.metrics.preemptions > 0 and engine.metrics.recomputed > 0


def test_one_request_has_a_budget_of_one():
    model = random_model()
    _, requests = run(model, [tokens(20, seed=4)], budget=1, new=5)
    assert_exact(model, requests, 5)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(2, 20), st.sampled_from(sorted(CACHES)))
def test_fake_models_agree_under_any_budget(lengths, budget, cache):
    fake = FakeModel(vocab_size=50)
    prompts = [[token % 3 for token in tokens(length, seed=i)] for i, length in enumerate(lengths)]
    _, requests = run(fake, prompts, cache, budget, num_blocks=14, block_size=4, new=6)
    for request, prompt in zip(requests, prompts, strict=True):
        assert request.output == fake.generate(prompt, 6)


class Spy:
    """A scheduler that keeps what it was asked and what the reference answered."""

    def __init__(self, longest: int | None = None) -> None:
        self.longest = longest
        self.calls: list[Call] = []
        self.plans: list[list[tuple[int, int]]] = []

    def __call__(self, running, waiting, budget):
        self.calls.append(Call(running, waiting, budget))
        self.plans.append(schedule_step(running, waiting, budget, self.longest))
        return self.plans[-1]


def test_the_engine_offers_what_a_cap_leaves_room_for():
    spy = Spy(longest=400)
    engine = Engine(FakeModel(vocab_size=50), 200, 16, budget=1024, scheduler=spy)
    for _ in range(3):
        engine.add_request([1] * 800, 2)
    engine.run()
    assert [[count for _, count in plan] for plan in spy.plans[:3]] == [[400, 400, 224], [400, 400, 224], [1, 1, 352]]


def test_the_engine_says_what_is_cached():
    spy, prompt = Spy(), [1, 2, 3, 4, 5, 6, 7, 8, 9]
    engine = Engine(FakeModel(vocab_size=50), 32, 4, budget=6, prefix_cache=prefix.PrefixCache, scheduler=spy)
    for _ in range(2):
        engine.add_request(prompt, 2)
        engine.run()
    first, second = EngineWork(0, 9), EngineWork(1, 1, cached=8)
    running = [EngineWork(0, 3, cached=6), EngineWork(0, 1, cached=9), EngineWork(1, 1, cached=9)]
    asked = [works for call in spy.calls for works in call[:2] if works]
    assert asked == [[first], [running[0]], [running[1]], [second], [running[2]]]


@pytest.mark.parametrize(("length", "budget", "again"), [(50, 16, False), (50, 7, False), (50, 7, True), (3, 8, True)])
def test_the_engines_passes_are_those_of_chunks(length, budget, again):
    """Of a prompt alone, with nothing or its leading blocks in the cache."""
    spy, prompt = Spy(), [token % 50 for token in tokens(length, seed=8)]
    engine = Engine(FakeModel(vocab_size=50), 32, 4, budget=budget, prefix_cache=prefix.PrefixCache, scheduler=spy)
    for _ in range(1 + again):
        engine.add_request(prompt, 1)
        spy.plans.clear()
        engine.run()
    cached = (length - 1) // 4 * 4 if again else 0
    assert [plan[0][1] for plan in spy.plans] == [len(chunk) for chunk in solved.chunks(length, budget, cached)]


class Watch(GatherAttention):
    """Attention that compares slots, positions and contexts of each step with those of chunk_slots and chunk_keys."""

    def __init__(self) -> None:
        self.inside, self.seen = 0, 0

    def attend(self, query, k_pool, v_pool, layout, scaling):
        starts = layout.query_starts.tolist()
        for i, (count, context) in enumerate(zip(layout.counts, layout.contexts, strict=True)):
            chunk, own = range(context - count, context), slice(starts[i], starts[i + 1])
            table = [block for block in layout.block_tables[i].tolist() if block >= 0]
            assert layout.slot_mapping[own].tolist() == solved.chunk_slots(table, chunk, layout.block_size)
            assert layout.positions[own].tolist() == list(chunk)
            assert solved.chunk_keys(chunk) == range(layout.context_lens[i])
            self.seen += 1
            self.inside += count > 1 and chunk.start % layout.block_size > 0
        return super().attend(query, k_pool, v_pool, layout, scaling)


@pytest.mark.parametrize("cache", CACHES)
def test_slots_and_keys_are_those_of_the_engine(cache):
    watch, model = Watch(), random_model()
    _, requests = run(model, ragged_prompts()[:6], cache, budget=13, block_size=4, attention=watch, new=4)
    assert_exact(model, requests, 4)
    assert watch.seen > 50 and watch.inside > 10, "chunks that begin inside a block were among them"
