"""Hidden tests of lesson 5, chunked prefill: each property departs in one way from inputs where shortcuts are right."""

from __future__ import annotations

from random import Random
from typing import Any

from autograde.hidden.chunked_decode import *  # noqa: F403 - the tests of chunked.3 and chunked.4
from autograde.hidden.chunked_prefill import *  # noqa: F403 - the tests of chunked.5 and chunked.6
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

# --- chunked.1


def same_passes(student: Any, solution: Any, because: str, prompt: int, size: int, cached: int = 0) -> None:
    """The passes are those of the solution; first the law that needs no solution: each position once, in order."""
    more = (cached,) if cached else ()
    expect(student.chunks, prompt, size, *more).satisfies(
        lambda got: [position for chunk in got for position in chunk] == list(range(cached, prompt)),
        want=f"the positions {cached} to {prompt - 1} in order, each once",
        because=because,
    )
    expect(student.chunks, prompt, size, *more).equals(solution.chunks(prompt, size, *more), because=because)


@task("chunked.1")
def test_passes_over_a_prompt(student, rng, solution):
    """All passes but the last have chunk_size positions, and together they have every position once, in order."""
    for _ in range(DRAWS):
        size = rng.randint(3, 40)
        prompt = rng.randint(2, 9) * size + rng.randint(1, size - 1)
        same_passes(student, solution, "full passes, then the rest", prompt, size)


@task("chunked.1", after="test_passes_over_a_prompt")
def test_prompts_of_full_passes(student, rng, solution):
    """There is no empty pass behind a prompt whose last pass is full, nor a longer one behind a short prompt."""
    for _ in range(DRAWS):
        size = rng.randint(3, 40)
        same_passes(student, solution, "the last pass is full", rng.randint(1, 6) * size, size)
        same_passes(student, solution, "the prompt is shorter than a pass", rng.randint(1, size - 1), size)


@task("chunked.1", after="test_passes_over_a_prompt")
def test_passes_behind_the_cache(student, rng, solution):
    """The first pass starts at the position behind the cached tokens, and passes are counted without them."""
    for _ in range(DRAWS):
        size, cached = rng.randint(5, 40), rng.randint(1, 200)
        left = rng.randint(1, 5) * size + rng.randint(1, size - 1)
        because = f"{cached} tokens are cached, {left} are computed"
        same_passes(student, solution, because, cached + left, size, cached)


@task("chunked.1", after="test_passes_over_a_prompt")
def test_passes_that_cannot_be(student, rng):
    """Prompts, chunks and cached tokens that cannot be are refused by name."""
    prompt, size = rng.randint(20, 90), rng.randint(3, 9)
    expect(student.chunks, prompt, 0).refused(naming="chunk_size", because="no pass is empty")
    expect(student.chunks, prompt, -size).refused(naming="chunk_size", because="no pass is empty")
    expect(student.chunks, 0, size).refused(naming="prompt_tokens", because="there is nothing to compute")
    expect(student.chunks, prompt, size, -size).refused(naming="cached", because="fewer than no tokens")
    for cached in (prompt, prompt + size):
        expect(student.chunks, prompt, size, cached).refused(naming="cached", because="one token at least is computed")


def table_of(rng: Random, blocks: int) -> list[int]:
    """Blocks in random order, block 0 among them."""
    table = [0, *rng.sample(range(1, 300), blocks - 1)]
    rng.shuffle(table)
    return table


def same_slots(student: Any, solution: Any, because: str, table: list[int], chunk: range, size: int) -> None:
    want = solution.chunk_slots(table, chunk, size)
    expect(student.chunk_slots, table, chunk, size).equals(want, because=because)


@task("chunked.1")
def test_slots_of_full_blocks(student, rng, solution):
    """The positions of full blocks stand in the slots of those blocks, in the order of the table."""
    for _ in range(DRAWS):
        size, blocks, first = rng.randint(3, 16), rng.randint(4, 7), rng.randint(0, 2)
        chunk = range(first * size, blocks * size)
        same_slots(student, solution, f"blocks of {size}", table_of(rng, blocks), chunk, size)


