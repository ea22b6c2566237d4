"""Hidden tests of chunked.2: each property departs in one way from steps where shortcuts are right."""

from __future__ import annotations

from random import Random
from typing import Any

from kvcourse.tasks.api import expect, task
from kvcourse.tasks.chunked_steps import (
    Call,
    Request,
    Serving,
    Work,
    fresh_ids,
    must_plan,
    nobody_starves,
    renamed,
)

DRAWS = 4


def works(rng: Random, *tokens: int, cached: int = 0) -> list[Work]:
    """Requests with so many tokens each and rising ids; with `cached` up to so many cached tokens."""
    ids = fresh_ids(rng, len(tokens))
    return [Work(number, n, rng.choice((0, rng.randint(0, cached)))) for number, n in zip(ids, tokens, strict=True)]


def split(rng: Random, decodes: int, *prompts: int, cached: int = 0) -> tuple[list[Work], list[Work]]:
    """So many decodes, all of them older than the prompts."""
    both = works(rng, *[1] * decodes, *prompts, cached=cached)
    return both[:decodes], both[decodes:]


def plan(student: Any, rng: Random, running: list[Work], waiting: list[Work], *budget: int) -> None:
    """One step, planned as the rules say; no call sees ids of another one."""
    ids = iter(fresh_ids(rng, len(running) + len(waiting)))
    must_plan(student.schedule_step, renamed(Call(running, waiting, *budget), ids))


def sizes(rng: Random, number: int, least: int = 2, most: int = 40) -> list[int]:
    return [rng.randint(least, most) for _ in range(number)]


@task("chunked.2")
def test_prompts_that_fit(student, rng):
    """Prompts that fit into the budget are computed whole, in the order of the queue."""
    for _ in range(DRAWS):
        tokens = sizes(rng, rng.randint(2, 5))
        plan(student, rng, [], works(rng, *tokens), sum(tokens) + rng.randint(0, 30))


@task("chunked.2", after="test_prompts_that_fit")
def test_the_last_prompt_is_cut(student, rng):
    """The prompt at which the budget ends gets what is left of it, and the budget is used up."""
    for _ in range(DRAWS):
        tokens = sizes(rng, rng.randint(1, 4), least=12)
        budget = sum(tokens) - rng.randint(1, tokens[-1] - 1)
        plan(student, rng, [], works(rng, *tokens), budget)


@task("chunked.2", after="test_the_last_prompt_is_cut")
def test_nothing_is_left(student, rng):
    """Requests for which nothing is left of the budget have no entry."""
    for _ in range(DRAWS):
        tokens = sizes(rng, 5)
        plan(student, rng, [], works(rng, *tokens), sum(tokens[:3]) - rng.choice((0, 1)))


@task("chunked.2", after="test_the_last_prompt_is_cut")
def test_prompts_that_have_begun(student, rng):
    """Running prompts go on before waiting ones begin, also before older ones that were thrown out."""
    for _ in range(DRAWS):
        both = works(rng, *sizes(rng, 4, least=12))
        budget = sum(work.tokens for work in both) - rng.randint(1, 9)
        plan(student, rng, both[:2], both[2:], budget)
        plan(student, rng, both[1:3], [both[0]], sum(work.tokens for work in both[:3]) - 3)


@task("chunked.2", after="test_the_last_prompt_is_cut")
def test_decodes_before_prompts(student, rng):
    """Every decode gets one token, in order, before any prompt gets one."""
    for _ in range(DRAWS):
        decodes, prompts = split(rng, rng.randint(2, 6), rng.randint(12, 40))
        budget = len(decodes) + prompts[0].tokens - rng.randint(2, 9)
        plan(student, rng, decodes, prompts, budget)
        mixed = [prompts[0], *decodes]
        ids = sorted(work.request_id for work in mixed)
        mixed = [work._replace(request_id=number) for work, number in zip(mixed, ids, strict=True)]
        plan(student, rng, mixed, [], budget)


@task("chunked.2", after="test_decodes_before_prompts")
def test_short_prompts_wait_their_turn(student, rng):
    """A waiting request with one token is a prompt: it comes in its place in the queue."""
    for _ in range(DRAWS):
        decodes, prompts = split(rng, 2, rng.randint(4, 30), 1, rng.randint(4, 30), 1)
        plan(student, rng, decodes, prompts, 2 + sum(work.tokens for work in prompts))


@task("chunked.2", after="test_decodes_before_prompts")
def test_the_longest_chunk(student, rng):
    """No prompt gets more than `longest` in a step, running or waiting, and what it leaves goes to the next one."""
    for _ in range(DRAWS):
        longest = rng.randint(5, 20)
        tokens = [longest + rng.randint(1, 30), rng.randint(2, longest - 1), longest + rng.randint(1, 30), longest]
        rng.shuffle(tokens)
        budget = sum(min(longest, number) for number in tokens)
        both = works(rng, *tokens)
        plan(student, rng, [], both, budget - rng.randint(0, 1), longest)
        plan(student, rng, both, [], budget + rng.randint(0, 9), longest)


