"""Public tests of lesson 5, chunked prefill: small cases that teach, the smallest first."""

from __future__ import annotations

from random import Random

from kvcourse.tasks.api import expect, task
from kvcourse.tasks.chunked_decode import *  # noqa: F403 - the tests of chunked.3 and chunked.4
from kvcourse.tasks.chunked_prefill import *  # noqa: F403 - the tests of chunked.5 and chunked.6
from kvcourse.tasks.chunked_steps import Request, Serving, Work, drive, follow, must_plan

# --- chunked.1


@task("chunked.1")
def test_a_prompt_in_passes(student):
    """A prompt is computed in passes of chunk_size positions, the last pass gets the rest."""
    expect(student.chunks, 10, 4).equals(
        [range(0, 4), range(4, 8), range(8, 10)],
        because="positions 0 to 9, four at a time; two are left at the end",
        tip="step through range(0, prompt_tokens, chunk_size); no range ends behind the prompt",
    )
    expect(student.chunks, 3, 4).equals([range(0, 3)], because="three positions fit into one pass")


@task("chunked.1")
def test_a_full_last_pass(student):
    """A prompt that fills its last pass has no empty one behind it."""
    tip = "there are ceil(tokens / chunk_size) passes, not tokens // chunk_size + 1"
    expect(student.chunks, 8, 4).equals([range(0, 4), range(4, 8)], because="8 positions are two full passes", tip=tip)
    expect(student.chunks, 4, 4).equals([range(0, 4)], because="4 positions are one full pass", tip=tip)


@task("chunked.1", after="test_a_prompt_in_passes")
def test_a_long_prompt(student):
    """100,000 tokens take 13 passes of 8,192, and the last one has 1,696 of them."""
    expect(student.chunks, 100_000, 8192).satisfies(
        lambda got: len(got) == 13 and len(got[-1]) == 1696,
        want="13 ranges, the last one of 1,696 positions",
        because="12 x 8,192 is 98,304, and 1,696 are left",
    )


@task("chunked.1", after="test_a_prompt_in_passes")
def test_passes_behind_cached_tokens(student):
    """Cached tokens are not computed: the first pass starts behind them, at their position."""
    tip = "start at cached, not at 0; keep the real positions"
    expect(student.chunks, 10, 4, 6).equals(
        [range(6, 10)], because="positions 0 to 5 are cached, four are left", tip=tip
    )
    expect(student.chunks, 10, 4, 3).equals(
        [range(3, 7), range(7, 10)], because="seven are left: a pass of four, then three", tip=tip
    )


@task("chunked.1", after="test_a_prompt_in_passes")
def test_passes_that_make_no_sense(student):
    """Empty prompts, empty chunks and a cache that leaves nothing to compute are refused by name."""
    tip = "require() above raises ValueError; its sentence names the argument"
    expect(student.chunks, 10, 0).refused(naming="chunk_size", because="no pass is empty", tip=tip)
    expect(student.chunks, 0, 4).refused(naming="prompt_tokens", because="there is nothing to compute", tip=tip)
    expect(student.chunks, 10, 4, -1).refused(naming="cached", because="fewer than no tokens", tip=tip)
    expect(student.chunks, 10, 4, 10).refused(
        naming="cached", because="one token at least is computed, else there is nothing to sample from", tip=tip
    )


@task("chunked.1")
def test_slots_of_a_chunk(student):
    """Position p stands in block p // block_size of the table, at place p % block_size."""
    tip = "block_table[p // block_size] * block_size + p % block_size"
    expect(student.chunk_slots, [7, 2], range(0, 8), 4).equals(
        [28, 29, 30, 31, 8, 9, 10, 11], because="block 7 is slots 28 to 31, block 2 is slots 8 to 11", tip=tip
    )


@task("chunked.1", after="test_slots_of_a_chunk")
def test_a_chunk_goes_on_inside_a_block(student):
    """A chunk goes on in the block where the chunk before it ended."""
    tip = "count places from the start of the sequence, not from the start of the chunk"
    expect(student.chunk_slots, [7, 2], range(0, 3), 4).equals([28, 29, 30], because="three places of block 7", tip=tip)
    expect(student.chunk_slots, [7, 2], range(3, 6), 4).equals(
        [31, 8, 9], because="slot 31 is still free, block 2 comes after it", tip=tip
    )


