"""Block tables of the running requests: asks the prefix cache and the tiers, checks them, keeps the ledger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kvcourse.engine.blocks import BlockLedger
from kvcourse.engine.guard import CACHE, TIERS, ask, check_allocation, check_append, check_match, check_tiers
from kvcourse.engine.metrics import EngineMetrics
from kvcourse.engine.request import Request
from kvcourse.engine.sockets import PrefixCache, SocketError, Tiers

if TYPE_CHECKING:
    from torch import Tensor

    from kvcourse.engine.pool import KVPool


class BlockManager:
    """Places tokens into blocks. `report` gets the faults of sockets that fail no request."""

    def __init__(
        self,
        cache: PrefixCache,
        tiers: Tiers | None,
        pool: KVPool,
        metrics: EngineMetrics,
        report: Callable[[SocketError], None],
    ) -> None:
        self.cache, self.tiers, self.pool, self.metrics, self.report = cache, tiers, pool, metrics, report
        self.block_size = pool.block_size
        self.ledger = BlockLedger(pool.num_blocks, pool.block_size)
        self._news: dict[str, list] = {"found": [], "stored": [], "removed": []}
        self._just_filled: list[tuple[bytes, int]] = []

    def num_missing(self, request: Request) -> int:
        """Tokens of a waiting request that must be computed: they are neither in the pool nor in a tier."""
        hits = self._match(request)
        return request.num_tokens - (len(hits) + len(self._find(request, len(hits)))) * self.block_size

    def admit(self, request: Request, num_tokens: int) -> int:
        """Place the cached tokens of a waiting request and up to `num_tokens` more; how many more, 0 if no room.

        Looks the prefix up again: since the plan was made, blocks may have gone, or come with an earlier row.
        """
        assert not request.block_table and request.num_placed == 0
        hits = self._match(request)
        loads = self._load(request, len(hits))
        start = (len(hits) + len(loads)) * self.block_size
        count = min(num_tokens, request.num_tokens - start)
        try:
            answer = ask(CACHE, self.cache, "allocate", request.id, request.tokens[: start + count], request.extra)
            if answer is None:
                self._unload(request, len(hits), loads)
                return 0
            table = check_allocation(answer, request, start + count, hits, self.ledger)
        except SocketError:
            self._unload(request, len(hits), loads)
            with suppress(Exception):  # the cache may or may not know the request
                self.cache.free(request.id)
            raise
        for block in hits:
            self.ledger.share(block)
        for block in table[len(hits) :]:
            self._take(block)  # all old contents leave before anything new is written
        request.block_table = table
        request.num_placed = len(hits) * self.block_size
        self._count_found(request, 0, request.num_placed, tier=0)
        for tier, data in loads:
            self.pool.write(table[request.num_placed // self.block_size], data)
            self._count_found(request, request.num_placed, request.num_placed + self.block_size, tier)
            self._place(request, self.block_size, loaded=True)
        request.num_computed = request.num_placed
        return self._place(request, count)

    def extend(self, request: Request, num_tokens: int) -> int:
        """Place up to `num_tokens` more tokens of a running request; how many, fewer if blocks run out.

        An impossible answer ends the request, but the tokens handed over before it are computed all the same: the cache
        may share their blocks with others already.
        """
        placed = 0
        try:
            while placed < num_tokens:
                position = request.num_placed + placed
                answer = ask(CACHE, self.cache, "append", request.id, request.tokens[position])
                block = check_append(answer, request, position, self.ledger)
                if block is None:
                    break
                if position % self.block_size == 0:
                    self._take(block)
                    request.block_table.append(block)
                placed += 1
        except SocketError as error:
            request.error = error
        return self._place(request, placed)

    def commit(self) -> None:
        """The placed tokens have been computed: tell the tiers about the blocks that are full now."""
        for key, block in self._just_filled:
            if self.tiers is not None:
                self._tell("filled", key, self.pool.read(block))
        self._just_filled.clear()

    def release(self, request: Request) -> None:
        """Give all blocks of a request back."""
        try:
            ask(CACHE, self.cache, "free", request.id)
        except SocketError as error:
            self.report(error)
        for block in request.block_table:
            self.ledger.drop(block)
        request.block_table = []
        request.num_placed = request.num_computed = 0

    def take_news(self) -> dict[str, tuple]:
        """What was found for admitted requests, and keys of contents that came or left, since the last call."""
        news = {kind: tuple(keys) for kind, keys in self._news.items()}
        for keys in self._news.values():
            keys.clear()
        return news

    def _match(self, request: Request) -> list[int]:
        found = ask(CACHE, self.cache, "match", request.tokens, request.extra)
        return check_match(found, request, self.ledger)

    def _find(self, request: Request, num_hits: int) -> list[int]:
        """The tiers of the blocks after the hits; a faulty answer is reported and counts as nothing found."""
        last = (request.num_tokens - 1) // self.block_size
        if self.tiers is None or num_hits >= last:
            return []
        keys = [request.block_key(index, self.block_size) for index in range(num_hits, last)]
        try:
            return check_tiers(ask(TIERS, self.tiers, "find", keys), len(keys))
        except SocketError as error:
            self.report(error)
            return []

    def _load(self, request: Request, num_hits: int) -> list[tuple[int, Tensor]]:
        """The contents themselves, read before any block is taken: taking one may push out what is loaded here."""
        loads: list[tuple[int, Tensor]] = []
        for index, tier in enumerate(self._find(request, num_hits), num_hits):
            try:
                data = ask(TIERS, self.tiers, "load", request.block_key(index, self.block_size))
                if data is None:
                    break
                self.pool.check_block(data)
            except SocketError as error:
                self.report(error)
                break
            loads.append((tier, data))
        return loads

    def _take(self, block: int) -> None:
        """Start a new tenure of `block`; if that drops the last copy of a content, the tiers may keep it."""
        key = self.ledger.key[block]
        if key is not None and self.ledger.holders[key] == 1 and self.tiers is not None:
            self._tell("evicted", key, self.pool.read(block))
        gone = self.ledger.forget(block)
        if gone is not None:
            self._news["removed"].append(gone)
        self.ledger.take(block)

    def _place(self, request: Request, count: int, loaded: bool = False) -> int:
        """Book `count` tokens into the slots after `num_placed`; blocks that are full now get their key."""
        end = request.num_placed + count
        while request.num_placed < end:
            index, offset = divmod(request.num_placed, self.block_size)
            block, part = request.block_table[index], min(self.block_size - offset, end - request.num_placed)
            if self.ledger.fill(block, offset, part):
                key = request.block_key(index, self.block_size)
                if self.ledger.seal(block, key):
                    self._news["stored"].append(key)
                if not loaded:
                    self._just_filled.append((key, block))
            request.num_placed += part
        return count

    def _count_found(self, request: Request, start: int, end: int, tier: int) -> None:
        if end > start:
            request.metrics.count_found(start, end, tier, self.metrics)
            self._news["found"].append((request.id, tier, end - start))

    def _unload(self, request: Request, num_hits: int, loads: list[tuple[int, Tensor]]) -> None:
        """The request finds no room: give what was loaded for it back to the tiers."""
        for index, (_, data) in enumerate(loads, num_hits):
            self._tell("evicted", request.block_key(index, self.block_size), data)

    def _tell(self, method: str, key: bytes, data: Tensor) -> None:
        try:
            ask(TIERS, self.tiers, method, key, data)
        except SocketError as error:
            self.report(error)