@task("chunked.2", after="test_the_longest_chunk")
def test_the_longest_chunk_beside_decodes(student, rng):
    """Decodes take from the budget, not from what `longest` leaves to each prompt."""
    for _ in range(DRAWS):
        longest = rng.randint(5, 20)
        decodes, prompts = split(rng, rng.randint(2, 6), *(longest + rng.randint(2, 30) for _ in range(3)))
        plan(student, rng, decodes, prompts, len(decodes) + 3 * longest - 2, longest)


@task("chunked.2", after="test_decodes_before_prompts")
def test_cached_tokens(student, rng):
    """Cached tokens cost nothing, change no order and make no decode of a prompt or prompt of a decode."""
    for _ in range(DRAWS):
        decodes, prompts = split(rng, 3, *sizes(rng, 3, least=12), cached=400)
        prompts[0] = prompts[0]._replace(cached=0)
        prompts[1] = prompts[1]._replace(cached=rng.randint(1, 400))
        budget = 3 + sum(work.tokens for work in prompts) - rng.randint(1, 9)
        plan(student, rng, decodes, prompts, budget)
        plan(student, rng, [*decodes, prompts[0]], prompts[1:], budget)


@task("chunked.2", after="test_cached_tokens")
def test_requests_that_come_back(student, rng):
    """A request that lost its blocks is planned like a new one, with all its tokens or those that are not cached."""
    for budget in (rng.randint(12, 20), rng.randint(6, 9)):
        serving = Serving()
        first, second = fresh_ids(rng, 2)
        serving.running = [Request(first, 4, 1000, computed=4, written=1)]
        serving.add(Request(second, rng.randint(30, 60), 1000))
        for found in (0, 0, rng.randint(1, 4)):
            for _ in range(rng.randint(3, 9)):
                serving.carry_out(must_plan(student.schedule_step, serving.call(budget)))
            serving.preempt(found)
        serving.carry_out(must_plan(student.schedule_step, serving.call(budget)))


@task("chunked.2", after="test_decodes_before_prompts")
def test_more_decodes_than_budget(student, rng):
    """Without a prompt the budget is for decodes alone, the oldest ones."""
    for _ in range(DRAWS):
        decodes, _ = split(rng, rng.randint(6, 12))
        plan(student, rng, decodes, [], rng.randint(3, len(decodes) - 1))


@task("chunked.2", after="test_decodes_before_prompts")
def test_nobody_starves(student, rng):
    """Every request starts, gets its first token and ends within a bound, however many come behind it."""
    for budget, longest in ((2, None), (3, None), (rng.randint(4, 6), 2)):
        nobody_starves(student.schedule_step, rng, budget, longest, requests=30)


@task("chunked.2", after="test_nobody_starves")
def test_one_token_is_kept(student, rng):
    """With more decodes than budget exactly one token is kept for the first prompt."""
    for _ in range(DRAWS):
        decodes, prompts = split(rng, rng.randint(40, 50), rng.randint(12, 90))
        budget = rng.randint(30, len(decodes))
        plan(student, rng, decodes, prompts, budget)
        plan(student, rng, [*decodes, *prompts], [], budget)


@task("chunked.2", after="test_decodes_before_prompts")
def test_a_budget_of_one(student, rng):
    """A budget of one token is enough for a decode without prompts, and for a prompt without decodes."""
    decodes, prompts = split(rng, 1, rng.randint(4, 30))
    plan(student, rng, decodes, [], 1)
    plan(student, rng, [], prompts, 1)
    plan(student, rng, prompts, [], 1)


@task("chunked.2", after="test_decodes_before_prompts")
def test_the_lists_are_left_alone(student, rng):
    """The lists that are given stay as they were: the engine goes on with them."""
    decodes, prompts = split(rng, 3, rng.randint(12, 40))
    running, waiting = list(decodes), list(prompts)
    student.schedule_step(running, waiting, 12)
    assert running == decodes and waiting == prompts, "schedule_step changed a list it was given"


@task("chunked.2", after="test_decodes_before_prompts")
def test_budgets_that_cannot_be(student, rng):
    """A budget below 1 is refused by name, and so is 1 if decodes and prompts are there."""
    decodes, prompts = split(rng, 2, rng.randint(4, 30))
    for budget in (0, -rng.randint(1, 9)):
        expect(student.schedule_step, [], prompts, budget).refused(naming="budget", because="nobody could run")
        expect(student.schedule_step, decodes, [], budget).refused(naming="budget", because="nobody could run")
    for running, waiting in ((decodes, prompts), ([*decodes, *prompts], [])):
        expect(student.schedule_step, running, waiting, 1).refused(
            naming="budget", because="a decode and a prompt need one token each: one of them would never run"
        )


@task("chunked.2", after="test_the_longest_chunk")
def test_caps_that_cannot_be(student, rng):
    """A `longest` below 1 is refused by name."""
    _, prompts = split(rng, 0, rng.randint(4, 30))
    for longest in (0, -rng.randint(1, 9)):
        expect(student.schedule_step, [], prompts, 50, longest).refused(naming="longest", because="no prompt could run")