@task("chunked.1", after="test_slots_of_a_chunk")
def test_tables_without_room(student):
    """A block table that ends before the chunk does is refused by name."""
    tip = "the chunk's last position needs a block"
    expect(student.chunk_slots, [7, 2], range(4, 9), 4).refused(
        naming="block_table", because="two blocks of 4 have room for positions 0 to 7", tip=tip
    )
    expect(student.chunk_slots, [7, 2], range(0, 2), 0).refused(naming="block_size", because="no block is empty")


@task("chunked.1")
def test_keys_of_a_chunk(student):
    """A chunk's queries see all keys from position 0 up to the end of the chunk."""
    expect(student.chunk_keys, range(4, 8)).equals(
        range(0, 8),
        because="position 4 sees keys 0 to 4, position 7 sees 0 to 7; behind 7 nothing is written yet",
        tip="the keys end where the chunk ends",
    )
    expect(student.chunk_keys, range(0, 4)).equals(range(0, 4), because="the first chunk sees itself alone")


@task("chunked.1", after="test_keys_of_a_chunk")
def test_keys_in_a_window_of_three(student):
    """With a window the first query of the chunk decides where the keys begin."""
    tip = "the oldest key is that of the first query: chunk.start - window + 1, but never below 0"
    expect(student.chunk_keys, range(6, 8), 3).equals(
        range(4, 8), because="position 6 sees 4, 5, 6 and position 7 sees 5, 6, 7", tip=tip
    )
    expect(student.chunk_keys, range(6, 11), 3).equals(
        range(4, 11), because="a chunk longer than the window needs window - 1 + 5 = 7 keys", tip=tip
    )
    expect(student.chunk_keys, range(1, 3), 3).equals(range(0, 3), because="no key stands before position 0", tip=tip)


@task("chunked.1", after="test_keys_in_a_window_of_three")
def test_keys_that_make_no_sense(student):
    """Empty chunks and empty windows are refused by name."""
    expect(student.chunk_keys, range(4, 4)).refused(naming="chunk", because="nobody asks for keys")
    expect(student.chunk_keys, range(4, 8), 0).refused(naming="window", because="a token sees itself at least")


@task("chunked.1", after="test_a_chunk_goes_on_inside_a_block")
def test_the_passes_fill_the_blocks(student):
    """All passes over a prompt together give every token a slot of its own, in the order of the block table."""
    table, want = [5, 0, 3], [20, 21, 22, 23, 0, 1, 2, 3, 12, 13]
    for chunk_size in (1, 3, 4, 10):
        slots: list[int] = []
        for chunk in expect(student.chunks, 10, chunk_size).satisfies(lambda got: len(got) > 0, want="ranges"):
            slots += expect(student.chunk_slots, table, range(chunk[0], chunk[-1] + 1), 4).satisfies(
                lambda got, done=slots: got == want[len(done) : len(done) + len(got)],
                want=f"the next slots of {want}",
                because=f"the prompt of 10 tokens comes in chunks of {chunk_size}",
            )
        assert slots == want, f"chunks of {chunk_size}: all ten tokens have their slots"


# --- chunked.2

A, B, C = 1, 2, 3  # requests


@task("chunked.2")
def test_a_prompt_fits(student):
    """A prompt that fits into the budget is computed whole."""
    expect(student.schedule_step, [], [Work(A, 5)], 8).equals(
        [(A, 5)], because="5 of 8 tokens", tip="a list of pairs: the request's id and its tokens"
    )
    expect(student.schedule_step, [], [Work(A, 5), Work(B, 3)], 8).equals(
        [(A, 5), (B, 3)], because="both fit: 5 + 3 = 8"
    )


