"""Blocks as numbers: content keys, the engine's own ledger of who uses which block, and the plain allocator."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Sequence
from hashlib import sha256

from kvcourse.engine.sockets import Allocation, Extra


def root_key(extra: Extra = ()) -> bytes:
    """What the first block's key is chained to: nothing, or the kinds and values that must agree besides the tokens."""
    return sha256(repr(tuple(map(tuple, extra))).encode()).digest() if extra else b""


def chain_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The key of a full block: its own tokens and, through `parent`, all tokens before. The same in every process."""
    return sha256(parent + array("q", tokens).tobytes()).digest()


def num_blocks_for(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


class BlockLedger:
    """What the engine itself knows about every block; answers of sockets are held against it.

    users: live block tables that name the block; filled: slots written since it was last taken
    key: the content of a full block, kept after its last user left, until the block is taken again
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.users = [0] * num_blocks
        self.filled = [0] * num_blocks
        self.key: list[bytes | None] = [None] * num_blocks
        self.holders: Counter[bytes] = Counter()  # two blocks may hold the same content
        self.num_used = 0

    def take(self, block: int) -> None:
        """A table gets `block` as a new one: its old content must have been forgotten before."""
        assert self.users[block] == 0 and self.key[block] is None
        self.users[block], self.filled[block] = 1, 0
        self.num_used += 1

    def share(self, block: int) -> None:
        """A table gets `block` for its content."""
        assert self.key[block] is not None
        self.num_used += self.users[block] == 0
        self.users[block] += 1

    def drop(self, block: int) -> None:
        """A table that named `block` is gone."""
        assert self.users[block] > 0
        self.users[block] -= 1
        self.num_used -= self.users[block] == 0

    def fill(self, block: int, offset: int, count: int) -> bool:
        """Slots offset .. offset + count - 1 get their keys and values; True when the block is full now."""
        assert self.users[block] == 1, "a shared block is never written"
        assert self.filled[block] == offset, "a slot is written once, in order"
        self.filled[block] += count
        assert self.filled[block] <= self.block_size
        return self.filled[block] == self.block_size

    def seal(self, block: int, key: bytes) -> bool:
        """The block is full and holds `key`; True when no other block held that content."""
        assert self.key[block] is None and self.filled[block] == self.block_size
        self.key[block] = key
        self.holders[key] += 1
        return self.holders[key] == 1

    def forget(self, block: int) -> bytes | None:
        """Drop the content of an unused block; its key if the content is now nowhere in the pool."""
        assert self.users[block] == 0
        key, self.key[block] = self.key[block], None
        if key is None:
            return None
        self.holders[key] -= 1
        if self.holders[key]:
            return None
        del self.holders[key]
        return key


class PlainAllocator:
    """The default `prefix_cache`: hands out blocks and never finds anything again."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.free_blocks = deque(range(num_blocks))
        self.tables: dict[int, list[int]] = {}
        self.lengths: dict[int, int] = {}

    def match(self, tokens: Sequence[int], extra: Extra = ()) -> list[int]:
        return []

    def allocate(self, request_id: int, tokens: Sequence[int], extra: Extra = ()) -> Allocation | None:
        assert request_id not in self.tables
        need = num_blocks_for(len(tokens), self.block_size)
        if need > len(self.free_blocks):
            return None
        self.tables[request_id] = [self.free_blocks.popleft() for _ in range(need)]
        self.lengths[request_id] = len(tokens)
        return Allocation(list(self.tables[request_id]), hit_tokens=0)

    def append(self, request_id: int, token: int) -> int | None:
        table = self.tables[request_id]
        if self.lengths[request_id] == len(table) * self.block_size:
            if not self.free_blocks:
                return None
            table.append(self.free_blocks.popleft())
        self.lengths[request_id] += 1
        return table[-1]

    def free(self, request_id: int) -> None:
        self.free_blocks.extend(self.tables.pop(request_id))
        del self.lengths[request_id]

    def stats(self) -> dict[str, int]:
        free = len(self.free_blocks)
        return {"free": free, "referenced": self.num_blocks - free}
