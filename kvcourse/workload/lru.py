"""Caches of block ids, short enough to be believed: the oracles that a real prefix cache is measured against.

The rule of all of them: a request hits the longest prefix of its ids that is present when it arrives; then all its
ids are put in; the request takes no time. They hold ids only, no tokens, no references.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol


class BlockCache(Protocol):
    """What a replay needs of a cache of block ids."""

    def access(self, ids: Sequence[int]) -> int:
        """Serve one request and return how many of its first blocks were present."""
        ...


class LRU:
    """The least recently used block goes first; `capacity` in blocks, None for no limit.

    After a request its blocks are the most recent ones. With `touch="tail_first"` (the default) the head is the
    newest, so a prompt loses its tail before its head and no block outlives its prefix; "head_first" is the common
    mistake. A prompt longer than the capacity keeps its first blocks (its last ones with "head_first").
    """

    def __init__(self, capacity: int | None = None, touch: Literal["tail_first", "head_first"] = "tail_first") -> None:
        check_capacity(capacity)
        if touch not in ("tail_first", "head_first"):
            raise ValueError(f"touch {touch!r} is neither 'tail_first' nor 'head_first'")
        self.capacity = capacity
        self._tail_first = touch == "tail_first"
        self._blocks: OrderedDict[int, None] = OrderedDict()  # oldest first

    def access(self, ids: Sequence[int]) -> int:
        blocks, hits = self._blocks, self.match(ids)
        found, new = ids[:hits], ids[hits:]
        if self._tail_first:
            self._add(new[::-1])
            self._renew(found[::-1])
        else:
            self._renew(found)
            self._add(new)
        if self.capacity is not None:
            oldest = blocks.popitem
            for _ in range(len(blocks) - self.capacity):
                oldest(last=False)
        return hits

    def _add(self, ids: Sequence[int]) -> None:
        blocks, before = self._blocks, len(self._blocks)
        for block in ids:
            blocks[block] = None
        if len(blocks) - before < len(ids):  # some were there, behind a hole
            self._renew(ids)

    def _renew(self, ids: Sequence[int]) -> None:
        newest = self._blocks.move_to_end
        for block in ids:
            newest(block)

    def match(self, ids: Sequence[int]) -> int:
        """Blocks of the longest prefix present; changes nothing."""
        return _prefix_present(ids, self._blocks)

    def order(self) -> list[int]:
        """The blocks from the next to be evicted to the newest."""
        return list(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: int) -> bool:
        return block in self._blocks


class FIFO:
    """The block that came first goes first, used or not; one leaves for each that enters, head before tail."""

    def __init__(self, capacity: int | None = None) -> None:
        check_capacity(capacity)
        self.capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def access(self, ids: Sequence[int]) -> int:
        hits = self.match(ids)
        for block in ids:
            if block in self._blocks:
                continue
            if self.capacity is not None and len(self._blocks) >= self.capacity:
                self._blocks.popitem(last=False)
            self._blocks[block] = None
        return hits

    def match(self, ids: Sequence[int]) -> int:
        """Blocks of the longest prefix present; changes nothing."""
        return _prefix_present(ids, self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)


def _prefix_present(ids: Sequence[int], present: Iterable[int]) -> int:
    count = 0
    for block in ids:
        if block not in present:
            break
        count += 1
    return count


def check_capacity(capacity: int | None) -> None:
    if capacity is not None and (not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1):
        raise ValueError(f"capacity {capacity!r} is not a positive number of blocks (None means no limit)")