@task("chunked.2")
def test_a_prompt_is_cut(student):
    """The last prompt is cut to what is left of the budget; with nothing left there is no entry."""
    tip = "each one in order gets min(its tokens, what is left of the budget); stop at 0"
    expect(student.schedule_step, [], [Work(A, 5), Work(B, 6)], 8).equals(
        [(A, 5), (B, 3)], because="B gets the 3 tokens that A leaves", tip=tip
    )
    expect(student.schedule_step, [], [Work(A, 5), Work(B, 6), Work(C, 1)], 8).equals(
        [(A, 5), (B, 3)], because="nothing is left for C, small as it is", tip=tip
    )


@task("chunked.2")
def test_decodes_come_first(student):
    """A decode costs one token and comes before all prompts, wherever it stands."""
    tip = "first go through running for tokens == 1, then through the others"
    expect(student.schedule_step, [Work(A, 1)], [Work(B, 80)], 50).equals(
        [(A, 1), (B, 49)], because="A writes on; of a budget of 50 tokens 49 are left for the prompt", tip=tip
    )
    expect(student.schedule_step, [Work(A, 1), Work(B, 31)], [], 50).equals(
        [(A, 1), (B, 31)], because="in the next step the prompt has 31 left", tip=tip
    )
    expect(student.schedule_step, [Work(A, 9), Work(B, 1)], [], 6).equals(
        [(B, 1), (A, 5)], because="B comes first though A is older: it is one token", tip=tip
    )


@task("chunked.2")
def test_running_prompts_come_before_waiting_ones(student):
    """A prompt that has begun goes on before a waiting one begins."""
    expect(student.schedule_step, [Work(A, 6)], [Work(B, 6)], 8).equals(
        [(A, 6), (B, 2)],
        because="A holds blocks already: the sooner it is through, the sooner it answers",
        tip="one row of prompts: the running ones, then the waiting ones",
    )
    expect(student.schedule_step, [Work(B, 3), Work(C, 3)], [Work(A, 6)], 8).equals(
        [(B, 3), (C, 3), (A, 2)],
        because="A is the oldest, but it has lost its blocks: B and C run",
        tip="keep the order",
    )
    expect(student.schedule_step, [Work(A, 6)], [Work(B, 1)], 8).equals(
        [(A, 6), (B, 1)], because="a waiting request is a prompt, also with one token: it comes in its turn"
    )


@task("chunked.2", after="test_decodes_come_first")
def test_a_prompt_is_not_locked_out(student):
    """However many decodes there are, one token of the budget is kept for a prompt."""
    decodes = [Work(number, 1) for number in range(1, 6)]
    tip = "at most budget - 1 decodes if there is a prompt, else at most budget"
    expect(student.schedule_step, decodes, [Work(9, 70)], 4).equals(
        [(1, 1), (2, 1), (3, 1), (9, 1)], because="three decodes, the oldest ones, and a token of the prompt", tip=tip
    )
    expect(student.schedule_step, decodes, [], 4).equals(
        [(1, 1), (2, 1), (3, 1), (4, 1)], because="without a prompt all four tokens are for decodes", tip=tip
    )


@task("chunked.2", after="test_a_prompt_is_cut")
def test_the_cap_of_vllm(student):
    """Three prompts of 800 tokens, a budget of 1,024 and at most 400 for one: nobody waits for the first."""
    tip = "one more limit in the min(): longest, for each prompt by itself"
    first = [Work(number, 800) for number in (A, B, C)]
    expect(student.schedule_step, [], first, 1024, 400).equals(
        [(A, 400), (B, 400), (C, 224)], because="400 + 400, and 224 are left", tip=tip
    )
    second = [Work(A, 400, 400), Work(B, 400, 400), Work(C, 576, 224)]
    expect(student.schedule_step, second, [], 1024, 400).equals(
        [(A, 400), (B, 400), (C, 224)], because="the same again", tip=tip
    )
    third = [Work(A, 1, 800), Work(B, 1, 800), Work(C, 352, 448)]
    expect(student.schedule_step, third, [], 1024, 400).equals(
        [(A, 1), (B, 1), (C, 352)], because="A and B write; C has 352 left", tip=tip
    )


