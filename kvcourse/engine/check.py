"""The invariants of the engine, checked with one call."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvcourse.engine.blocks import num_blocks_for

if TYPE_CHECKING:
    from kvcourse.engine.engine import Engine


def check_engine(engine: Engine) -> None:
    """AssertionError naming the first invariant that does not hold. To be called between steps."""
    check_tables(engine)
    check_contents(engine)
    check_cache(engine)
    check_counts(engine)


def check_tables(engine: Engine) -> None:
    """Free + referenced = pool, and every table has just the blocks that its tokens need."""
    ledger, running = engine.memory.ledger, engine.batcher.running.values()
    users = Counter(block for request in running for block in request.block_table)
    assert [users[b] for b in range(ledger.num_blocks)] == ledger.users, "users of a block = tables that name it"
    assert sum(count > 0 for count in ledger.users) == ledger.num_used, "blocks in use are counted right"
    for request in running:
        need = num_blocks_for(request.num_placed, ledger.block_size)
        assert len(request.block_table) == need, f"request {request.id}: {request.num_placed} tokens need {need} blocks"
        assert len(set(request.block_table)) == need, f"request {request.id}: a block stands twice in its table"
    assert list(engine.batcher.waiting) == sorted(engine.batcher.waiting), "the queue is oldest first"
    for request in engine.batcher.waiting.values():
        assert not request.block_table and request.num_placed == 0, f"request {request.id} waits, but holds blocks"
    seats = [request.seat for request in running] + list(engine.builder.free_seats)
    assert sorted(seats) == list(range(engine.batcher.max_running)), "every seat is taken once or free"


def check_contents(engine: Engine) -> None:
    """Every full block of a request holds exactly its tokens; a partial block belongs to one request."""
    ledger = engine.memory.ledger
    assert ledger.holders == Counter(key for key in ledger.key if key is not None), "contents are counted right"
    for request in engine.batcher.running.values():
        full, rest = divmod(request.num_placed, ledger.block_size)
        for index, block in enumerate(request.block_table[:full]):
            right = ledger.key[block] == request.block_key(index, ledger.block_size)
            assert right, f"request {request.id}: block {block} has another content"
        if rest:
            last = request.block_table[-1]
            assert ledger.users[last] == 1 and ledger.key[last] is None, f"partial block {last} is shared or cached"
            assert ledger.filled[last] == rest, f"block {last} has {ledger.filled[last]} slots written, not {rest}"


def check_cache(engine: Engine) -> None:
    """The prefix cache agrees with the ledger, and what it finds has exactly the content that was asked for."""
    cache, ledger = engine.memory.cache, engine.memory.ledger
    stats = cache.stats()
    if "free" in stats and "referenced" in stats:
        assert stats["free"] + stats["referenced"] == ledger.num_blocks, f"free + referenced = pool, got {stats}"
        assert stats["referenced"] == ledger.num_used, f"{ledger.num_used} blocks are in use, got {stats}"
    for group in (engine.batcher.running, engine.batcher.waiting):
        for request in group.values():
            for index, block in enumerate(cache.match(request.tokens, request.extra)):
                key = request.block_key(index, ledger.block_size)
                assert ledger.key[block] == key, f"block {block} is found for request {request.id}: wrong content"
    if hasattr(cache, "check"):
        cache.check()


def check_counts(engine: Engine) -> None:
    """Every token was covered once: reused, loaded or computed; totals are the sums over the requests."""
    names = ("computed", "recomputed", "reused", "regained", "preemptions")
    total: Counter[str] = Counter()
    for group in (engine.batcher.running, engine.batcher.waiting, engine.finished):
        for request in group.values():
            m = request.metrics
            found = m.reused + sum(m.loaded.values())
            assert m.covered == found + m.computed - m.recomputed, f"request {request.id}: counts do not add up"
            assert request.num_computed <= m.covered <= request.num_tokens
            if request.finish_reason in ("length", "eos"):
                assert m.covered == request.num_tokens - 1, f"request {request.id}: a token was never covered"
            total.update({name: getattr(m, name) for name in names})
            total.update({f"tier {tier}": tokens for tier, tokens in m.loaded.items()})
    ours = {name: getattr(engine.metrics, name) for name in names}
    ours |= {f"tier {tier}": tokens for tier, tokens in engine.metrics.loaded.items()}
    assert +total == +Counter(ours), f"the engine counts {ours}, its requests {dict(total)}"
