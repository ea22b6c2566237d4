"""Replay a trace through a cache and count what it would not have to compute again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvcourse.workload.bar import progress_bar
from kvcourse.workload.lru import LRU, BlockCache
from kvcourse.workload.trace import Request, Trace


@dataclass(frozen=True)
class Replay:
    """What a replay counted."""

    hits: tuple[int, ...]  # blocks, one number a request
    hit_tokens: int
    blocks: int
    tokens: int
    refused: int = 0  # requests that did not fit into the cache

    @property
    def hit_blocks(self) -> int:
        return sum(self.hits)

    @property
    def token_ratio(self) -> float:
        """Share of all prompt tokens that need not be computed."""
        return self.hit_tokens / self.tokens if self.tokens else 0.0


@dataclass(frozen=True)
class HitCurve:
    """Hit rate against capacity, ready to draw: `capacities` (blocks) against `ratios` (share of tokens)."""

    capacities: tuple[int, ...]
    replays: tuple[Replay, ...]
    block_size: int

    @property
    def hit_blocks(self) -> list[int]:
        return [replay.hit_blocks for replay in self.replays]

    @property
    def ratios(self) -> list[float]:
        return [replay.token_ratio for replay in self.replays]

    @property
    def capacity_tokens(self) -> list[int]:
        return [capacity * self.block_size for capacity in self.capacities]


class PrefixCacheLike(Protocol):
    """The part of a prefix cache that a replay drives (lesson 02's PrefixCache has more)."""

    def allocate(self, request_id: Any, tokens: Sequence[int]) -> Any:
        """An object with `hit_tokens`, or None when the request does not fit."""
        ...

    def free(self, request_id: Any) -> None: ...


def replay_trace(cache: BlockCache, trace: Trace, *, recompute_last: bool = False, skip: int = 0) -> Replay:
    """Serve all requests in order; count those after the first `skip`, which only warm the cache.

    Token hits of a request are min(hit blocks * block size, prompt). With `recompute_last` at least one token of
    every prompt is computed: hits end at (prompt - 1) // block size blocks, while the cache's contents stay the same,
    as if the last block were computed in place.
    """
    if not trace.has_blocks:
        raise ValueError(f"{trace.name} has lengths only: without block ids there is nothing to reuse")
    size, access, hits, tokens = trace.block_size, cache.access, [], 0
    for request in trace.requests:
        found = access(request.block_ids)
        if recompute_last:
            found = min(found, max(0, request.input_tokens - 1) // size)
        hits.append(found)
    counted = trace.requests[skip:]
    for found, request in zip(hits[skip:], counted, strict=True):
        tokens += min(found * size, request.input_tokens)
    return _result(hits[skip:], tokens, counted)


def hit_curve(
    trace: Trace,
    capacities: Iterable[int],
    cache: Callable[[int], BlockCache] = LRU,
    *,
    recompute_last: bool = False,
    skip: int = 0,
) -> HitCurve:
    """One replay for each capacity: `cache` is LRU, FIFO, `optimal(trace)` or anything that makes a BlockCache."""
    capacities = tuple(capacities)
    with progress_bar(len(capacities), "capacity", f"replay {trace.name}") as bar:
        replays = []
        for capacity in capacities:
            replays.append(replay_trace(cache(capacity), trace, recompute_last=recompute_last, skip=skip))
            bar.update(1)
    return HitCurve(capacities, tuple(replays), trace.block_size)


def reuse_ceiling(trace: Trace) -> Replay:
    """What a cache without limit reuses: the most any eviction rule can reach."""
    return replay_trace(LRU(None), trace)


def session_ratios(trace: Trace) -> dict[str, float]:
    """The reuse ceiling (share of tokens) of each conversation by itself."""
    return {name: reuse_ceiling(session).token_ratio for name, session in trace.sessions().items()}


def replay_cache(
    cache: PrefixCacheLike, trace: Trace, *, tokens_per_block: int = 1, keep_running: int = 0, skip: int = 0
) -> Replay:
    """Drive a real prefix cache (`allocate`, `free`) with a trace, one trace block for each of its blocks.

    The cache must have been made with block size `tokens_per_block`; see `stand_in_tokens` for the prompts it sees.
    Each request is freed at once, or when `keep_running` later ones have come. One that gets None although nothing
    else runs is counted as refused. ValueError when `hit_tokens` is impossible.
    """
    running: deque[int] = deque()
    hits, hit_tokens, refused = [], 0, 0
    for number, request in enumerate(trace.requests):
        tokens = stand_in_tokens(request, trace.block_size, tokens_per_block)
        allocation = cache.allocate(number, tokens)
        while allocation is None and running:
            cache.free(running.popleft())
            allocation = cache.allocate(number, tokens)
        found = 0
        if allocation is not None:
            found = _whole_blocks(allocation.hit_tokens, len(tokens), tokens_per_block, number)
            running.append(number)
        refused += allocation is None and number >= skip
        while len(running) > keep_running:
            cache.free(running.popleft())
        hits.append(found)
        if number >= skip:
            hit_tokens += min(found * trace.block_size, request.input_tokens)
    while running:
        cache.free(running.popleft())
    return _result(hits[skip:], hit_tokens, trace.requests[skip:], refused)


def stand_in_tokens(request: Request, block_size: int, tokens_per_block: int = 1) -> list[int]:
    """Token ids for a request of which only block ids are known: block b becomes b*n, b*n + 1, … b*n + n-1.

    A last block that is not full becomes as many tokens as its share of a block, from 1 to n-1 (zeros if it has no id).
    With n = 1 nothing can be partial: such a block is one token if it has an id, else ValueError.
    """
    n, ids = tokens_per_block, request.block_ids
    tokens = [block * n + offset for block in ids for offset in range(n)]
    rest = request.input_tokens % block_size
    if rest == 0 or (n == 1 and len(ids) * block_size > request.input_tokens):
        return tokens
    if n == 1:
        raise ValueError("the trace has no ids for blocks that are not full: use tokens_per_block=2 or more")
    some = min(max(rest * n // block_size, 1), n - 1)
    if len(ids) * block_size > request.input_tokens:
        return tokens[: len(tokens) - n + some]
    return tokens + [0] * some


def _whole_blocks(hit_tokens: int, tokens: int, tokens_per_block: int, number: int) -> int:
    blocks, rest = divmod(hit_tokens, tokens_per_block)
    if rest or not 0 <= hit_tokens <= tokens:
        raise ValueError(
            f"request {number}: hit_tokens is {hit_tokens}, not a multiple of {tokens_per_block} from 0 to {tokens}"
        )
    return blocks


def _result(hits: Sequence[int], hit_tokens: int, requests: Sequence[Request], refused: int = 0) -> Replay:
    blocks = sum(len(request.block_ids) for request in requests)
    return Replay(tuple(hits), hit_tokens, blocks, sum(request.input_tokens for request in requests), refused)
