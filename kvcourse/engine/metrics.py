"""Exact counts of tokens, times of tokens, and a bounded log of steps. Counts are compared; times are only shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class TokenCounts:
    """Tokens by where their keys and values came from.

    computed: went through the model; recomputed: the part of it that a preemption had thrown away before
    reused: found in the pool; loaded: brought back from a lower tier, by tier (1 is G2, 2 is G3 ...)
    regained: found or loaded again after a preemption. That is no saving, so it counts neither as reused nor as loaded.
    """

    computed: int = 0
    recomputed: int = 0
    reused: int = 0
    regained: int = 0
    loaded: Counter[int] = field(default_factory=Counter)


@dataclass
class RequestMetrics(TokenCounts):
    """The counts of one request and its times, in seconds of the engine's clock.

    covered: leading tokens whose keys and values were in the pool at least once. Always
    covered = reused + sum(loaded) + computed - recomputed.
    """

    covered: int = 0
    preemptions: int = 0
    added_at: float = 0.0
    first_token_at: float | None = None
    last_token_at: float | None = None
    finished_at: float | None = None
    tbt: list[float] = field(default_factory=list)

    @property
    def ttft(self) -> float | None:
        """Time to first token: from `add_request` to the end of the step that gave the first token."""
        return None if self.first_token_at is None else self.first_token_at - self.added_at

    def count_computed(self, start: int, end: int, total: TokenCounts) -> None:
        """Tokens start..end-1 went through the model; `total` is counted along."""
        again = self._cover(start, end)
        for counts in (self, total):
            counts.computed += end - start
            counts.recomputed += again

    def count_found(self, start: int, end: int, tier: int, total: TokenCounts) -> None:
        """Tokens start..end-1 were found in `tier` (0 is the pool itself); `total` is counted along."""
        again = self._cover(start, end)
        for counts in (self, total):
            counts.regained += again
            if tier == 0:
                counts.reused += end - start - again
            elif end - start > again:
                counts.loaded[tier] += end - start - again

    def count_token(self, now: float) -> None:
        """One more token was sampled."""
        if self.last_token_at is None:
            self.first_token_at = now
        else:
            self.tbt.append(now - self.last_token_at)
        self.last_token_at = now

    def _cover(self, start: int, end: int) -> int:
        """Extend `covered` to `end`; how many of the tokens start..end-1 had been covered before."""
        assert start <= self.covered, "tokens are covered in order"
        again = min(end, self.covered) - start
        self.covered = max(self.covered, end)
        return again


@dataclass
class EngineMetrics(TokenCounts):
    """The counts of all requests together, and what the engine did."""

    steps: int = 0
    tokens_out: int = 0
    preemptions: int = 0
    peak_blocks: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0

    def summary(self) -> dict[str, int | float | dict[int, int]]:
        """All counts and times by name."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}

    def count_step(self, event: StepEvent) -> None:
        self.steps += 1
        self.tokens_out += len(event.tokens_out)
        self.peak_blocks = max(self.peak_blocks, event.blocks_in_use)
        self.seconds += event.seconds
        self.model_seconds += event.model_seconds


@dataclass(frozen=True)
class StepEvent:
    """What one step did.

    rows: (request id, first position, tokens) in the order in which the model saw them; tokens_out: (request id, token)
    admitted, preempted, finished: request ids, since the step before; blocks_in_use: while the model ran
    found: (request id, tier, tokens) that an admitted request need not compute; tier 0 is the pool itself
    stored, removed: keys of contents that came into the pool or left it
    seconds: the whole step; model_seconds: the model's part
    """

    step: int
    started_at: float
    seconds: float
    model_seconds: float
    rows: tuple[tuple[int, int, int], ...]
    tokens_out: tuple[tuple[int, int], ...]
    admitted: tuple[int, ...]
    preempted: tuple[int, ...]
    finished: tuple[int, ...]
    num_running: int
    num_waiting: int
    blocks_in_use: int
    found: tuple[tuple[int, int, int], ...]
    stored: tuple[bytes, ...]
    removed: tuple[bytes, ...]

    @property
    def tokens(self) -> int:
        """Tokens that went through the model in this step."""
        return sum(count for _, _, count in self.rows)
