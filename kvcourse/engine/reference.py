"""Correct parts to compare with: a prefix cache and a tier in memory. The learner builds better ones in the lessons."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvcourse.engine.blocks import chain_key, num_blocks_for, root_key
from kvcourse.engine.sockets import Allocation, Extra

if TYPE_CHECKING:
    from torch import Tensor


class PrefixCache:
    """Finds full blocks by chained sha256 keys. Blocks without users are kept, and taken least recently used first.

    idle: blocks without users, the next one to be taken first. Those without content stand in front; of a request's
    blocks the tail stands before the head, since a block is useless without those before it.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.idle: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))
        self.users = [0] * num_blocks
        self.key_of: dict[int, bytes] = {}
        self.block_of: dict[bytes, dict[int, None]] = {}  # two blocks may hold the same content
        self.tables: dict[int, list[int]] = {}
        self.tokens: dict[int, list[int]] = {}
        self.parents: dict[int, bytes] = {}  # key of the last full block of each request
        self.counts = Counter(hit_tokens=0, asked_tokens=0, evictions=0)

    def match(self, tokens: Sequence[int], extra: Extra = ()) -> list[int]:
        found: list[int] = []
        key = root_key(extra)
        for start in range(0, len(tokens) - self.block_size, self.block_size):  # one token is always left to compute
            key = chain_key(key, tokens[start : start + self.block_size])
            if key not in self.block_of:
                break
            found.append(next(iter(self.block_of[key])))
        return found

    def allocate(self, request_id: int, tokens: Sequence[int], extra: Extra = ()) -> Allocation | None:
        if request_id in self.tables:
            raise ValueError(f"request {request_id} has its blocks already")
        hits = self.match(tokens, extra)
        num_new = num_blocks_for(len(tokens), self.block_size) - len(hits)
        idle_hits = sum(self.users[block] == 0 for block in hits)  # they leave the idle ones too
        if num_new > len(self.idle) - idle_hits:
            return None
        for block in hits:
            self.users[block] += 1
            self.idle.pop(block, None)
        self.tables[request_id] = hits + [self._take() for _ in range(num_new)]
        self.tokens[request_id] = list(tokens)
        self.parents[request_id] = self.key_of[hits[-1]] if hits else root_key(extra)
        for index in range(len(hits), len(tokens) // self.block_size):
            self._publish(request_id, index)
        self.counts.update(hit_tokens=len(hits) * self.block_size, asked_tokens=len(tokens))
        return Allocation(list(self.tables[request_id]), len(hits) * self.block_size)

    def append(self, request_id: int, token: int) -> int | None:
        table, tokens = self.tables[request_id], self.tokens[request_id]
        if len(tokens) == len(table) * self.block_size:
            if not self.idle:
                return None
            table.append(self._take())
        tokens.append(token)
        if len(tokens) % self.block_size == 0:
            self._publish(request_id, len(table) - 1)
        return table[-1]

    def free(self, request_id: int) -> None:
        if request_id not in self.tables:
            raise ValueError(f"request {request_id} has no blocks: it was freed before, or never came")
        for block in reversed(self.tables.pop(request_id)):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.idle[block] = None
                if block not in self.key_of:
                    self.idle.move_to_end(block, last=False)
        del self.tokens[request_id], self.parents[request_id]

    def stats(self) -> dict[str, int]:
        free = len(self.idle)
        return {"free": free, "referenced": self.num_blocks - free, "cached": len(self.key_of), **self.counts}

    def check(self) -> None:
        """AssertionError if users, idle blocks and keys do not agree."""
        users = Counter(block for table in self.tables.values() for block in table)
        assert [users[block] for block in range(self.num_blocks)] == self.users
        assert set(self.idle) == {block for block in range(self.num_blocks) if not users[block]}
        assert {(key, block) for key, blocks in self.block_of.items() for block in blocks} == {
            (key, block) for block, key in self.key_of.items()
        }

    def _take(self) -> int:
        """The first idle block, its old content forgotten."""
        block, _ = self.idle.popitem(last=False)
        if block in self.key_of:
            key = self.key_of.pop(block)
            del self.block_of[key][block]
            if not self.block_of[key]:
                del self.block_of[key]
            self.counts["evictions"] += 1
        self.users[block] = 1
        return block

    def _publish(self, request_id: int, index: int) -> None:
        """Block `index` of the request is full: from now on it can be found."""
        start = index * self.block_size
        key = chain_key(self.parents[request_id], self.tokens[request_id][start : start + self.block_size])
        block = self.tables[request_id][index]
        self.parents[request_id] = self.key_of[block] = key
        self.block_of.setdefault(key, {})[block] = None


class MemoryTier:
    """One lower tier (G2) without a limit: keeps what leaves the pool, gives copies back."""

    def __init__(self, write_through: bool = False) -> None:
        self.write_through = write_through
        self.blocks: dict[bytes, Tensor] = {}

    def filled(self, key: bytes, block: Tensor) -> None:
        if self.write_through:
            self.evicted(key, block)

    def evicted(self, key: bytes, block: Tensor) -> None:
        if key not in self.blocks:
            self.blocks[key] = block.clone()

    def find(self, keys: Sequence[bytes]) -> list[int]:
        tiers: list[int] = []
        for key in keys:
            if key not in self.blocks:
                break
            tiers.append(1)
        return tiers

    def load(self, key: bytes) -> Tensor | None:
        return self.blocks.get(key)
