"""The best any cache of that size could do: Belady's rule, which knows the future.

The block whose next use lies furthest ahead goes first (of a chain that is next used together, the tail first), and a
block that would itself be the first to go is not put in at all. Both rules keep prefixes whole. This is the "optimal"
policy of kvcache-simulator; Belady, "A study of replacement algorithms for a virtual-storage computer", 1966.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from kvcourse.workload.lru import check_capacity
from kvcourse.workload.trace import Trace


def optimal(trace: Trace) -> Callable[[int], Belady]:
    """A maker of Belady caches for this trace: `optimal(trace)(capacity)`; the look into the future is taken once."""
    future = next_uses(trace)
    return lambda capacity: Belady(capacity, future)


def next_uses(trace: Trace) -> list[list[int]]:
    """For every request and block: the number of the next request that uses the block, len(trace) for none."""
    last: dict[int, int] = {}
    future: list[list[int]] = []
    for number in range(len(trace) - 1, -1, -1):
        ids = trace.requests[number].block_ids
        future.append([last.get(block, len(trace)) for block in ids])
        last.update(dict.fromkeys(ids, number))
    future.reverse()
    return future


class Belady:
    """A cache that serves the requests of one trace, in order; `future` comes from `next_uses`."""

    def __init__(self, capacity: int | None, future: list[list[int]]) -> None:
        check_capacity(capacity)
        self.capacity = capacity
        self._future = future
        self._served = 0
        self._next: dict[int, int] = {}  # cached block -> its next use
        self._furthest: list[tuple[int, int, int]] = []  # heap of (-next use, -depth, block), some out of date

    def access(self, ids: Sequence[int]) -> int:
        uses = self._future[self._served]
        assert len(uses) == len(ids), f"request {self._served} is not the one of the trace"
        self._served += 1
        hits, chain_whole = 0, True
        for depth, (block, use) in enumerate(zip(ids, uses, strict=True)):
            if block in self._next:
                hits += chain_whole
            else:
                chain_whole = False
                if not self._room_for(use):
                    break
            self._next[block] = use
            heapq.heappush(self._furthest, (-use, -depth, block))
        return hits

    def _room_for(self, use: int) -> bool:
        """Make room for a block next used at `use`; False if all cached blocks are wanted sooner or as soon."""
        if self.capacity is None or len(self._next) < self.capacity:
            return True
        heap = self._furthest
        while self._next.get(heap[0][2]) != -heap[0][0]:
            heapq.heappop(heap)
        if -heap[0][0] <= use:
            return False
        del self._next[heapq.heappop(heap)[2]]
        return True

    def __len__(self) -> int:
        return len(self._next)
