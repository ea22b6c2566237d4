"""The oracles of kvcourse.workload against slower and simpler ones, on random prefix trees."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcourse.workload import (
    FIFO,
    LRU,
    Request,
    Trace,
    as_engine,
    hit_curve,
    optimal,
    replay_cache,
    replay_trace,
    reuse_ceiling,
)
from kvcourse.workload.replay import stand_in_tokens
from kvcourse.workload.trace import broken_chains

SIZE = 4  # tokens in a block of the traces made here


@st.composite
def traces(draw, nodes: int = 12, requests: int = 25) -> Trace:
    """Requests that are paths from the root of a random tree: what block ids with prefix meaning look like."""
    parents = [draw(st.integers(-1, node - 1)) for node in range(draw(st.integers(1, nodes)))]
    paths = []
    for node, parent in enumerate(parents):
        paths.append((*(paths[parent] if parent >= 0 else ()), node))
    chosen = draw(st.lists(st.sampled_from(paths), min_size=1, max_size=requests))
    spare = draw(st.lists(st.integers(0, SIZE - 1), min_size=len(chosen), max_size=len(chosen)))
    made = tuple(
        Request(float(number), SIZE * len(path) - less, 0, path)
        for number, (path, less) in enumerate(zip(chosen, spare, strict=True))
    )
    return Trace("drawn", made, SIZE, partial_last=True)


def list_lru(trace: Trace, capacity: int) -> list[int]:
    """The blocks by last use in a plain list, the newest first, cut off at the capacity."""
    newest_first: list[int] = []
    hits = []
    for request in trace:
        ids = list(request.block_ids)
        hits.append(next((at for at, block in enumerate(ids) if block not in newest_first), len(ids)))
        newest_first = (ids + [block for block in newest_first if block not in ids])[:capacity]
    return hits


def best_possible(trace: Trace, capacity: int) -> int:
    """The most blocks any cache can hit: every choice of what to keep after every request, tried."""
    best = {frozenset(): 0}
    for request in trace:
        after: dict[frozenset, int] = {}
        for kept, hits in best.items():
            found = next(
                (at for at, block in enumerate(request.block_ids) if block not in kept), len(request.block_ids)
            )
            pool = sorted(kept | set(request.block_ids))
            for count in range(min(capacity, len(pool)) + 1):
                for choice in combinations(pool, count):
                    state = frozenset(choice)
                    after[state] = max(after.get(state, 0), hits + found)
        best = after
    return max(best.values())


@given(traces(), st.integers(1, 15))
def test_lru_is_the_list(trace, capacity):
    """The ordered dictionary and the plain list hit the same blocks, request by request."""
    assert list(replay_trace(LRU(capacity), trace).hits) == list_lru(trace, capacity)


@given(traces(), st.integers(1, 15))
def test_lru_never_hits_less_with_more_room(trace, capacity):
    """Inclusion: what a smaller LRU holds, a larger one holds too, so no request hits less."""
    small, large = LRU(capacity), LRU(capacity + 1)
    for request in trace:
        assert small.access(request.block_ids) <= large.access(request.block_ids)
        assert set(small.order()) <= set(large.order())


@given(traces(), st.integers(1, 15))
def test_no_block_outlives_its_prefix(trace, capacity):
    """With tails before heads, the block before a cached block is cached."""
    before: dict[int, int | None] = {}
    for request in trace:
        before.update(zip(request.block_ids, (None, *request.block_ids), strict=False))
    cache = LRU(capacity)
    for request in trace:
        cache.access(request.block_ids)
        assert len(cache) <= capacity
        assert all(before[block] is None or before[block] in cache for block in cache.order())


def test_head_first_loses_heads():
    """The common mistake: the head goes first, and the tail that stays is worth nothing."""
    for touch, hits in (("tail_first", 2), ("head_first", 0)):
        cache = LRU(4, touch)
        cache.access((1, 2, 3))
        cache.access((7, 8))
        assert cache.match((1, 2, 3)) == hits


def test_holes_are_renewed():
    """Ids that are no tree: a block behind a hole counts as used, like the others."""
    cache = LRU(3)
    cache.access((1, 2))
    cache.access((3,))
    assert cache.access((9, 2)) == 0
    assert cache.order() == [3, 2, 9]


@given(traces(nodes=6, requests=6), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_belady_is_the_best(trace, capacity):
    """No way of keeping blocks, tried one by one, hits more than Belady's rule."""
    assert replay_trace(optimal(trace)(capacity), trace).hit_blocks == best_possible(trace, capacity)


def paths(*prompts: tuple[int, ...]) -> Trace:
    return Trace("paths", tuple(Request(0.0, SIZE * len(ids), 0, ids) for ids in prompts), SIZE)


def test_belady_gives_up_the_tail():
    """Of a chain that is next used together, the tail leaves: its head is still worth something."""
    trace = paths((1, 2, 3), (9,), (9,), (1, 2, 3))
    assert replay_trace(optimal(trace)(3), trace).hits == (0, 0, 1, 2)


