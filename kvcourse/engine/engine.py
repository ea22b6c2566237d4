"""The engine: requests come in; every step computes tokens of several of them in one forward; tokens come out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

from torch import Tensor

from kvcourse.engine.attention import GatherAttention
from kvcourse.engine.batcher import Batcher
from kvcourse.engine.blocks import PlainAllocator, num_blocks_for
from kvcourse.engine.check import check_engine
from kvcourse.engine.interrupt import uninterrupted
from kvcourse.engine.layout import LayoutBuilder
from kvcourse.engine.memory import BlockManager
from kvcourse.engine.metrics import EngineMetrics, StepEvent
from kvcourse.engine.pool import KVPool
from kvcourse.engine.progress import progress_bar
from kvcourse.engine.request import Limits, OnToken, Request, RequestError, Row, check_sizes, new_request
from kvcourse.engine.runner import TransformersRunner
from kvcourse.engine.sampling import sample
from kvcourse.engine.scheduler import schedule_whole
from kvcourse.engine.sockets import Attention, PrefixCache, Scheduler, SocketError, Tiers

KEEP_PROBLEMS = 100


class Engine:
    """Continuous batching over a paged KV pool of num_blocks x block_size tokens.

    model: a Transformers model, or any `runner.Runner`
    budget: most tokens of one step; max_running: most requests at a time
    prefix_cache: an object, or its class, which is then made with (num_blocks, block_size)
    `attention` and `batcher.scheduler` may be replaced between steps.
    ValueError for sizes below 1 and for a model whose layers are not all full attention.
    """

    def __init__(
        self,
        model: Any,
        num_blocks: int = 256,
        block_size: int = 16,
        *,
        budget: int = 8192,
        max_running: int = 64,
        prefix_cache: PrefixCache | Callable[[int, int], PrefixCache] = PlainAllocator,
        tiers: Tiers | None = None,
        scheduler: Scheduler = schedule_whole,
        attention: Attention | None = None,
        clock: Callable[[], float] = time.perf_counter,
        keep_events: int = 1000,
    ) -> None:
        check_sizes(num_blocks=num_blocks, block_size=block_size, budget=budget, max_running=max_running)
        self.runner = runner = TransformersRunner(model) if hasattr(model, "config") else model
        shape = (runner.num_layers, num_blocks, block_size, runner.num_kv_heads, runner.head_dim)
        self.pool = KVPool(*shape, dtype=runner.dtype, device=runner.device)
        self.metrics = EngineMetrics()
        self.problems: list[SocketError] = []
        self.events: deque[StepEvent] = deque(maxlen=keep_events)
        cache = prefix_cache(num_blocks, block_size) if isinstance(prefix_cache, type) else prefix_cache
        self.memory = BlockManager(cache, tiers, self.pool, self.metrics, self._report)
        max_table = min(num_blocks, num_blocks_for(runner.context, block_size))
        self.builder = LayoutBuilder(max_running, max_table, block_size, runner.device)
        self.batcher = Batcher(self.memory, self.builder, scheduler, budget, max_running, clock)
        self.attention, self.clock = attention or GatherAttention(), clock
        self.limits = Limits(runner.vocab_size, runner.context, num_blocks, block_size, runner.eos)
        self._next_id = 0
        self._pending: list[Row] = []  # planned, but not computed yet
        self._undelivered: deque[tuple[OnToken, int, int]] = deque()

    def add_request(
        self,
        prompt: Sequence[int],
        max_new_tokens: int = 32,
        *,
        eos: int | Iterable[int] | None = None,
        extra: Iterable[tuple[str, str]] = (),
        temperature: float = 0.0,
        seed: int = 0,
        on_token: OnToken | None = None,
        keep_logits: bool = False,
    ) -> int:
        """Queue a prompt of token ids; gives the request's id. RequestError for what cannot be served.

        eos: tokens that end the answer; None means the model's own, () none
        extra: (kind, value) pairs that must agree too for cached blocks to be shared
        temperature: 0 is greedy; above it, tokens are drawn as `seed` says
        on_token(id, token) is called after the step that gave the token; keep_logits keeps those of the first token
        """
        choices = {"temperature": temperature, "seed": seed, "on_token": on_token, "keep_logits": keep_logits}
        request = new_request(self._next_id, prompt, max_new_tokens, self.limits, eos, extra, **choices)
        request.metrics.added_at = self.clock()
        self._next_id += 1
        self.batcher.add(request)
        return request.id

    def request(self, request_id: int) -> Request:
        """The request with this id, in whatever state; RequestError if there never was one."""
        request = self.batcher.find(request_id)
        if request is None:
            raise RequestError(f"There is no request {request_id!r}; {self._next_id} were added so far.")
        return request

    def abort(self, request_id: int) -> bool:
        """End a request now, with the tokens it has; False if it had ended already."""
        request = self.request(request_id)
        if request.status == "finished":
            return False
        with uninterrupted():
            if any(row.request is request for row in self._pending):
                request.aborting = True  # its tokens are promised to the cache: they are computed, then it ends
            else:
                self.batcher.finish(request, "aborted")
        return True

    @property
    def finished(self) -> dict[int, Request]:
        """Requests that ended, in the order in which they did."""
        return self.batcher.finished

    @property
    def has_work(self) -> bool:
        return bool(self.batcher.running or self.batcher.waiting)

    @property
    def blocks_in_use(self) -> int:
        return self.memory.ledger.num_used

    def run(self, progress: bool = False) -> dict[int, list[int]]:
        """Serve all that is queued; gives the generated tokens of the requests that ended, by id.

        If a socket answered something impossible, everybody is served first, then the first SocketError is raised.
        Ctrl-C leaves an engine that goes on with the next `run` or `step`.
        """
        ended = len(self.finished)
        self.problems.clear()
        with progress_bar(self) if progress else nullcontext(lambda: None) as update:
            while self.has_work:
                self.step()
                update()
        if self.problems:
            raise self.problems[0]
        return {request.id: request.output for request in islice(self.finished.values(), ended, None)}

    def stream(self, request_id: int) -> Iterator[int]:
        """The tokens of one request as they come. It steps the engine, so the others go on as well."""
        request = self.request(request_id)
        sent = request.num_prompt
        while True:
            while sent < request.num_tokens:
                sent += 1
                yield request.tokens[sent - 1]
            if request.error is not None:
                raise request.error
            if request.status == "finished":
                return
            self.step()

    def step(self) -> list[tuple[int, int]]:
        """Compute the next step; gives the new tokens as (request id, token).

        A step that was interrupted, or whose attention failed, is computed again by the next call: its tokens are
        promised to the prefix cache.
        """
        started = self.clock()
        with uninterrupted():
            rows = self._pending = self._pending or self.batcher.plan()
        emitted: list[tuple[int, int]] = []
        if rows:
            input_ids, layout, last = self.builder.build(rows)
            before = self.clock()
            logits = self.runner.forward(input_ids, layout, last, self.pool, self.attention)
            tokens = sample(logits, [row.request for row in rows if row.is_last])
            model_seconds = self.clock() - before
            with uninterrupted():
                blocks = self.blocks_in_use
                emitted = self._commit(rows, logits, tokens)
                self._log(rows, emitted, blocks, started, model_seconds)
        while self._undelivered:
            on_token, request_id, token = self._undelivered.popleft()
            on_token(request_id, token)
        return emitted

    def check(self) -> None:
        """AssertionError if an invariant of the engine, its ledger or its prefix cache does not hold."""
        check_engine(self)

    def _commit(self, rows: list[Row], logits: Tensor, tokens: list[int]) -> list[tuple[int, int]]:
        """The step is computed: book it, give its tokens out, end requests."""
        self._pending = []
        self.memory.commit()
        now = self.clock()
        emitted: list[tuple[int, int]] = []
        sampled = iter(enumerate(tokens))
        for row in rows:
            request = row.request
            request.num_computed = request.num_placed
            request.metrics.count_computed(row.start, row.end, self.metrics)
            index, token = next(sampled) if row.is_last else (None, None)
            if request.error is not None:
                self.batcher.finish(request, "error", request.error)
            elif request.aborting:
                self.batcher.finish(request, "aborted")
            elif token is not None:
                if request.keep_logits and request.first_logits is None:
                    request.first_logits = logits[index].float().cpu()
                emitted.append((request.id, token))
                self._give_out(request, token, now)
        return emitted

    def _give_out(self, request: Request, token: int, now: float) -> None:
        request.tokens.append(token)
        request.metrics.count_token(now)
        if request.on_token is not None:
            self._undelivered.append((request.on_token, request.id, token))
        if token in request.eos:
            self.batcher.finish(request, "eos")
        elif request.num_output == request.max_new_tokens:
            self.batcher.finish(request, "length")

    def _log(self, rows: list[Row], emitted: list[tuple[int, int]], blocks: int, started: float, model: float) -> None:
        news = {**self.batcher.take_news(), **self.memory.take_news()}
        event = StepEvent(
            step=self.metrics.steps,
            started_at=started,
            seconds=self.clock() - started,
            model_seconds=model,
            rows=tuple((row.request.id, row.start, row.count) for row in rows),
            tokens_out=tuple(emitted),
            num_running=len(self.batcher.running),
            num_waiting=len(self.batcher.waiting),
            blocks_in_use=blocks,
            **news,
        )
        self.events.append(event)
        self.metrics.count_step(event)

    def _report(self, problem: SocketError) -> None:
        if len(self.problems) < KEEP_PROBLEMS:
            self.problems.append(problem)
