"""What a trace looks like in numbers: how many, how fast, how long, and how much could be reused at best."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from kvcourse.workload.arrivals import gap_cv
from kvcourse.workload.lru import LRU
from kvcourse.workload.trace import Request


@dataclass(frozen=True)
class Lengths:
    """Lengths in tokens; percentiles by nearest rank."""

    total: int
    mean: float
    p50: int
    p99: int
    most: int


@dataclass(frozen=True)
class TraceStats:
    """One pass over a trace; `reuse` is None for a trace of lengths only."""

    requests: int
    sessions: int  # conversations the trace names
    seconds: float  # from the first arrival to the last
    gap_cv: float  # of the gaps between arrivals; nan if undefined
    input: Lengths
    output: Lengths
    reuse: Reuse | None

    @property
    def rate(self) -> float:
        """Requests a second; nan when all come at once."""
        return self.requests / self.seconds if self.seconds else math.nan


@dataclass(frozen=True)
class Reuse:
    """Blocks, and what a cache without limit would find again."""

    blocks: int
    distinct: int
    longest: int  # blocks of the longest prompt
    hit_blocks: int
    hit_tokens: int
    ceiling: float  # share of all prompt tokens
    whole_prompts: int  # requests whose blocks were all there
    first_block_share: float  # of the requests, those with the most common first block
    session_mean: float  # ceiling of a conversation; nan without sessions
    session_median: float


def trace_statistics(requests: Iterable[Request], block_size: int) -> TraceStats:
    """The statistics in one pass, holding two lengths and a time for each request; ValueError if there are none."""
    arrivals, inputs, outputs = [], [], []
    reuse = _ReuseCounter(block_size)
    sessions = set()
    for request in requests:
        arrivals.append(request.arrival)
        inputs.append(request.input_tokens)
        outputs.append(request.output_tokens)
        if request.session:
            sessions.add(request.session)
        if block_size:
            reuse.add(request)
    if not arrivals:
        raise ValueError("a trace without requests has no statistics")
    arrivals.sort()
    return TraceStats(
        requests=len(arrivals),
        sessions=len(sessions),
        seconds=arrivals[-1] - arrivals[0],
        gap_cv=gap_cv(arrivals),
        input=_lengths(inputs),
        output=_lengths(outputs),
        reuse=reuse.result(sum(inputs)) if block_size else None,
    )


class _ReuseCounter:
    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._cache = LRU(None)
        self._first: Counter[int] = Counter()
        self._sessions: dict[str, list[int]] = {}  # hit tokens, tokens
        self._requests = self._blocks = self._longest = self._hits = self._tokens = self._whole = 0

    def add(self, request: Request) -> None:
        ids = request.block_ids
        hits = self._cache.access(ids)
        tokens = min(hits * self._size, request.input_tokens)
        self._requests += 1
        self._blocks += len(ids)
        self._longest = max(self._longest, len(ids))
        self._hits += hits
        self._tokens += tokens
        self._whole += bool(ids) and hits == len(ids)
        self._first.update(ids[:1])
        if request.session:
            entry = self._sessions.setdefault(request.session, [0, 0])
            entry[0] += tokens
            entry[1] += request.input_tokens

    def result(self, all_tokens: int) -> Reuse:
        ratios = [hit / tokens for hit, tokens in self._sessions.values() if tokens] or [math.nan]
        common = max(self._first.values(), default=0)
        return Reuse(
            blocks=self._blocks,
            distinct=len(self._cache),
            longest=self._longest,
            hit_blocks=self._hits,
            hit_tokens=self._tokens,
            ceiling=self._tokens / all_tokens if all_tokens else 0.0,
            whole_prompts=self._whole,
            first_block_share=common / self._requests,
            session_mean=fmean(ratios),
            session_median=median(ratios),
        )


def _lengths(values: list[int]) -> Lengths:
    ranked, count = sorted(values), len(values)
    p50, p99 = (ranked[math.ceil(share * count) - 1] for share in (0.50, 0.99))
    return Lengths(sum(ranked), sum(ranked) / count, p50, p99, ranked[-1])
