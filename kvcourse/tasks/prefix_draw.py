"""Random calls for a prefix cache: pools, prompts that begin alike, requests that grow and end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from kvcourse.tasks.prefix_judge import Step

SHORTEST, LONGEST = 4, 24  # calls of a sequence


@dataclass(frozen=True)
class Profile:
    """What kind of calls to draw.

    sizes: blocks of the pool; block_sizes: tokens of a block; depth: full blocks of a prompt at most
    at_once: requests that run at the same time
    frees, grows, looks: share of the calls that free a request, append a token, or look up an earlier prompt
    shared: share of the prompts that begin like an earlier one
    evicts: may the calls need blocks that hold something? copies: may a content be computed twice?
    salted: do some prompts carry extras?
    """

    sizes: tuple[int, int]
    block_sizes: tuple[int, ...]
    depth: int = 3
    at_once: int = 1
    frees: float = 0.0
    grows: float = 0.0
    looks: float = 0.07
    shared: float = 0.6
    evicts: bool = False
    copies: bool = False
    salted: bool = False


EVERYTHING = Profile(
    (2, 7), (1, 2), depth=3, at_once=3, frees=0.25, grows=0.35, shared=0.6, evicts=True, copies=True, salted=True
)  # fmt: skip


def draw_all(
    rng: Random, profile: Profile, sequences: int, shortest: int = SHORTEST
) -> Iterator[tuple[int, int, list[Step]]]:
    """Pool size, block size and calls of every sequence; each has one call more than the one before."""
    for number in range(sequences):
        draw = _Draw(rng, profile, rng.randint(*profile.sizes), rng.choice(profile.block_sizes))
        yield draw.num_blocks, draw.size, draw.steps(min(shortest + number, LONGEST))


class _Draw:
    """One sequence. Tokens count upwards, so that no block has the content of another by chance."""

    def __init__(self, rng: Random, profile: Profile, num_blocks: int, size: int) -> None:
        self.rng, self.profile, self.num_blocks, self.size = rng, profile, num_blocks, size
        self.texts: list[tuple[tuple[int, ...], tuple]] = []  # all prompts so far, with their answers, and their extras
        self.running: dict[int, int] = {}  # request -> number of its text
        self.token = 0

    def steps(self, length: int) -> list[Step]:
        return [self._step() for _ in range(length)]

    def _step(self) -> Step:
        p, lot = self.profile, self.rng.random()
        if self.running and ((len(self.running) >= p.at_once and not p.grows) or lot < p.frees):
            return self._free()
        if self.running and lot < p.frees + p.grows:
            return self._append()
        if self.texts and lot > 1 - p.looks:
            tokens, extra = self.rng.choice(self.texts)
            return Step("match", tokens=(*tokens, self._new_token()), extra=extra)
        if len(self.running) >= p.at_once:
            return self._append() if p.grows and self.rng.random() < 0.5 else self._free()
        return self._allocate()

    def _free(self) -> Step:
        request = self.rng.choice(sorted(self.running))
        del self.running[request]
        return Step("free", request)

    def _append(self) -> Step:
        request = self.rng.choice(sorted(self.running))
        text, token = self.running[request], self._new_token()
        tokens, extra = self.texts[text]
        self.texts[text] = ((*tokens, token), extra)
        return Step("append", request, (token,))

    def _allocate(self) -> Step:
        rng, p = self.rng, self.profile
        tokens: tuple[int, ...] = ()
        extra: tuple = ()
        if self.texts and rng.random() < p.shared:
            tokens, extra = rng.choice(self.texts)
            tokens = tokens[: self.size * rng.randint(0, min(p.depth, len(tokens) // self.size))]
        if p.salted and rng.random() < 0.4:
            extra = (("salt", rng.choice(("a", "b"))),)
        most = p.depth - len(tokens) // self.size
        tokens += self._new_tokens(self.size * rng.randint(0, most))
        if not p.copies or rng.random() < 0.5 or not tokens:
            tokens += self._new_tokens(rng.randint(1, self.size - 1) if self.size > 1 else 1)
        request = min(set(range(1, len(self.running) + 2)) - set(self.running))
        self.running[request] = len(self.texts)
        self.texts.append((tokens, extra))
        return Step("allocate", request, tokens, extra)

    def _new_tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._new_token() for _ in range(count))

    def _new_token(self) -> int:
        if self.profile.copies:
            return self.rng.choice((7, 8))
        self.token += 1
        return self.token
