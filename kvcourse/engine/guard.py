"""What a plugged-in part may answer. A check gives plain values back, or raises a `SocketError` with one sentence."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from kvcourse.engine.blocks import BlockLedger, num_blocks_for
from kvcourse.engine.request import Request, short
from kvcourse.engine.sockets import SocketError, Work

CACHE, TIERS, SCHEDULER = "prefix_cache", "tiers", "scheduler"


def ask(socket: str, part: Any, method: str, *args: Any) -> Any:
    """Call a method of a part; whatever goes wrong in it becomes a SocketError."""
    try:
        return getattr(part, method)(*args)
    except Exception as error:
        what = "it" if method == "__call__" else method
        raise SocketError(socket, f"{what} raised {type(error).__name__}: {error}") from error


def check_plan(plan: Any, running: list[Work], waiting: list[Work], budget: int) -> list[tuple[int, int]]:
    """The plan as (request id, tokens) pairs, at least one, of known requests, within their tokens and the budget."""
    have = {work.request_id: work.tokens for work in running + waiting}
    if not isinstance(plan, list | tuple):
        raise SocketError(SCHEDULER, f"a plan is a list of (request id, tokens), got {short(plan)}.")
    if not plan:
        raise SocketError(SCHEDULER, f"the plan is empty; {len(running)} requests run and {len(waiting)} can start.")
    pairs: dict[int, int] = {}
    for entry in plan:
        pair = [_whole(part) for part in entry] if isinstance(entry, list | tuple) else []
        if len(pair) != 2 or None in pair:
            raise SocketError(SCHEDULER, f"an entry of a plan is (request id, tokens), got {short(entry)}.")
        request_id, tokens = pair
        if request_id in pairs:
            raise SocketError(SCHEDULER, f"the plan names request {request_id} twice.")
        if request_id not in have:
            raise SocketError(SCHEDULER, f"the plan names request {request_id}, which is none of {short(list(have))}.")
        if not 1 <= tokens <= have[request_id]:
            left = f"which has {have[request_id]} left"
            raise SocketError(SCHEDULER, f"the plan computes {tokens} tokens of request {request_id}, {left}.")
        pairs[request_id] = tokens
    total = sum(pairs.values())
    if total > budget:
        raise SocketError(SCHEDULER, f"the plan computes {total} tokens; the budget of a step is {budget}.")
    return list(pairs.items())


def check_match(found: Any, request: Request, ledger: BlockLedger) -> list[int]:
    """Blocks that hold exactly the leading tokens of the request, at least one token left over."""
    blocks = _block_list(found, "match", request, ledger)
    size, limit = ledger.block_size, (request.num_tokens - 1) // ledger.block_size
    if len(blocks) > limit:
        what = f"{len(blocks)} blocks of {size} for the {request.num_tokens} tokens of request {request.id}"
        raise SocketError(CACHE, f"match found {what}; at most {limit}, so that one token is left to compute.")
    for index, block in enumerate(blocks):
        if ledger.key[block] != request.block_key(index, size):
            holds = "holds other tokens" if ledger.key[block] else "is not full"
            where = f"tokens {index * size} to {(index + 1) * size - 1} of request {request.id}"
            raise SocketError(CACHE, f"match found block {block} for {where}, but that block {holds}.")
    return blocks


def check_allocation(answer: Any, request: Request, num_tokens: int, hits: list[int], ledger: BlockLedger) -> list[int]:
    """The block table for `num_tokens` tokens: the hits of `match`, then blocks that nobody uses."""
    if not hasattr(answer, "block_table") or not hasattr(answer, "hit_tokens"):
        raise SocketError(CACHE, f"allocate gave {short(answer)}; an Allocation has block_table and hit_tokens.")
    table = _block_list(answer.block_table, "allocate", request, ledger)
    need = num_blocks_for(num_tokens, ledger.block_size)
    if len(table) != need:
        what = f"{len(table)} blocks for {num_tokens} tokens of request {request.id}"
        raise SocketError(CACHE, f"allocate gave {what}; {need} are needed.")
    if _whole(answer.hit_tokens) != len(hits) * ledger.block_size:
        found = f"match had just found {len(hits)} blocks of {ledger.block_size} tokens"
        raise SocketError(CACHE, f"allocate gave hit_tokens {short(answer.hit_tokens)}; {found}.")
    if table[: len(hits)] != hits:
        raise SocketError(CACHE, f"allocate gave the table {short(table)}, but match had just found {short(hits)}.")
    for block in table[len(hits) :]:
        check_unused(block, "allocate", request, ledger)
    return table


def check_append(answer: Any, request: Request, position: int, ledger: BlockLedger) -> int | None:
    """The block that holds the token at `position`; None when a new one is needed and none is free."""
    needs_new = position % ledger.block_size == 0
    if answer is None:
        if not needs_new:
            last = f"the last block of request {request.id}"
            raise SocketError(CACHE, f"append found no room, but {last} has free slots.")
        return None
    block = _whole(answer)
    if block is None or not 0 <= block < ledger.num_blocks:
        raise _no_such_block("append", answer, request, ledger)
    if needs_new:
        check_unused(block, "append", request, ledger)
    elif block != request.block_table[-1]:
        last = f"the last block {request.block_table[-1]} of request {request.id}"
        raise SocketError(CACHE, f"append gave block {block}, but {last} has free slots.")
    return block


def check_unused(block: int, method: str, request: Request, ledger: BlockLedger) -> None:
    if ledger.users[block]:
        raise SocketError(CACHE, f"{method} gave block {block} to request {request.id} as new, but it is in use.")


def check_tiers(answer: Any, num_keys: int) -> list[int]:
    """Tier numbers from 1 on, for at most `num_keys` blocks."""
    tiers = [_whole(tier) for tier in answer] if isinstance(answer, list | tuple) else [None]
    if len(tiers) > num_keys or any(tier is None or tier < 1 for tier in tiers):
        want = "it gives a tier (1, 2 ...) for each leading block"
        raise SocketError(TIERS, f"find gave {short(answer)} for {num_keys} keys; {want}.")
    return tiers


def _block_list(blocks: Any, method: str, request: Request, ledger: BlockLedger) -> list[int]:
    if not isinstance(blocks, Sequence) or isinstance(blocks, str | bytes):
        raise SocketError(CACHE, f"{method} gave {short(blocks)} to request {request.id}, not a list of block ids.")
    numbers = [_whole(block) for block in blocks]
    for block, number in zip(blocks, numbers, strict=True):
        if number is None or not 0 <= number < ledger.num_blocks:
            raise _no_such_block(method, block, request, ledger)
    if len(set(numbers)) != len(numbers):
        twice = next(block for block in numbers if numbers.count(block) > 1)
        raise SocketError(CACHE, f"{method} gave block {twice} to request {request.id} twice.")
    return numbers


def _no_such_block(method: str, block: Any, request: Request, ledger: BlockLedger) -> SocketError:
    pool = f"the pool has blocks 0 to {ledger.num_blocks - 1}"
    return SocketError(CACHE, f"{method} gave block {short(block)} to request {request.id}; {pool}.")


def _whole(value: Any) -> int | None:
    """`value` as an int; None if it is no whole number (True and 3.0 are none)."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
