"""Random sequences of add, step and abort over small pools with a fake model: tokens right, invariants kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcourse.engine import Engine
from kvcourse.engine.attention import GatherAttention
from kvcourse.engine.blocks import BlockLedger, PlainAllocator
from kvcourse.engine.fake import FakeModel, FakeTokenizer
from kvcourse.engine.layout import NO_BLOCK, LayoutBuilder
from kvcourse.engine.reference import MemoryTier, PrefixCache
from kvcourse.engine.request import Request, Row
from kvcourse.engine.scheduler import schedule_chunked, schedule_whole

FAKE = FakeModel(vocab_size=5, context=200)  # few tokens, so that prefixes are often shared


class Interrupting(GatherAttention):
    """Raises KeyboardInterrupt in the middle of the next step when asked to."""

    armed = False

    def write(self, *args) -> None:
        super().write(*args)
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt


def schedule_youngest(running, waiting, budget):
    """A scheduler that is as unfair as the socket allows: newest first, in pieces."""
    plan, left = [], budget
    for work in [*reversed(waiting), *reversed(running)]:
        if left:
            plan.append((work.request_id, min(left, work.tokens, 3)))
            left -= plan[-1][1]
    return plan


def schedule_one(running, waiting, budget):
    """One token of one request a step, the youngest one."""
    return [((running + waiting)[-1].request_id, 1)]


SCHEDULERS = [schedule_whole, schedule_chunked, schedule_youngest, schedule_one]
PROMPTS = st.lists(st.integers(0, 4), min_size=1, max_size=24)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PROMPTS, st.integers(1, 10), st.sampled_from([(), (1,), (0, 4)])),
        st.tuples(st.just("again"), st.integers(0, 50), st.integers(1, 10)),
        st.tuples(st.just("step"), st.integers(1, 6)),
        st.tuples(st.just("abort"), st.integers(0, 50)),
        st.tuples(st.just("interrupt")),
    ),
    min_size=1,
    max_size=25,
)


def make_engine(num_blocks, block_size, cache, tiers, scheduler, budget, max_running) -> Engine:
    return Engine(
        FAKE,
        num_blocks,
        block_size,
        prefix_cache=cache,
        tiers=tiers(),
        scheduler=scheduler,
        budget=budget,
        max_running=max_running,
        attention=Interrupting(),
    )


ENGINES = st.builds(
    make_engine,
    num_blocks=st.integers(1, 12),
    block_size=st.sampled_from([1, 2, 4, 16]),
    cache=st.sampled_from([PlainAllocator, PrefixCache]),
    tiers=st.sampled_from([lambda: None, MemoryTier, lambda: MemoryTier(write_through=True)]),
    scheduler=st.sampled_from(SCHEDULERS),
    budget=st.sampled_from([1, 3, 16, 1000]),
    max_running=st.sampled_from([1, 2, 8]),
)


@given(engine=ENGINES, actions=ACTIONS)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_sequence_of_operations_gives_the_right_tokens(engine: Engine, actions):
    capacity = engine.pool.num_blocks * engine.pool.block_size
    added: list[int] = []
    prompts: list[list[int]] = []
    for kind, *args in actions:
        if kind in ("add", "again"):
            prompt = args[0] if kind == "add" else (prompts[args[0] % len(prompts)] if prompts else [0])
            if len(prompt) + args[1] - 1 <= capacity:
                prompts.append(prompt)
                added.append(engine.add_request(prompt, args[1], eos=args[2] if kind == "add" else ()))
        elif kind == "abort" and added:
            engine.abort(added[args[0] % len(added)])
            engine.check()
        elif kind == "interrupt" and engine.has_work:
            engine.attention.armed = True
            with pytest.raises(KeyboardInterrupt):
                engine.step()
            engine.check()
        elif kind == "step":
            for _ in range(args[0]):
                engine.step()
                engine.check()
    steps_left = sum((r.num_tokens + r.max_new_tokens + 2) ** 2 for r in map(engine.request, added)) * 4
    while engine.has_work:
        engine.step()
        engine.check()
        steps_left -= 1
        assert steps_left > 0, "this never ends"
    assert engine.blocks_in_use == 0 and not engine.problems
    for request in map(engine.request, added):
        want = FAKE.generate(request.tokens[: request.num_prompt], request.max_new_tokens, request.eos)
        if request.finish_reason == "aborted":
            assert request.output == want[: request.num_output]
        else:
            assert request.output == want


@given(
    prompts=st.lists(PROMPTS, min_size=2, max_size=6),
    block_size=st.sampled_from([1, 2, 4]),
    scheduler=st.sampled_from(SCHEDULERS[:2]),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_reuse_computes_exactly_the_tokens_behind_the_shared_blocks(prompts, block_size, scheduler):
    """One after the other in a pool where nothing is evicted: reused = full blocks of the longest common prefix."""
    engine = make_engine(200, block_size, PrefixCache, lambda: None, scheduler, 1000, 8)
    seen: list[list[int]] = []
    for prompt in prompts:
        request = engine.request(engine.add_request(prompt, 3))
        engine.run()
        in_pool = [tokens[:-1] for tokens in seen]  # the last token of an answer is never computed
        common = max((_common(prompt[:-1], tokens) // block_size * block_size for tokens in in_pool), default=0)
        assert request.metrics.reused == common
        assert request.metrics.computed == len(prompt) + 2 - common
        seen.append(list(request.tokens))


def _common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_exact_offsets_with_a_fake_tokenizer():
    """Prompt abcdefghij in blocks of 4: chunks of 6 and 4, then decodes at 10 and 11."""
    tokenizer = FakeTokenizer()
    engine = Engine(FakeModel(vocab_size=26), 8, 4, budget=6, scheduler=schedule_chunked)
    request = engine.request(engine.add_request(tokenizer.encode("abcdefghij"), 3))
    engine.run()
    assert [event.rows for event in engine.events] == [((0, 0, 6),), ((0, 6, 4),), ((0, 10, 1),), ((0, 11, 1),)]
    assert [len(event.tokens_out) for event in engine.events] == [0, 1, 1, 1]
    assert [event.blocks_in_use for event in engine.events] == [2, 3, 3, 3]
    assert [len(event.stored) for event in engine.events] == [1, 1, 0, 1]
    assert tokenizer.decode(request.tokens[:10]) == "abcdefghij"


def test_two_prompts_of_one_step_share_the_blocks_that_are_filled_in_it():
    engine = Engine(FAKE, 16, 4, prefix_cache=PrefixCache)
    for tail in ([1], [2], [3]):
        engine.add_request([0, 1, 2, 3, 4, 3, 2, 1, *tail], 1)
    engine.step()
    engine.check()
    assert engine.events[0].rows == ((0, 0, 9), (1, 8, 1), (2, 8, 1))
    assert engine.metrics.computed == 11 and engine.metrics.reused == 16


def test_a_preempted_request_continues_where_it_was_and_its_own_blocks_are_no_hits():
    engine = Engine(FAKE, 5, 2, prefix_cache=PrefixCache)
    old = engine.request(engine.add_request([0, 1, 2], 6))
    young = engine.request(engine.add_request([4, 3, 2], 6))
    while engine.has_work:
        engine.step()
        engine.check()
    assert old.metrics.preemptions == 0 and young.metrics.preemptions == 1
    assert young.metrics.reused == 0 and young.metrics.covered == 8
    assert young.metrics.computed == 8 + young.metrics.recomputed
    assert young.output == FAKE.generate([4, 3, 2], 6)
    assert [event.preempted for event in engine.events if event.preempted] == [(1,)]


def test_nobody_is_preempted_for_a_younger_request():
    """Even under a scheduler that asks for the youngest first."""
    engine = Engine(FAKE, 6, 2, scheduler=schedule_youngest, budget=8)
    for prompt in ([0, 1, 2, 3], [4, 3, 2], [1, 1]):
        engine.add_request(prompt, 7)
    while engine.has_work:
        engine.step()
        engine.check()
    preemptions = [engine.request(i).metrics.preemptions for i in range(3)]
    assert preemptions[0] == 0 and sum(preemptions) > 0
    assert [engine.request(i).output for i in range(2)] == [FAKE.generate(p, 7) for p in ([0, 1, 2, 3], [4, 3, 2])]


def test_a_preempted_request_waits_until_somebody_has_ended():
    """With chunks it could start again at once, only to be thrown out again."""
    engine = Engine(FAKE, 8, 2, scheduler=schedule_chunked, budget=3)
    for prompt, new in (([0, 1, 2, 3], 10), ([4, 3, 2, 1, 0, 1, 2], 6)):
        engine.add_request(prompt, new)
    while engine.has_work:
        engine.step()
        engine.check()
    assert engine.request(1).metrics.preemptions == 1
    kinds = [kind for event in engine.events for kind in ("preempted", "finished", "admitted") if getattr(event, kind)]
    assert kinds == ["admitted", "admitted", "preempted", "finished", "admitted", "finished"]


def test_the_queue_moves_on_when_a_request_ends_though_others_still_run():
    engine = Engine(FAKE, 6, 2)
    for new in (7, 3, 3):
        engine.add_request([0, 1, 2], new)
    engine.run()
    admitted = {request_id: event.step for event in engine.events for request_id in event.admitted}
    ended = {request_id: event.step for event in engine.events for request_id in event.finished}
    assert admitted[2] == ended[1] + 1 < ended[0]


def test_block_tables_are_padded_behind_their_end():
    builder = LayoutBuilder(max_running=2, max_blocks=8, block_size=2, device="cpu")
    long = Request(0, [1] * 5, 5, 1, frozenset(), block_table=[7, 3, 5])
    gone = Request(1, [2] * 3, 3, 1, frozenset(), block_table=[4, 2])
    for request in (long, gone):
        builder.take_seat(request)
    builder.build([Row(long, 0, 4), Row(gone, 0, 3)])
    builder.leave_seat(gone)
    late = Request(2, [3] * 2, 2, 1, frozenset(), block_table=[6])
    builder.take_seat(late)
    ids, layout, last = builder.build([Row(late, 0, 2), Row(long, 4, 1)])
    assert ids.tolist() == [3, 3, 1] and last.tolist() == [1, 2]
    assert layout.block_tables.tolist() == [[6, NO_BLOCK, NO_BLOCK], [7, 3, 5]]
    assert layout.positions.tolist() == [0, 1, 4] and layout.slot_mapping.tolist() == [12, 13, 10]
    assert layout.query_starts.tolist() == [0, 2, 3] and layout.context_lens.tolist() == [2, 5]
    late.block_table.append(1)
    assert builder.build([Row(late, 1, 1)])[1].block_tables.tolist() == [[6, 1]]


def test_the_ledger_refuses_what_must_never_happen():
    ledger = BlockLedger(2, 4)
    ledger.take(0)
    for wrong in (
        lambda: ledger.take(0),  # taken twice
        lambda: ledger.fill(0, 1, 1),  # a slot is skipped
        lambda: ledger.share(0),  # no content yet
        lambda: ledger.drop(1),  # nobody uses it
    ):
        try:
            wrong()
        except AssertionError:
            continue
        raise RuntimeError("an invariant was not checked")
    assert ledger.fill(0, 0, 4) and ledger.seal(0, b"k")
    ledger.share(0)
    try:
        ledger.fill(0, 3, 1)  # written twice, and shared
    except AssertionError:
        return
    raise RuntimeError("a shared block was written")