@task("chunked.2", after="test_a_prompt_is_cut")
def test_cached_tokens_are_free(student):
    """Cached tokens cost nothing: the budget counts what is computed."""
    expect(student.schedule_step, [], [Work(A, 3, cached=96), Work(B, 5, cached=64)], 8).equals(
        [(A, 3), (B, 5)],
        because="3 + 5 = 8 tokens are computed; the 96 and the 64 are in the cache",
        tip="tokens does not contain cached: use tokens alone",
    )


@task("chunked.2", after="test_decodes_come_first")
def test_nothing_is_remembered(student):
    """A preempted request comes back with all its tokens, and only the numbers of this call count."""
    for _ in range(2):
        expect(student.schedule_step, [Work(A, 1)], [Work(B, 6)], 5).equals(
            [(A, 1), (B, 4)],
            because="B lost its blocks after the step before, so it has six tokens to compute again",
            tip="keep nothing between two calls",
        )


@task("chunked.2", after="test_decodes_come_first")
def test_the_engines_lists(student):
    """The two lists are the engine's own: they are the same after the call."""
    running, waiting = [Work(A, 1)], [Work(B, 6), Work(C, 2)]
    student.schedule_step(running, waiting, 5)
    assert running == [Work(A, 1)], "the running requests are the engine's list: make a new one"
    assert waiting == [Work(B, 6), Work(C, 2)], "the queue is the engine's list: make a new one"


@task("chunked.2", after="test_decodes_come_first")
def test_the_smallest_budget(student):
    """A budget of 1 is enough as long as only decodes or only prompts are there."""
    expect(student.schedule_step, [Work(A, 1), Work(B, 1)], [], 1).equals([(A, 1)], because="the oldest one writes")
    expect(student.schedule_step, [], [Work(A, 5)], 1).equals([(A, 1)], because="a pass of one token")


@task("chunked.2", after="test_a_prompt_fits")
def test_budgets_that_make_no_sense(student):
    """A budget without room for everybody is refused by name."""
    tip = "require() above raises ValueError; its sentence names the argument"
    expect(student.schedule_step, [], [Work(A, 5)], 0).refused(naming="budget", because="nobody could run", tip=tip)
    expect(student.schedule_step, [Work(A, 1)], [Work(B, 5)], 1).refused(
        naming="budget", because="a decode and a prompt need one token each: one of them would never run", tip=tip
    )
    expect(student.schedule_step, [], [Work(A, 5)], 8, 0).refused(naming="longest", because="no prompt runs", tip=tip)


@task("chunked.2", after="test_decodes_come_first")
def test_a_long_prompt_beside_decodes(student):
    """100,000 tokens beside 64 decodes, budget 512: 448 tokens a step, 224 steps, 96 in the last."""
    serving, prompt = Serving(), 100
    serving.running = [Request(number, 2, 1000, computed=2, written=1) for number in range(64)]
    serving.add(Request(prompt, 100_000, 1))
    got: list[int] = []
    while serving.waiting or serving.running[-1].id == prompt:
        plan = must_plan(student.schedule_step, serving.call(512))
        serving.carry_out(plan)
        got.append(dict(plan)[prompt])
    assert got == [448] * 223 + [96], "512 - 64 = 448 tokens are left in each step, and 223 x 448 is 99,904"


@task("chunked.2", after="test_decodes_come_first")
def test_many_steps_of_an_engine(student):
    """Requests come, write, end and lose their blocks, and every plan on the way keeps the rules."""
    for seed, (budget, longest) in enumerate(((16, None), (5, None), (24, 8), (2, None), (40, 3))):
        follow(student.schedule_step, Random(seed), budget, longest, steps=25, first_id=1 + 1000 * seed)
    serving = Serving()
    for number, tokens in ((A, 30), (B, 7), (C, 12)):
        serving.add(Request(number, tokens, 3))
    steps = drive(lambda call: must_plan(student.schedule_step, call), serving, 16)
    assert sum(sum(step.values()) for step in steps) == 49 + 3 * 2, "each token is computed once"
