"""The oracle with an engine's last block: what a real prefix cache does that a plain LRU of ids does not.

An engine computes at least one token of every prompt, so the last block of a prompt that is cached to the end is
computed again, in a block of its own. And a last block that is not full has no id under convention "F", yet it takes
a block while its request runs. Both move the hits by a few blocks in ten thousand, which matters where counts are
compared exactly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Literal

from kvcourse.workload.lru import check_capacity
from kvcourse.workload.trace import Trace

Copies = Literal["first", "both"]


def as_engine(trace: Trace, copies: Copies = "first") -> Callable[[int], EngineLRU]:
    """A maker of EngineLRU caches for this trace: `as_engine(trace)(capacity)`."""
    return lambda capacity: EngineLRU(capacity, trace, copies)


class EngineLRU:
    """Least recently used, tails before heads, over numbered blocks; serves the requests of one trace, in order.

    Hits end at (prompt - 1) // block size blocks. Blocks without an id are the first to be used again. A block that
    is computed although its id is cached stays without an id (`copies="first"`) or becomes a second copy, of which
    the older one is hit (`"both"`, as in vLLM). A prompt of more blocks than the capacity is refused and changes
    nothing.
    """

    def __init__(self, capacity: int, trace: Trace, copies: Copies = "first") -> None:
        check_capacity(capacity)
        if capacity is None or copies not in ("first", "both"):
            raise ValueError(f"an engine has a capacity and keeps the 'first' copy or 'both', not {copies!r}")
        self._both = copies == "both"
        self._trace, self._served = trace, 0
        self._capacity = capacity
        self._queue: OrderedDict[int, int | None] = OrderedDict.fromkeys(range(capacity))  # block -> id, oldest first
        self._where: dict[int, list[int]] = {}  # id -> blocks that hold it, oldest copy first

    def access(self, ids: Sequence[int]) -> int:
        tokens, size = self._trace.requests[self._served].input_tokens, self._trace.block_size
        self._served += 1
        if -(-tokens // size) > self._capacity:
            return 0
        found = self._find(ids[: max(0, tokens - 1) // size])
        held = [(block, self._queue.pop(block)) for block in found]
        for position in range(len(found), -(-tokens // size)):
            block, name = self._take(), ids[position] if position < len(ids) else None
            if name in self._where and not self._both:
                name = None
            if name is not None:
                self._where.setdefault(name, []).append(block)
            held.append((block, name))
        for block, name in reversed(held):
            self._queue[block] = name
            if name is None:
                self._queue.move_to_end(block, last=False)
        return len(found)

    def _find(self, ids: Sequence[int]) -> list[int]:
        found = []
        for name in ids:
            if name not in self._where:
                break
            found.append(self._where[name][0])
        return found

    def _take(self) -> int:
        block, name = self._queue.popitem(last=False)
        if name is not None:
            self._where[name].remove(block)
            if not self._where[name]:
                del self._where[name]
        return block
