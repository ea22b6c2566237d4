"""A seeded generator of traces that behave like recorded ones, with real token ids behind the block ids.

Four kinds of session: chats that grow turn by turn under a popular system prompt, agents that call tools under a long
list of tools, questions about popular documents, and prompts that nobody repeats. Popularity is Zipf, lengths are
log-normal, sessions start in bursts. Equal block ids mean equal prefixes and the other way round: ids are given by
content.
"""

from __future__ import annotations

import math
from bisect import bisect, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from kvcourse.workload.arrivals import gaps
from kvcourse.workload.content import TOKEN_BYTES, Segment
from kvcourse.workload.trace import Request, Trace

KINDS = ("chat", "agent", "document", "one-off")


@dataclass(frozen=True)
class Length:
    """A log-normal number of tokens; `sigma` is the standard deviation of its logarithm."""

    median: int
    sigma: float

    def draw(self, rng: Random, most: int) -> int:
        return max(1, min(most, round(rng.lognormvariate(math.log(self.median), self.sigma))))


@dataclass(frozen=True)
class Workload:
    """What to generate; lengths in tokens, times in seconds."""

    requests: int = 2000
    block_size: int = 16
    vocab: int = 32_000
    first_token: int = 0  # smallest token id that may occur
    max_prompt: int = 8192  # a session ends before its prompt grows beyond
    rate: float = 1.0  # sessions that start in a second
    cv: float = 3.0  # of the gaps between starts
    shares: tuple[float, float, float, float] = (0.45, 0.2, 0.15, 0.2)  # of sessions, in the order of KINDS
    zipf: float = 1.1  # popularity of the n-th: 1/n^zipf
    system_prompts: int = 16
    toolboxes: int = 6
    documents: int = 80
    turns: float = 4.0  # mean, chats; a document sees half as many
    steps: float = 8.0  # mean, agents
    repeats: float = 0.02  # share of requests sent once more, word for word
    think: float = 30.0  # mean pause before a person's next turn
    tool_time: float = 3.0  # mean pause while a tool runs
    system: Length = Length(400, 0.6)
    toolbox: Length = Length(1500, 0.4)
    document: Length = Length(1800, 0.6)
    question: Length = Length(60, 0.9)
    answer: Length = Length(180, 0.7)
    call: Length = Length(40, 0.5)
    result: Length = Length(200, 1.0)
    one_off: Length = Length(500, 1.0)

    def __post_init__(self) -> None:
        for name in ("requests", "block_size", "system_prompts", "toolboxes", "documents", "think", "tool_time"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}, not a positive number")
        if self.vocab - self.first_token < 2:
            raise ValueError(f"token ids from {self.first_token} below {self.vocab}: at least two are needed")
        if self.max_prompt < 8 or self.turns < 1 or self.steps < 1:
            raise ValueError("max_prompt is at least 8 tokens, turns and steps are at least 1 on average")
        if not 0 <= self.repeats <= 1:
            raise ValueError(f"repeats is {self.repeats!r}, not a share from 0 to 1")
        if len(self.shares) != len(KINDS) or min(self.shares) < 0 or not sum(self.shares) > 0:
            raise ValueError(f"shares {self.shares!r} are not four numbers from 0 on, for {', '.join(KINDS)}")


# Small enough for an engine on a CPU: prompts of at most 160 tokens, blocks of 4, a vocabulary most models have.
TINY = Workload(
    requests=32, block_size=4, vocab=250, first_token=5, max_prompt=160, turns=3, steps=4,
    system_prompts=3, toolboxes=2, documents=4,
    system=Length(24, 0.4), toolbox=Length(48, 0.2), document=Length(40, 0.4), one_off=Length(30, 0.7),
    question=Length(8, 0.5), answer=Length(8, 0.5), call=Length(5, 0.3), result=Length(10, 0.6),
)  # fmt: skip


def generate(workload: Workload | None = None, seed: int = 0) -> Trace:
    """A trace with contents and ids of all blocks (the last, partial one too), in order of arrival.

    The same workload and seed give the same trace everywhere; `truth.GENERATED` has the hits of the default.
    """
    work = workload or Workload()
    drafts = _drafts(work, seed)
    blocks = _BlockIds(work.block_size)
    requests = tuple(
        Request(time, sum(part.length for part in content), answer.length, ids, session, kind, content, (answer,))
        for time, session, kind, content, answer in drafts
        for ids in (blocks.of(session, content),)
    )
    return Trace(f"synthetic-{seed}", requests, work.block_size, partial_last=True)


Draft = tuple[float, str, str, tuple[Segment, ...], Segment]  # arrival, session, kind, prompt, answer