@task("chunked.1", after="test_slots_of_full_blocks")
def test_slots_inside_blocks(student, rng, solution):
    """A chunk goes on in the block where the one before ended, and may end inside a block."""
    for _ in range(DRAWS):
        size, blocks = rng.randint(4, 16), rng.randint(4, 7)
        start = rng.randint(0, 2) * size + rng.randint(1, size - 1)
        table, stop = table_of(rng, blocks), rng.randint(3, blocks) * size - rng.randint(1, size - 1)
        same_slots(student, solution, "it begins inside a block", table, range(start, max(stop, start + 1)), size)
        inside = range(start, start + size - start % size)
        same_slots(student, solution, "the rest of one block", table, inside, size)


@task("chunked.1", after="test_slots_of_full_blocks")
def test_slots_that_are_not_there(student, rng, solution):
    """A table that ends before the chunk is refused by name, one that just has room is not, nor is a longer one."""
    for _ in range(DRAWS):
        size, blocks = rng.randint(3, 16), rng.randint(3, 6)
        table, start = table_of(rng, blocks), rng.randint(0, 2) * size
        same_slots(student, solution, "the table just has room", table, range(start, blocks * size), size)
        same_slots(student, solution, "the table is longer", table, range(size), size)
        for more in (1, size):
            expect(student.chunk_slots, table, range(start, blocks * size + more), size).refused(
                naming="block_table", because=f"{blocks} blocks of {size} have {blocks * size} slots"
            )


@task("chunked.1", after="test_slots_of_full_blocks")
def test_blocks_that_cannot_be(student, rng):
    """Block sizes below 1 are refused by name."""
    for size in (0, -rng.randint(1, 16)):
        expect(student.chunk_slots, table_of(rng, 4), range(0, 3), size).refused(naming="block_size")


def same_keys(student: Any, solution: Any, because: str, chunk: range, window: int | None = None) -> None:
    more = () if window is None else (window,)
    expect(student.chunk_keys, chunk, *more).equals(solution.chunk_keys(chunk, *more), because=because)


@task("chunked.1")
def test_keys_up_to_the_end(student, rng, solution):
    """Without a window a chunk needs all keys from position 0 to its own end, and none behind it."""
    for _ in range(DRAWS):
        start = rng.randint(1, 200)
        chunk = range(start, start + rng.randint(1, 60))
        same_keys(student, solution, f"its last query is at {chunk[-1]}", chunk)


@task("chunked.1", after="test_keys_up_to_the_end")
def test_keys_in_a_window(student, rng, solution):
    """With a window the keys begin with the oldest one that the first query sees."""
    for _ in range(DRAWS):
        window = rng.randint(10, 60)
        start = rng.randint(window, 200)
        chunk = range(start, start + rng.randint(2, window - 2))
        oldest = start - window + 1
        same_keys(student, solution, f"the query at {start} sees {oldest} to {start}", chunk, window)


@task("chunked.1", after="test_keys_in_a_window")
def test_windows_wider_than_the_past(student, rng, solution):
    """A window that reaches beyond the start of the prompt begins at position 0."""
    for _ in range(DRAWS):
        window = rng.randint(30, 90)
        start = rng.randint(0, window - 3)
        chunk = range(start, start + rng.randint(1, 20))
        same_keys(student, solution, "no key stands before position 0", chunk, window)


@task("chunked.1", after="test_keys_in_a_window")
def test_chunks_longer_than_the_window(student, rng, solution):
    """A chunk longer than the window needs window - 1 keys before itself, and all of its own."""
    for window in (1, rng.randint(2, 5), rng.randint(6, 20)):
        start = rng.randint(30, 200)
        chunk = range(start, start + window + rng.randint(1, 30))
        because = f"{window - 1} keys before the chunk, and {len(chunk)} of its own"
        same_keys(student, solution, because, chunk, window)


@task("chunked.1", after="test_keys_in_a_window")
def test_keys_that_cannot_be(student, rng):
    """Empty chunks and windows below 1 are refused by name."""
    start = rng.randint(1, 90)
    expect(student.chunk_keys, range(start, start)).refused(naming="chunk", because="nobody asks for keys")
    for window in (0, -rng.randint(1, 9)):
        expect(student.chunk_keys, range(start, start + 5), window).refused(naming="window")


# --- chunked.2


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
