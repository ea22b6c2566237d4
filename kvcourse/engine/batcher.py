"""Who waits, who runs, and the rows of the next step: admission, growth, and preemption when blocks run out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from kvcourse.engine.guard import CACHE, SCHEDULER, ask, check_plan
from kvcourse.engine.memory import BlockManager
from kvcourse.engine.request import FinishReason, Request, Row
from kvcourse.engine.scheduler import schedule_whole
from kvcourse.engine.sockets import Scheduler, SocketError, Work

if TYPE_CHECKING:
    from kvcourse.engine.layout import LayoutBuilder

FEWEST_OFFERED = 4  # waiting requests that a scheduler sees, however long their prompts are


class Batcher:
    """Holds every request in one of three places, oldest first, and plans steps.

    Why it always ends: a request is preempted only for an older one, and nobody is admitted after that until a request
    has ended. So between two ends the running requests only grow or get fewer, and the oldest is never thrown out.
    """

    def __init__(
        self,
        memory: BlockManager,
        builder: LayoutBuilder,
        scheduler: Scheduler,
        budget: int,
        max_running: int,
        clock: Callable[[], float],
    ) -> None:
        self.memory, self.builder, self.scheduler = memory, builder, scheduler
        self.budget, self.max_running, self.clock = budget, max_running, clock
        self.waiting: OrderedDict[int, Request] = OrderedDict()
        self.running: dict[int, Request] = {}
        self.finished: dict[int, Request] = {}
        self._news: dict[str, list[int]] = {"admitted": [], "preempted": [], "finished": []}
        self._no_room = False  # the head of the queue found no blocks, or somebody was preempted

    def add(self, request: Request) -> None:
        self.waiting[request.id] = request

    def find(self, request_id: int) -> Request | None:
        return self.running.get(request_id) or self.waiting.get(request_id) or self.finished.get(request_id)

    def plan(self) -> list[Row]:
        """The rows of the next step, every token of them placed into a block; empty only if there is no work."""
        while self.running or self.waiting:
            offered = self._offer()
            if not self.running and not offered:
                continue  # all that was looked at has ended with an error
            ended = len(self.finished)
            rows = self._reserve(self._ask_scheduler(offered))
            if rows:
                return rows
            if offered and self._is_full():
                continue  # nobody could be admitted: ask for the running ones alone
            if len(self.finished) == ended:  # else somebody in the plan has ended with an error: plan without him
                self._make_way()
        return []

    def finish(self, request: Request, reason: FinishReason, error: Exception | None = None) -> None:
        """The request ends; its blocks are free for others."""
        assert request.status != "finished"
        if request.status == "running":
            self._leave(request)
        else:
            del self.waiting[request.id]
        request.status, request.finish_reason = "finished", reason
        request.metrics.finished_at = self.clock()
        self.finished[request.id] = request
        self._news["finished"].append(request.id)
        self._no_room = False
        if error is not None:
            request.error = error
            self.memory.report(error)

    def take_news(self) -> dict[str, tuple[int, ...]]:
        """Requests that were admitted, preempted or ended since the last call."""
        news = {kind: tuple(ids) for kind, ids in self._news.items()}
        for ids in self._news.values():
            ids.clear()
        return news

    def _is_full(self) -> bool:
        return self._no_room and bool(self.running)

    def _offer(self) -> list[Work]:
        """The head of the queue, as far as it may run: until seats or the budget are used up.

        A scheduler may give a long prompt only a part of the budget, so one prompt never uses up the offer alone.
        """
        offered: list[Work] = []
        if self._is_full():
            return offered
        tokens, seats = 0, self.max_running - len(self.running)
        for request in list(islice(self.waiting.values(), seats)):
            if tokens >= self.budget:
                break
            try:
                missing = self.memory.num_missing(request)
                offered.append(Work(request.id, missing, request.num_tokens - missing))
                tokens += min(missing, -(-self.budget // FEWEST_OFFERED))
            except SocketError as error:
                self.finish(request, "error", error)
        return offered

    def _ask_scheduler(self, offered: list[Work]) -> list[tuple[int, int]]:
        """The scheduler's plan; a refused one is reported, and the default scheduler takes its place for this step."""
        requests = [self.running[i] for i in sorted(self.running)]
        running = [Work(r.id, r.num_tokens - r.num_placed, r.num_placed) for r in requests]
        try:
            plan = ask(SCHEDULER, self.scheduler, "__call__", list(running), list(offered), self.budget)
            return check_plan(plan, running, offered, self.budget)
        except SocketError as error:
            self.memory.report(error)
            return schedule_whole(running, offered, self.budget)

    def _reserve(self, plan: list[tuple[int, int]]) -> list[Row]:
        """Find blocks for a plan, in its order. Who finds none is left out of the step."""
        rows: list[Row] = []
        planned: set[int] = set()
        for request_id, count in plan:
            if request_id in self.running:
                request = self.running[request_id]
                placed = self._extend(request, count, planned)
            elif request_id in self.waiting and not self._is_full():
                request = self.waiting[request_id]
                placed = self._admit(request, count)
            else:
                continue  # preempted or ended while this plan was worked through
            if placed:
                rows.append(Row(request, request.num_placed - placed, placed))
                planned.add(request_id)
        return rows

    def _admit(self, request: Request, count: int) -> int:
        """Let a waiting request in if there are blocks for its cached tokens and `count` more."""
        try:
            placed = self.memory.admit(request, count)
        except SocketError as error:
            self.finish(request, "error", error)
            return 0
        if placed:
            del self.waiting[request.id]
            self.running[request.id], request.status = request, "running"
            self.builder.take_seat(request)
            self._news["admitted"].append(request.id)
        elif self.running:
            self._no_room = True
        else:
            self.finish(request, "error", self._no_room_alone("allocate", request))
        return placed

    def _extend(self, request: Request, count: int, planned: set[int]) -> int:
        """Room for more tokens of a running request; for the first of them, younger requests may have to go."""
        placed = self.memory.extend(request, count)
        while not placed and request.error is None:
            younger = [other for other in self.running if other > request.id and other not in planned]
            if not younger:
                return 0
            self._preempt(self.running[max(younger)])
            placed = self.memory.extend(request, count)
        if not placed:
            self.finish(request, "error", request.error)
        return placed

    def _preempt(self, request: Request) -> None:
        """Throw a running request's blocks away: later it computes its tokens again, the generated ones too."""
        self._leave(request)
        request.status = "waiting"
        request.metrics.preemptions += 1
        self.memory.metrics.preemptions += 1
        self._news["preempted"].append(request.id)
        older = list(takewhile(lambda other: other < request.id, self.waiting))
        self.waiting[request.id] = request
        for request_id in (request.id, *reversed(older)):
            self.waiting.move_to_end(request_id, last=False)
        self._no_room = True

    def _make_way(self) -> None:
        """Nobody in the plan found a block: the youngest running request goes; one that runs alone cannot be helped."""
        youngest = self.running[max(self.running)]
        if len(self.running) > 1:
            self._preempt(youngest)
        else:
            self.finish(youngest, "error", self._no_room_alone("append", youngest))

    def _no_room_alone(self, method: str, request: Request) -> SocketError:
        pool = f"all {self.memory.pool.num_blocks} blocks should be free for it"
        return SocketError(CACHE, f"{method} found no room for request {request.id}, but no other one runs: {pool}.")

    def _leave(self, request: Request) -> None:
        self.memory.release(request)
        self.builder.leave_seat(request)
        del self.running[request.id]