def _drafts(work: Workload, seed: int) -> list[Draft]:
    """The first `work.requests` requests of all sessions that start before the last of them."""
    rng, library = Random(f"{seed}/sessions"), _Library(work, seed)
    drafts: list[Draft] = []
    times: list[float] = []
    for number, start in enumerate(accumulate(gaps(work.rate, work.cv, rng))):
        if len(times) >= work.requests and start > times[work.requests - 1]:
            break
        session = f"s{number}"
        kind = KINDS[_pick(rng, work.shares)]
        for draft in _session(work, library, rng, kind, session, start):
            drafts.append(draft)
            insort(times, draft[0])
    drafts.sort(key=lambda draft: draft[0])
    return drafts[: work.requests]


def _session(work: Workload, library: _Library, rng: Random, kind: str, session: str, start: float) -> Iterator[Draft]:
    """The requests of one session: each prompt is the one before, the answer to it, and something new."""
    most = work.max_prompt
    new = library.namer(session)
    if kind == "agent":
        content = (library.popular("toolbox", rng), new("task", work.question.draw(rng, most // 4)))
        rounds, pause, reply, ask = _geometric(rng, work.steps), work.tool_time, work.call, work.result
    elif kind == "one-off":
        content = (new("prompt", work.one_off.draw(rng, most)),)
        rounds, pause, reply, ask = 1, work.think, work.answer, work.question
    else:
        shared = "system" if kind == "chat" else "document"
        turns = work.turns if kind == "chat" else 1 + work.turns / 2
        content = (library.popular(shared, rng), new("question 0", work.question.draw(rng, most // 4)))
        rounds, pause, reply, ask = _geometric(rng, turns), work.think, work.answer, work.question
    time = start
    for turn in range(1, rounds + 1):
        answer = new(f"answer {turn}", reply.draw(rng, most))
        yield round(time, 7), session, kind, content, answer
        if rng.random() < work.repeats:
            time += rng.expovariate(1 / pause)
            yield round(time, 7), session, kind, content, answer
        content = (*content, answer, new(f"question {turn}", ask.draw(rng, most)))
        if sum(part.length for part in content) > most:
            return
        time += rng.expovariate(1 / pause)


class _Library:
    """The contents that sessions share, with their popularity."""

    def __init__(self, work: Workload, seed: int) -> None:
        self._low, self._high, self._seed = work.first_token, work.vocab, seed
        sizes = {"system": work.system_prompts, "toolbox": work.toolboxes, "document": work.documents}
        new, rng, half = self.namer("library"), Random(f"{seed}/library"), work.max_prompt // 2
        self._items = {
            name: [new(f"{name} {rank}", getattr(work, name).draw(rng, half)) for rank in range(size)]
            for name, size in sizes.items()
        }
        self._weights = {name: [1 / rank**work.zipf for rank in range(1, size + 1)] for name, size in sizes.items()}

    def popular(self, name: str, rng: Random) -> Segment:
        return self._items[name][_pick(rng, self._weights[name])]

    def namer(self, owner: str):
        return lambda name, length: Segment(f"{self._seed}/{owner}/{name}", length, self._low, self._high)


class _BlockIds:
    """Ids by content: one number for each pair of the block before and the tokens of this block."""

    def __init__(self, block_size: int) -> None:
        self._step = block_size * TOKEN_BYTES
        self._known: dict[tuple[int, bytes], int] = {}
        self._prompts: dict[str, tuple[int, list[int], bytes]] = {}  # session -> segments seen, full blocks, rest

    def of(self, session: str, content: tuple[Segment, ...]) -> tuple[int, ...]:
        """Ids of the prompt, which begins with the session's prompt before it."""
        seen, full, rest = self._prompts.get(session, (0, [], b""))
        rest += b"".join(part.packed() for part in content[seen:])
        while len(rest) >= self._step:
            full.append(self._id(full, rest[: self._step]))
            rest = rest[self._step :]
        self._prompts[session] = (len(content), full, rest)
        return (*full, self._id(full, rest)) if rest else tuple(full)

    def _id(self, before: list[int], tokens: bytes) -> int:
        key = (before[-1] if before else -1, tokens)
        return self._known.setdefault(key, len(self._known))


def _pick(rng: Random, weights: list[float] | tuple[float, ...]) -> int:
    bounds = list(accumulate(weights))
    return min(bisect(bounds, rng.random() * bounds[-1]), len(bounds) - 1)


def _geometric(rng: Random, mean: float) -> int:
    """1, 2, 3, … with the given mean."""
    return 1 if mean <= 1 else 1 + int(math.log(1 - rng.random()) / math.log(1 - 1 / mean))