@given(traces(), st.integers(1, 15))
def test_belady_bounds_the_others(trace, capacity):
    """Belady's rule hits at least as much as LRU and FIFO, and at most as much as a cache without limit."""
    best = replay_trace(optimal(trace)(capacity), trace).hit_blocks
    for cache in (LRU(capacity), LRU(capacity, "head_first"), FIFO(capacity)):
        assert replay_trace(cache, trace).hit_blocks <= best
    assert best <= reuse_ceiling(trace).hit_blocks


@given(traces())
def test_no_limit_is_a_large_capacity(trace):
    """Without a limit a cache is one that holds everything, whichever rule it has."""
    everything = trace.distinct_blocks()
    want = reuse_ceiling(trace)
    assert not broken_chains(trace)
    for cache in (LRU(everything), FIFO(None), FIFO(everything), optimal(trace)(everything)):
        assert replay_trace(cache, trace) == want


@given(traces(), st.integers(0, 30))
def test_skipped_requests_only_warm(trace, skip):
    """`skip` leaves requests out of the count, not out of the cache."""
    whole, late = replay_trace(LRU(5), trace), replay_trace(LRU(5), trace, skip=skip)
    assert late.hits == whole.hits[skip:]
    assert late.tokens == sum(request.input_tokens for request in trace.requests[skip:])


def test_tokens_of_a_partial_block():
    """A hit on the last, partial block counts its tokens only; with the last token recomputed, none of it."""
    trace = Trace("two", (Request(0, 10, 1, (1, 2, 3)), Request(1, 10, 1, (1, 2, 3))), SIZE, partial_last=True)
    assert replay_trace(LRU(8), trace).hit_tokens == 10
    assert replay_trace(LRU(8), trace, recompute_last=True).hit_tokens == 8
    assert replay_trace(LRU(8), trace.convention("F")).hit_tokens == 8
    assert trace.convention("F").requests[0].block_ids == (1, 2)
    assert trace.convention("A") is trace
    with pytest.raises(ValueError, match="'B'"):
        trace.convention("B")


def test_curve():
    """A curve is a row of replays, with what a figure needs."""
    trace = Trace("two", (Request(0, 8, 1, (1, 2)), Request(1, 8, 1, (1, 2))), SIZE)
    curve = hit_curve(trace, [1, 2])
    assert (curve.capacities, curve.hit_blocks, curve.ratios, curve.capacity_tokens) == (
        (1, 2),
        [1, 2],
        [0.25, 0.5],
        [4, 8],
    )


@pytest.mark.parametrize("capacity", [0, -1, 2.5, True])
def test_bad_capacity(capacity):
    """A capacity is a positive whole number of blocks, or None."""
    for cache in (LRU, FIFO, optimal(Trace("none", ()))):
        with pytest.raises(ValueError, match="capacity"):
            cache(capacity)


def test_no_blocks():
    """A trace of lengths cannot be replayed."""
    with pytest.raises(ValueError, match="lengths only"):
        replay_trace(LRU(3), Trace("azure", (Request(0, 5, 1),)))


@dataclass
class Allocation:
    hit_tokens: int


