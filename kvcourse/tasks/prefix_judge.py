"""A referee for prefix caches: it watches every call and says whether the answer follows the rules of lesson 2.

It finds nothing quickly: what a block holds is written down as the whole prefix, token by token, and every question is
decided by looking at all blocks. Where the rules leave the number of a block open, any is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

NAMES_OF_COUNTS = ("free", "referenced", "cached", "hit_tokens", "asked_tokens", "evictions")


class Step(NamedTuple):
    """One call: "allocate", "append", "free" or "match"."""

    kind: str
    request: int = 0
    tokens: tuple[int, ...] = ()
    extra: tuple = ()

    def arguments(self) -> tuple:
        """What the method of this name is called with."""
        request = () if self.kind == "match" else (self.request,)
        tokens = {"free": (), "append": self.tokens}.get(self.kind, (list(self.tokens),))
        return (*request, *tokens, *((self.extra,) if self.extra else ()))


class Verdict(NamedTuple):
    """An answer that the rules do not allow, in words."""

    expected: str
    got: str
    because: str
    tip: str


class BlockState(NamedTuple):
    """A block at one moment, ready to be drawn.

    tokens: those of the block itself, as far as it is filled; depth: its place in the prompt, from 0
    users: the requests whose tables name it; turn: 0 for the idle block that is handed out next, and so on
    """

    tokens: tuple[int, ...] = ()
    depth: int = 0
    extra: tuple = ()
    full: bool = False
    users: tuple[int, ...] = ()
    turn: int | None = None


@dataclass
class Block:
    content: tuple[tuple, tuple[int, ...]] | None = None  # extra, and all tokens up to the end of the block
    since: int = 0  # when it got its content
    left: tuple[int, int] = (0, 0)  # when its last user left; of a table the tail leaves first
    users: list[int] = field(default_factory=list)


@dataclass
class Request:
    table: list[int]
    tokens: tuple[int, ...]
    extra: tuple


class Judge:
    """The rules, applied to one cache of `num_blocks` blocks of `block_size` tokens."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.size = block_size
        self.blocks = [Block() for _ in range(num_blocks)]
        self.requests: dict[int, Request] = {}
        self.clock = 0
        self.asked_tokens = self.hit_tokens = self.evictions = 0

    def watch(self, step: Step, answer: Any) -> Verdict | None:
        """The verdict on a wrong answer; None for an allowed one, which is noted."""
        self.clock += 1
        return getattr(self, f"_{step.kind}")(step, answer)

    def applies(self, step: Step) -> bool:
        """Is this a call that a caller may make now?"""
        return step.kind == "match" or (step.request in self.requests) == (step.kind != "allocate")

    def evicts(self, step: Step) -> bool:
        """Does the step need blocks that hold something?"""
        spare, need = self._spare(step), self._num_new(step)
        return len(self._empty(spare)) < need <= len(spare)

    def counts(self) -> dict[str, int]:
        """What `stats` must say."""
        free = sum(not block.users for block in self.blocks)
        cached = sum(block.content is not None for block in self.blocks)
        numbers = (free, len(self.blocks) - free, cached, self.hit_tokens, self.asked_tokens, self.evictions)
        return dict(zip(NAMES_OF_COUNTS, numbers, strict=True))

    def states(self) -> list[BlockState]:
        """All blocks as they are now."""
        turns = {block: turn for turn, block in enumerate(self._spare(Step("look")))}
        states = []
        for number, block in enumerate(self.blocks):
            tokens: tuple[int, ...] = ()
            extra: tuple = ()
            depth = 0
            if block.content is not None:
                extra, tokens = block.content
                depth = len(tokens) // self.size - 1
            elif block.users:
                user = self.requests[block.users[0]]
                extra, tokens, depth = user.extra, user.tokens, user.table.index(number)
            part = tokens[depth * self.size : (depth + 1) * self.size]
            states.append(
                BlockState(part, depth, extra, block.content is not None, tuple(block.users), turns.get(number))
            )
        return states

    # --- what the rules say

    def _found(self, step: Step) -> list[int]:
        """The blocks that a lookup must find: at every place the first holder, and one token left to compute."""
        blocks: list[int] = []
        for end in range(self.size, len(step.tokens), self.size):
            holders = [i for i, block in enumerate(self.blocks) if block.content == (step.extra, step.tokens[:end])]
            if not holders:
                break
            blocks.append(min(holders, key=lambda i: self.blocks[i].since))
        return blocks

    def _num_new(self, step: Step) -> int:
        """How many new blocks the step needs."""
        if step.kind == "allocate":
            return -(-len(step.tokens) // self.size) - len(self._found(step))
        return int(step.kind == "append" and len(self.requests[step.request].tokens) % self.size == 0)

    def _spare(self, step: Step) -> list[int]:
        """Idle blocks that may become new ones, in the order they are taken: empty ones, then the longest idle."""
        hits = self._found(step) if step.kind == "allocate" else []
        idle = [i for i, block in enumerate(self.blocks) if not block.users and i not in hits]
        return sorted(idle, key=lambda i: (self.blocks[i].content is not None, self.blocks[i].left))

    def _empty(self, blocks: list[int]) -> list[int]:
        return [i for i in blocks if self.blocks[i].content is None]

    # --- the four calls

    def _match(self, step: Step, answer: Any) -> Verdict | None:
        hits = self._found(step)
        if whole_numbers(answer) == hits:
            return None
        return Verdict(str(hits), shown(answer), self._why_found(step, hits), "look at find and match")

    def _allocate(self, step: Step, answer: Any) -> Verdict | None:
        hits, need, spare = self._found(step), self._num_new(step), self._spare(step)
        room = f"new blocks needed: {need}; idle blocks left for them: {len(spare)}"
        if need > len(spare):
            tip = "look for room before anything changes; a found block cannot be a new one as well"
            return None if answer is None else Verdict("None", shown(answer), room, tip)
        new = [self._new_in_words(spare, need)] if need else []
        want = f"block_table {' + '.join([str(hits)] * bool(hits) + new)}, hit_tokens {len(hits) * self.size}"
        if answer is None:
            return Verdict(want, "None", room, "every block without users is idle, whether it holds something or not")
        table, hit_tokens = whole_numbers(getattr(answer, "block_table", None)), getattr(answer, "hit_tokens", None)
        if table is None or type(hit_tokens) is not int:
            why = "the answer is an Allocation of a list of block numbers and a number of tokens"
        elif len(table) != len(hits) + need:
            why = f"{len(step.tokens)} tokens take {len(hits) + need} blocks of {self.size}"
        elif table[: len(hits)] != hits or hit_tokens != len(hits) * self.size:
            why = self._why_found(step, hits)
        else:
            why = self._why_not_new(table[len(hits) :], spare, need)
        if why or table is None:
            return Verdict(want, shown(answer), why, "follow the calls by hand, block by block")
        self._take(step.request, table[len(hits) :], hits)
        self.requests[step.request] = Request(table, step.tokens, step.extra)
        for place in range(len(hits), len(step.tokens) // self.size):
            self._fill(step.request, place)
        self.asked_tokens += len(step.tokens)
        self.hit_tokens += len(hits) * self.size
        return None

    def _append(self, step: Step, answer: Any) -> Verdict | None:
        request, need, spare = self.requests[step.request], self._num_new(step), self._spare(step)
        full = f"all blocks of request {step.request} are full" + ("" if spare else ", and no block is idle")
        if need == 0:
            want, wrong = str(request.table[-1]), type(answer) is not int or answer != request.table[-1]
            why = f"the last block of request {step.request} has room" if wrong else ""
        elif not spare:
            want, why = "None", full if answer is not None else ""
        else:
            want = self._new_in_words(spare, 1)
            why = self._why_not_new([answer], spare, 1) if type(answer) is int else full
        if why:
            return Verdict(want, shown(answer), why, "only a full last block needs a new one; count the tokens in it")
        if need and answer is None:
            return None
        if need:
            self._take(step.request, [answer], [])
            request.table.append(answer)
        request.tokens += step.tokens
        if len(request.tokens) % self.size == 0:
            self._fill(step.request, len(request.table) - 1)
        return None

    def _free(self, step: Step, answer: Any) -> Verdict | None:
        for place, number in enumerate(self.requests.pop(step.request).table):
            block = self.blocks[number]
            block.users.remove(step.request)
            if not block.users:
                block.left = (self.clock, -place)
        return None

    def _take(self, request: int, new: list[int], hits: list[int]) -> None:
        for number in new:
            self.evictions += self.blocks[number].content is not None
            self.blocks[number].content = None
        for number in [*hits, *new]:
            self.blocks[number].users.append(request)

    def _fill(self, request: int, place: int) -> None:
        """Block `place` of a request is full: it can be found from now on."""
        told = self.requests[request]
        self.clock += 1
        block = self.blocks[told.table[place]]
        block.content, block.since = (told.extra, told.tokens[: (place + 1) * self.size]), self.clock

    # --- reasons

    def _new_in_words(self, spare: list[int], need: int) -> str:
        empty = self._empty(spare)
        if need < len(empty):
            return f"{need} of {len(empty)} empty blocks" + (f", {sorted(empty)}" if len(empty) < 9 else "")
        return f"{sorted(spare[:need])}" + (" in any order" if need > 1 else "")

    def _why_not_new(self, new: list[int], spare: list[int], need: int) -> str:
        """Why these blocks may not be the new ones; "" if they may."""
        empty, allowed = self._empty(spare), spare[:need]
        for number in new:
            if not 0 <= number < len(self.blocks):
                return f"the blocks have the numbers 0 to {len(self.blocks) - 1}"
            if self.blocks[number].users:
                return f"block {number} is used by request {self.blocks[number].users[0]}"
            if number not in spare:
                return f"block {number} was found for this prompt: it cannot be a new one as well"
            if new.count(number) > 1:
                return f"block {number} stands twice in the table"
            if number not in empty and set(empty) - set(new):
                return f"block {number} holds something, and there is an idle block that holds nothing"
        wrong = next((number for number in new if number not in allowed and number not in empty), None)
        first = next((number for number in allowed if number not in new and number not in empty), None)
        return "" if wrong is None else f"block {first} became idle before block {wrong}"

    def _why_found(self, step: Step, hits: list[int]) -> str:
        """What decides how much of a prompt is found."""
        start, end = len(hits) * self.size, (len(hits) + 1) * self.size
        part, known = list(step.tokens[start:end]), [block.content for block in self.blocks if block.content]
        if end >= len(step.tokens):
            return f"blocks that can be found: {len(hits)}; the last token at least is computed"
        if any(tokens == step.tokens[:end] for _, tokens in known):
            return f"the tokens {part} are cached here only with other extras"
        if any(list(tokens[-self.size :]) == part for _, tokens in known):
            return f"the tokens {part} are cached, but not behind {list(step.tokens[:start])}"
        return f"no block holds the tokens {part} behind {list(step.tokens[:start])}"


def whole_numbers(answer: Any) -> list[int] | None:
    """The answer as a list of ints; None if it is something else."""
    if type(answer) not in (list, tuple) or any(type(number) is not int for number in answer):
        return None
    return list(answer)


def shown(answer: Any) -> str:
    if hasattr(answer, "block_table") and hasattr(answer, "hit_tokens"):
        return f"block_table {answer.block_table}, hit_tokens {answer.hit_tokens}"
    return repr(answer)[:200]
