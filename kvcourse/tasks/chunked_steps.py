"""Steps of a scheduler: requests that come, compute, end and are thrown out, and a referee for every plan.

The referee asks rule by rule and knows no plan of its own. `must_plan` looks for the smallest call that goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, NamedTuple

from kvcourse.tasks.api import Expectation, Failure, expect
from kvcourse.tasks.show import MAX_CHARS, show

MOST_TRIES = 80  # calls on the way to the smallest one that goes wrong


class Work(NamedTuple):
    """What a scheduler sees of a request: `tokens` to compute, without the `cached` ones."""

    request_id: int
    tokens: int
    cached: int = 0

    def __repr__(self) -> str:
        return f"Work({self.request_id}, {self.tokens}{f', cached={self.cached}' if self.cached else ''})"


class Rule(NamedTuple):
    """A rule that a plan breaks: what was expected, why, and what to try."""

    expected: str
    because: str
    tip: str = ""


class Call(NamedTuple):
    """The arguments of one step."""

    running: list[Work]
    waiting: list[Work]
    budget: int
    longest: int | None = None

    @property
    def prompts(self) -> list[Work]:
        return [work for work in self.running if work.tokens > 1] + self.waiting

    @property
    def decodes(self) -> list[Work]:
        return [work for work in self.running if work.tokens == 1]

    def is_fair(self) -> bool:
        """There is work, and the budget is large enough for it."""
        need = bool(self.decodes) + bool(self.prompts)
        return 0 < need <= self.budget and (self.longest is None or self.longest >= 1)

    def ask(self, schedule_step: Any) -> Expectation:
        more = {} if self.longest is None else {"longest": self.longest}
        return expect(schedule_step, list(self.running), list(self.waiting), self.budget, **more)


def pairs_of(plan: Any) -> list[tuple[int, int]] | None:
    """A plan as (request id, tokens) pairs; None if it is something else."""
    if not isinstance(plan, list | tuple):
        return None
    pairs = [tuple(entry) if hasattr(type(entry), "__iter__") else () for entry in plan]
    return pairs if all(len(pair) == 2 and all(type(part) is int for part in pair) for pair in pairs) else None


def broken_rule(plan: Any, call: Call) -> Rule | None:
    """The first rule that a plan breaks, None if it breaks none."""
    pairs = pairs_of(plan)
    if pairs is None:
        return Rule("a list of pairs (request id, tokens)", "the engine reads the plan as such pairs")
    return _bad_entry(pairs, call) or _wrong_decodes(pairs, call) or _wrong_prompts(pairs, call)


def _bad_entry(pairs: list[tuple[int, int]], call: Call) -> Rule | None:
    """Entries that no engine could compute."""
    have = {work.request_id: work.tokens for work in call.running + call.waiting}
    ids = [request for request, _ in pairs]
    for request, tokens in pairs:
        if request not in have:
            return Rule("ids of running and waiting requests only", f"there is no request {request}")
        if ids.count(request) > 1:
            return Rule("every request once at most", f"request {request} has two entries", "one entry, with the sum")
        if tokens < 1:
            tip = "stop when the budget is used up"
            return Rule("no entry without tokens", f"request {request} would compute {tokens} tokens", tip)
        if tokens > have[request]:
            because = f"request {request} has {have[request]} left to compute, the plan has {tokens}"
            return Rule(f"at most {_tokens(have[request])} for request {request}", because)
    total = sum(tokens for _, tokens in pairs)
    if total > call.budget:
        because = f"the budget is {call.budget}, the plan has {total} in all"
        return Rule(f"at most {_tokens(call.budget)}", because, "subtract from the budget as you go")
    return None


def _wrong_decodes(pairs: list[tuple[int, int]], call: Call) -> Rule | None:
    """Decodes that are left out, or that take the token that is kept for prompts."""
    planned, keep = dict(pairs), 1 if call.prompts else 0
    for place, work in enumerate(call.decodes):
        fits = place < call.budget - keep
        if fits and work.request_id not in planned:
            because = f"it runs and has 1 token left, and {place} decodes are older"
            return Rule(f"1 token for request {work.request_id}", because, "decodes first, the oldest in front")
        if not fits and work.request_id in planned:
            because = f"of the budget of {call.budget} one token is kept for the prompts"
            return Rule(f"{call.budget - keep} of the decodes, the oldest", because, "at most budget - 1 decodes then")
    return None


def _wrong_prompts(pairs: list[tuple[int, int]], call: Call) -> Rule | None:
    """Prompts that get too much or too little, and entries that are out of order."""
    planned = dict(pairs)
    left = call.budget - sum(work.request_id in planned for work in call.decodes)
    order = [work.request_id for work in call.decodes]
    for work in call.prompts:
        limits = {"left to compute": work.tokens, "left of the budget": left}
        if call.longest is not None:
            limits["as longest"] = call.longest
        want, got = min(limits.values()), planned.get(work.request_id, 0)
        if got != want:
            where = "running" if work in call.running else "waiting"
            told = ", ".join(f"{number} {name}" for name, number in limits.items())
            expected = f"{_tokens(want)} for request {work.request_id}"
            tip = "running prompts in order, then waiting ones in order, each as much as it may have"
            return Rule(expected, f"it is {where} and in its turn has {told}; the plan has {got}", tip)
        left -= got
        order.append(work.request_id)
    if [request for request, _ in pairs] != [request for request in order if request in planned]:
        return Rule("decodes, then running prompts, then waiting ones", "the engine finds blocks in the plan's order")
    return None


def _tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number} tokens"


def must_plan(schedule_step: Any, call: Call) -> list[tuple[int, int]]:
    """The plan of one step; a Failure with the smallest wrong call that is found if it breaks a rule."""
    asked = call.ask(schedule_step)
    rule = _judged(asked, call)
    if rule is None:
        return pairs_of(asked.value) or []
    fresh = count(max((work.request_id for work in call.running + call.waiting), default=0) + 1)
    again = renamed(call, fresh)
    retold = again.ask(schedule_step)
    if _judged(retold, again) is None:
        forget = "with other ids the same numbers give the right plan: only what is handed in counts, nothing before it"
        raise _failure(asked, Rule(rule.expected, f"{rule.because}; {forget}", "keep nothing from call to call"))
    raise _failure(*_smallest(schedule_step, again, retold, fresh))


def _judged(asked: Expectation, call: Call) -> Rule | None:
    if asked.error is not None:
        return Rule("a plan", f"there is work, and a budget of {call.budget} is enough")
    return broken_rule(asked.value, call)


def _failure(asked: Expectation, rule: Rule) -> Failure:
    """The report of a wrong plan; ids in it look as they do in the call."""
    pairs = pairs_of(asked.value)
    got = asked.error or (show(asked.value) if pairs is None else repr(pairs))
    return Failure(asked.call, rule.expected, str(got)[:MAX_CHARS], f"{rule.because}.", rule.tip)


def _smallest(schedule_step: Any, call: Call, asked: Expectation, fresh: Iterator[int]) -> tuple[Expectation, Rule]:
    """Requests are left out and numbers made smaller for as long as the answer stays wrong."""
    rule = _judged(asked, call)
    assert rule is not None
    tries, progress = 0, True
    while progress and tries < MOST_TRIES:
        progress = False
        for simpler in _simpler(call):
            tries += 1
            simpler = renamed(simpler, fresh)
            answer = simpler.ask(schedule_step)
            found = _judged(answer, simpler)
            if found is not None:
                call, asked, rule, progress = simpler, answer, found, True
                break
            if tries >= MOST_TRIES:
                break
    return asked, rule


def _simpler(call: Call) -> Iterator[Call]:
    """Calls with fewer requests or a smaller number, as far as they can be planned."""
    halves = {name: len(getattr(call, name)) // 2 for name in ("running", "waiting")}
    changed = [call._replace(**{name: getattr(call, name)[:half]}) for name, half in halves.items() if half]
    changed += [call._replace(**{name: getattr(call, name)[half:]}) for name, half in halves.items() if half]
    for name in ("running", "waiting"):
        works = getattr(call, name)
        for i, work in enumerate(works):
            changed.append(call._replace(**{name: works[:i] + works[i + 1 :]}))
            least = 1 if name == "waiting" or work.tokens == 1 else 2
            smaller = {least, work.tokens // 2, work.tokens - 1} if work.tokens > least else set()
            others = [work._replace(tokens=tokens) for tokens in sorted(smaller) if tokens >= least]
            others += [work._replace(cached=0)] if work.cached else []
            changed += [call._replace(**{name: [*works[:i], other, *works[i + 1 :]]}) for other in others]
    if call.longest is not None:
        changed += [call._replace(longest=None), call._replace(longest=call.longest - 1)]
    changed += [call._replace(budget=budget) for budget in (call.budget // 2, call.budget - 1)]
    return (simpler for simpler in changed if simpler.is_fair())


def renamed(call: Call, fresh: Iterator[int]) -> Call:
    """The same numbers under ids that were never used, in the same order."""
    old = sorted(work.request_id for work in call.running + call.waiting)
    new = {request_id: next(fresh) for request_id in old}
    running, waiting = ([w._replace(request_id=new[w.request_id]) for w in works] for works in call[:2])
    return call._replace(running=running, waiting=waiting)


@dataclass
class Request:
    """A prompt and the length of its answer: `computed` leading tokens are in the cache, `written` ones are answered.

    came, started, first: the step after which it came, in which it started, and which gave its first token
    """

    id: int
    prompt: int
    answer: int
    computed: int = 0
    written: int = 0
    came: int = 0
    started: int | None = None
    first: int | None = None

    @property
    def left(self) -> int:
        """Tokens to compute before the next one can be sampled."""
        return self.prompt + self.written - self.computed

    @property
    def owed(self) -> int:
        """Tokens to compute until the answer is there; its last token never is computed."""
        return self.prompt + self.answer - 1 - self.computed

    def work(self) -> Work:
        return Work(self.id, self.left, self.computed)


@dataclass
class Serving:
    """Plays the engine: says who runs and who waits, and carries plans out. Steps are counted from 1."""

    seats: int = 1000
    step: int = 0
    running: list[Request] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)
    ended: list[Request] = field(default_factory=list)

    def add(self, request: Request) -> None:
        request.came = self.step
        self.waiting.append(request)

    def call(self, budget: int, longest: int | None = None) -> Call:
        """The arguments of the next step; requests without a seat are not offered."""
        offered = self.waiting[: max(0, self.seats - len(self.running))]
        return Call([r.work() for r in self.running], [r.work() for r in offered], budget, longest)

    def carry_out(self, plan: Sequence[tuple[int, int]]) -> None:
        self.step += 1
        known = {request.id: request for request in self.running + self.waiting}
        for request_id, tokens in plan:
            if tokens > 0 and request_id in known:
                self._compute(known[request_id], min(tokens, known[request_id].left))

    def preempt(self, found: int = 0) -> None:
        """The youngest running request loses its blocks and waits again, `found` tokens of it may still be cached."""
        request = self.running.pop()
        request.computed = min(found, request.computed)
        place = sum(other.id < request.id for other in self.waiting)
        self.waiting.insert(place, request)

    def _compute(self, request: Request, tokens: int) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
            self.running = sorted([*self.running, request], key=lambda other: other.id)
            request.started = request.started or self.step
        request.computed += tokens
        if request.left == 0:
            request.written += 1
            request.first = request.first or self.step
            if request.written == request.answer:
                self.running.remove(request)
                self.ended.append(request)


@dataclass(frozen=True)
class Promise:
    """The last steps for a request to start, to get its first token and to end, if it has a seat and keeps it.

    From the rules: every step computes a token of a prompt as long as there is one, the oldest first; with one token
    left, a running prompt is a decode. So a prompt of n tokens is the first one for n - 1 steps at most (1 if n is 1),
    and a request starts right after the steps of the older prompts. And every step computes a token of the oldest
    decode or the oldest prompt, so of a request or an older one. So it has its first token after all that older ones
    owe and its prompt, and ends after its answer.
    """

    start: int
    first: int
    end: int

    @classmethod
    def to(cls, request: Request, older: Sequence[Request]) -> Promise:
        prompts = sum(max(1, other.left - 1) for other in older if other.started is None or other.left > 1)
        owed = sum(other.owed for other in older) + request.owed
        return cls(request.came + prompts + 1, request.came + owed - request.answer + 1, request.came + owed)

    def broken(self, request: Request, step: int) -> str:
        """What a request that has not ended after `step` should have done by then; "" if all is well."""
        if request.started is None and step >= self.start:
            return "start"
        if request.first is None and step >= self.first:
            return "get its first token"
        return "end" if step >= self.end else ""


def nobody_starves(schedule_step: Any, rng: Random, budget: int, longest: int | None, requests: int) -> None:
    """More requests come than can be served: each keeps its promise, whoever comes behind it. A Failure if not."""
    serving, promises, ids = Serving(), {}, fresh_ids(rng, requests)
    coming = [Request(number, rng.randint(2, 4), rng.choice((1, 2, 25))) for number in ids]
    while coming or serving.running or serving.waiting:
        for _ in range(min(len(coming), rng.choice((0, 0, 0, 1, 2)))):
            request = coming.pop(0)
            serving.add(request)
            promises[request.id] = Promise.to(request, (serving.running + serving.waiting)[:-1])
        call = serving.call(budget, longest)
        if not call.running and not call.waiting:
            continue
        asked = call.ask(schedule_step)
        plan = asked.satisfies(lambda got: pairs_of(got) is not None, "a list of pairs (request id, tokens)")
        serving.carry_out(pairs_of(plan) or [])
        for request in serving.running + serving.waiting:
            late = promises[request.id].broken(request, serving.step)
            if late:
                when = f"it came after step {request.came}, this is step {serving.step}"
                because = f"{when}; every step must serve the oldest decode and the oldest prompt"
                tip = "keep one token of the budget for prompts, and serve older requests before younger ones"
                raise _failure(asked, Rule(f"request {request.id} to {late} in this step", because, tip))


def follow(schedule_step: Any, rng: Random, budget: int, longest: int | None, steps: int, first_id: int) -> None:
    """Random requests step by step, some thrown out on the way; every plan must keep all rules."""
    serving, ids = Serving(seats=6), count(first_id)
    for _ in range(steps):
        while rng.random() < 0.4:
            prompt = rng.choice((1, 2, rng.randint(3, 20), rng.randint(20, 60)))
            serving.add(Request(next(ids), prompt, rng.randint(1, 9), computed=rng.choice((0, 0, prompt // 2))))
        if len(serving.running) > 1 and rng.random() < 0.15:
            serving.preempt(found=rng.choice((0, 0, 4)))
        call = serving.call(budget, longest)
        if call.is_fair():
            serving.carry_out(must_plan(schedule_step, call))


def drive(schedule: Callable[[Call], Sequence[tuple[int, int]]], serving: Serving, budget: int) -> list[dict[int, int]]:
    """Step after step until nobody is left: what each request got, by its id."""
    steps: list[dict[int, int]] = []
    while serving.running or serving.waiting:
        plan = schedule(serving.call(budget))
        steps.append(dict(plan))
        serving.carry_out(plan)
        assert any(tokens > 0 for _, tokens in plan), "a step without tokens: it would go on for ever"
    return steps


def fresh_ids(rng: Random, number: int) -> list[int]:
    """Rising ids that no other test is likely to use."""
    return sorted(rng.sample(range(1000, 1_000_000), number))
