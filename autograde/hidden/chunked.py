"""Hidden tests of lesson 5; here those of chunked.1: each departs in one way from inputs where shortcuts are right."""

from __future__ import annotations

from random import Random
from typing import Any

from autograde.hidden.chunked_decode import *  # noqa: F403 - the tests of chunked.3 and chunked.4
from autograde.hidden.chunked_prefill import *  # noqa: F403 - the tests of chunked.5
from autograde.hidden.chunked_scheduler import *  # noqa: F403 - the tests of chunked.2
from autograde.hidden.chunked_splits import *  # noqa: F403 - the tests of chunked.6
from kvcourse.tasks.api import expect, task

DRAWS = 4


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
