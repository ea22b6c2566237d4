"""A request, a trace, and the two conventions about the last block.

A prompt is cut into blocks of `block_size` tokens. A block's id stands for the block and everything before it, so an
equal id means a prefix that can be reused. The last block of a prompt is seldom full, and traces differ in what they
do with it: convention "A" uses all ids as the trace has them, convention "F" only those of full blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvcourse.workload.content import Segment


@dataclass(frozen=True, slots=True)
class Request:
    """What a trace knows of one request: when, how long, and which blocks; seldom the tokens themselves."""

    arrival: float  # seconds, on the clock of the trace
    input_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...] = ()
    session: str = ""  # the conversation, where the trace names it
    kind: str = ""  # "chat", "agent", …, where the trace says so
    content: tuple[Segment, ...] = ()  # the prompt itself: synthetic traces only
    answer: tuple[Segment, ...] = ()  # what the next turn repeats as the answer: synthetic traces only

    def prompt(self) -> list[int]:
        """The token ids of the prompt; ValueError for a request that carries no content."""
        if not self.content:
            raise ValueError("this request has no content: a trace file has lengths and block ids only")
        return [token for segment in self.content for token in segment.token_ids()]


@dataclass(frozen=True)
class Trace:
    """Requests in the order a replay serves them, and the block convention they follow."""

    name: str
    requests: tuple[Request, ...]
    block_size: int = 0  # tokens; 0 when the trace has lengths only
    partial_last: bool = False  # does a last block that is not full have an id?

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    @property
    def has_blocks(self) -> bool:
        return self.block_size > 0

    @property
    def input_tokens(self) -> int:
        return sum(request.input_tokens for request in self.requests)

    @property
    def blocks(self) -> int:
        """All block ids of all requests, repeats included."""
        return sum(len(request.block_ids) for request in self.requests)

    def distinct_blocks(self) -> int:
        return len({block for request in self.requests for block in request.block_ids})

    def convention(self, letter: str) -> Trace:
        """The trace under convention "A" (all ids, as it is) or "F" (ids of full blocks only)."""
        if letter not in ("A", "F"):
            raise ValueError(f"convention {letter!r} is not known: 'A' (all ids) or 'F' (full blocks only)")
        if letter == "A" or not self.partial_last:
            return self
        cut = tuple(_full_blocks_only(request, self.block_size) for request in self.requests)
        return replace(self, requests=cut, partial_last=False)

    def by_arrival(self) -> Trace:
        """The same requests, earliest first; those that arrive together keep their order."""
        return replace(self, requests=tuple(sorted(self.requests, key=lambda request: request.arrival)))

    def head(self, count: int) -> Trace:
        """The first `count` requests."""
        return replace(self, requests=self.requests[:count])

    def sessions(self) -> dict[str, Trace]:
        """One trace for each conversation, in order of first appearance; requests without a session stand under ""."""
        groups: dict[str, list[Request]] = {}
        for request in self.requests:
            groups.setdefault(request.session, []).append(request)
        return {name: replace(self, requests=tuple(requests)) for name, requests in groups.items()}


def broken_chains(trace: Trace) -> list[str]:
    """Contradictions to the meaning of an id, one sentence each: an id under two parents, or twice in a prompt."""
    parents: dict[int, int | None] = {}
    found = []
    for number, request in enumerate(trace):
        ids = request.block_ids
        if len(set(ids)) != len(ids):
            found.append(f"request {number} has the same block id twice")
        for parent, block in zip((None, *ids), ids, strict=False):
            if parents.setdefault(block, parent) != parent:
                found.append(f"request {number}: block {block} stands behind {parent}, before behind {parents[block]}")
    return found


def _full_blocks_only(request: Request, block_size: int) -> Request:
    full = request.input_tokens // block_size
    return request if len(request.block_ids) <= full else replace(request, block_ids=request.block_ids[:full])