class BlockPool:
    """A prefix cache as an engine has it: blocks, a free queue, references; the last block is computed in place."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.size, self.room = block_size, num_blocks
        self.references: dict[tuple, int] = {}
        self.free_queue: OrderedDict[tuple, None] = OrderedDict(
            (("empty", number), None) for number in range(num_blocks)
        )
        self.tables: dict[int, list[tuple]] = {}

    def allocate(self, request_id, tokens):
        keys = [tuple(tokens[: end + self.size]) for end in range(0, len(tokens), self.size)]
        present = self.references.keys() | self.free_queue.keys()
        hits = next((at for at, key in enumerate(keys) if key not in present), len(keys))
        if len(keys) - hits > len(self.free_queue) - sum(key in self.free_queue for key in keys[:hits]):
            return None
        for number, key in enumerate(keys):
            if number < hits:
                self.free_queue.pop(key, None)
            else:
                self.free_queue.popitem(last=False)
            self.references[key] = self.references.get(key, 0) + 1
        self.tables[request_id] = keys
        assert len(self.references) + len(self.free_queue) == self.room
        return Allocation(min(hits * self.size, len(tokens) - 1) // self.size * self.size)

    def free(self, request_id):
        for key in reversed(self.tables.pop(request_id)):
            self.references[key] -= 1
            if not self.references[key]:
                del self.references[key]
                self.free_queue[key] = None


@given(traces(), st.integers(12, 20), st.sampled_from([1, 2, 3]))
@settings(deadline=None)
def test_block_pool_is_the_oracle(trace, capacity, tokens_per_block):
    """A pool with references and a free queue, one trace block to a block, hits what the plain LRU hits."""
    whole = Trace("whole", tuple(Request(r.arrival, SIZE * len(r.block_ids), 0, r.block_ids) for r in trace), SIZE)
    want = replay_trace(LRU(capacity), whole, recompute_last=True)
    assert replay_cache(BlockPool(capacity, tokens_per_block), whole, tokens_per_block=tokens_per_block) == want


class TokenPool:
    """A prefix cache over token ids with numbered blocks: nothing is computed in place, copies may arise."""

    def __init__(self, num_blocks: int, block_size: int, copies: str) -> None:
        self.size, self.copies = block_size, copies
        self.queue = [(block, None) for block in range(num_blocks)]  # (block, content up to its end), oldest first
        self.made: list[tuple] = []  # the same pairs, in the order in which they were computed
        self.running: dict[int, list[tuple]] = {}

    def allocate(self, request_id, tokens):
        size, table = self.size, []
        ends = range(size, len(tokens) + size, size)
        if len(ends) > len(self.queue):
            return None
        for end in ends[: (len(tokens) - 1) // size]:
            content = tuple(tokens[:end])
            holders = [entry for entry in self.made if entry in self.queue and entry[1] == content]
            if not holders:
                break
            self.queue.remove(holders[0])
            table.append(holders[0])
        hits = len(table)
        for end in ends[hits:]:
            content = tuple(tokens[:end]) if end <= len(tokens) else None
            block, _ = gone = self.queue.pop(0)
            self.made = [entry for entry in self.made if entry != gone]
            if self.copies == "first" and content in [entry[1] for entry in self.made]:
                content = None
            table.append((block, content))
            self.made.append((block, content))
        self.running[request_id] = table
        return Allocation(hits * size)

    def free(self, request_id):
        for entry in reversed(self.running.pop(request_id)):
            self.queue.insert(0 if entry[1] is None else len(self.queue), entry)


@given(traces(), st.integers(1, 20), st.sampled_from(["first", "both"]), st.sampled_from([1, 2, 3]))
@settings(deadline=None)
def test_token_pool_is_the_engine_oracle(trace, capacity, copies, tokens_per_block):
    """A pool that never computes in place hits what `as_engine` hits, with partial blocks and with copies."""
    if tokens_per_block > 1:
        trace = trace.convention("F")
    pool = TokenPool(capacity, tokens_per_block, copies)
    want = replay_trace(as_engine(trace, copies)(capacity), trace)
    assert replay_cache(pool, trace, tokens_per_block=tokens_per_block).hits == want.hits


def test_the_older_copy_is_hit():
    """Of two copies of a block the older one is hit and becomes recent, so the younger one leaves first."""
    trace = paths((5,), (1,), (5,), (5, 6), (1, 2, 3))
    assert replay_trace(as_engine(trace, "both")(3), trace).hits == (0, 0, 0, 1, 0)
    assert replay_trace(as_engine(trace, "first")(3), trace).hits == (0, 0, 0, 1, 1)
    with pytest.raises(ValueError, match="'none'"):
        as_engine(trace, "none")(3)


@given(traces(), st.integers(3, 12), st.integers(0, 3))
@settings(deadline=None)
def test_running_requests_pin_their_blocks(trace, capacity, keep_running):
    """With requests still running, everything is freed in the end and what does not fit is counted."""
    pool = BlockPool(capacity, 1)
    counted = replay_cache(pool, trace, keep_running=keep_running)
    assert not pool.tables and not pool.references and len(pool.free_queue) == capacity
    assert counted.refused == sum(len(request.block_ids) > capacity for request in trace)


def test_impossible_hits_are_refused():
    """A cache that claims half a block, or more than the prompt, is told so."""

    class Liar:
        def allocate(self, request_id, tokens):
            return Allocation(3)

        def free(self, request_id):
            pass

    trace = Trace("one", (Request(0, 8, 1, (1, 2)),), SIZE)
    with pytest.raises(ValueError, match="request 0: hit_tokens is 3"):
        replay_cache(Liar(), trace, tokens_per_block=2)


@pytest.mark.parametrize(
    ("tokens", "per_block", "want"),
    [
        (12, 1, [1, 2, 3]),
        (9, 1, [1, 2, 3]),
        (12, 2, [2, 3, 4, 5, 6, 7]),
        (9, 2, [2, 3, 4, 5, 6]),
        (11, 4, [*range(4, 15)]),
        (15, 2, [2, 3, 4, 5, 6, 7, 0]),
        (14, 8, [*range(8, 32), 0, 0, 0, 0]),
    ],
)
def test_stand_in_tokens(tokens, per_block, want):
    """Equal blocks become equal tokens, and a partial block stays partial where that is possible."""
    assert stand_in_tokens(Request(0, tokens, 0, (1, 2, 3)), SIZE, per_block) == want
    if tokens == 15:
        with pytest.raises(ValueError, match="tokens_per_block=2"):
            stand_in_tokens(Request(0, tokens, 0, (1, 2, 3)), SIZE, 1)
