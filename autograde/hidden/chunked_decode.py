"""Hidden tests of chunked.3 and chunked.4: fresh inputs, each property with a trap of its own.

NaN in every place that no token has, NaN in the outputs and inputs that must not change belong to all of them.
"""

from __future__ import annotations

from random import Random

import torch

from kvcourse.tasks import kernel_problems as problems
from kvcourse.tasks.api import task
from kvcourse.tasks.kernel_gates import (
    axpy_moves_little,
    decode_meets_no_bank_twice,
    decode_merges_once,
    decode_moves_little,
    write_kv_moves_little,
)
from kvcourse.tasks.kernel_kit import EVERY_ORDER, launch, launch_on_gpu
from kvcourse.tasks.kernel_problems import DTYPES

LONG = 13_000  # tokens: their scores do not fit into 48 KB
DIGITS = "a __half has 11 binary digits, so a small number is lost beside a large one"


def some_slots(rng: Random, tokens: int) -> list[int]:
    """Different slots in any order; slot 0 is left to the test that is about it."""
    return rng.sample(range(1, 16 * (tokens // 16 + 2)), tokens)


# --- chunked.3


@task("chunked.3")
def test_axpy_fresh_blocks(student, rng):
    """Every number of full blocks is a * x + y, with the x, the y and the a of this launch."""
    for blocks in (rng.choice([2, 4]), rng.randint(5, 7)):
        launch(student, problems.axpy(rng, 128 * blocks), orders=EVERY_ORDER, because="out[i] = a * x[i] + y[i]")


@task("chunked.3", after="test_axpy_fresh_blocks")
def test_axpy_fresh_tails(student, rng):
    """The last block may be full, nearly empty or anything between: each number is written, and none behind them."""
    for n in (128 * rng.randint(1, 4) + rng.randint(1, 127), rng.randint(2, 127), 129, 127, 1):
        launch(student, problems.axpy(rng, n), because="the last block reaches beyond n")


@task("chunked.3", after="test_axpy_fresh_blocks")
def test_axpy_fresh_sectors(student, rng):
    """Each number is read once and written once, by neighbours in a warp."""
    problem = problems.axpy(rng, 128 * rng.randint(6, 12))
    axpy_moves_little(problem, launch(student, problem))


@task("chunked.3")
def test_write_kv_fresh_slots(student, rng):
    """Each token's key and value lie in its slot, and nothing else has changed."""
    for tokens in (rng.randint(3, 8), rng.randint(10, 20)):
        launch(student, problems.write_kv(rng, tokens, slots=some_slots(rng, tokens)), orders=EVERY_ORDER)


@task("chunked.3", after="test_write_kv_fresh_slots")
def test_write_kv_fresh_widths(student, rng):
    """Rows of any width, also when it is no multiple of 128."""
    for kv_heads, head_dim in ((1, 80), (3, 96), (8, 64), (rng.randint(1, 9), rng.choice([32, 80, 128]))):
        block_size, slots = rng.choice([1, 4, 32]), some_slots(rng, rng.randint(2, 5))
        launch(student, problems.write_kv(rng, len(slots), kv_heads, head_dim, block_size, slots=slots))


@task("chunked.3", after="test_write_kv_fresh_slots")
def test_write_kv_fresh_padding(student, rng):
    """Any negative slot is padding, wherever it stands, and slot 0 is none."""
    slots = [*rng.sample(range(1, 64), 5), 0, -1, -rng.randint(2, 90)]
    for _ in range(2):
        rng.shuffle(slots)
        launch(student, problems.write_kv(rng, len(slots), slots=slots), because="negative slots are padding")
    launch(student, problems.write_kv(rng, 3, slots=[-1, -1, -1]), because="a step may be all padding")


@task("chunked.3", after="test_write_kv_fresh_slots")
def test_write_kv_fresh_halves(student, rng):
    """In half precision every number arrives bit by bit."""
    for _ in range(2):
        slots = some_slots(rng, rng.randint(3, 7))
        launch(student, problems.write_kv(rng, len(slots), dtype=torch.float16, slots=slots))


@task("chunked.3", after="test_write_kv_fresh_slots")
def test_write_kv_huge_pools(student, rng):
    """An index beyond 32 bits is still the right one."""
    launch(student, problems.write_kv(rng, rng.randint(2, 5), far=True))


@task("chunked.3", after="test_write_kv_fresh_slots")
def test_write_kv_fresh_sectors(student, rng):
    """Each new key and value is read once and written once, by neighbours in a warp."""
    slots = some_slots(rng, rng.randint(6, 12))
    problem = problems.write_kv(rng, len(slots), rng.choice([4, 8]), 64, slots=slots)
    write_kv_moves_little(problem, launch(student, problem))


@task("chunked.3", gpu=True)
def test_first_kernels_on_a_gpu_with_fresh_numbers(student, rng, gpu):
    """On a GPU fresh inputs give the right results, many blocks at a time."""
    for n in (rng.randint(1, 128), rng.randint(10_000, 1_000_000)):
        launch_on_gpu(gpu, student, problems.axpy(rng, n))
    for dtype in DTYPES:
        launch_on_gpu(gpu, student, problems.write_kv(rng, rng.randint(200, 500), 3, 80, dtype=dtype))
        launch_on_gpu(gpu, student, problems.write_kv(rng, 4, slots=[3, -7, 0, -1], dtype=dtype))


# --- chunked.4, first what everything else is built on: each property asks for one thing more


@task("chunked.4")
def test_paged_one_full_block(student, rng):
    """Attention over the tokens of one full block, in every order of threads."""
    for heads in (1, 2):
        launch(student, problems.paged_decode(rng, [16], heads, heads), orders=EVERY_ORDER)


@task("chunked.4", after="test_paged_one_full_block")
def test_paged_scattered_blocks(student, rng):
    """The blocks of a sequence lie anywhere, in any order."""
    for blocks in (2, rng.randint(5, 9)):
        launch(student, problems.paged_decode(rng, [16 * blocks], 2, 2), because="block_tables says where")


@task("chunked.4", after="test_paged_scattered_blocks")
def test_paged_last_block(student, rng):
    """The last block may be partly filled: what lies behind the last token is not read."""
    for rest in (1, rng.randint(2, 14), 15):
        launch(student, problems.paged_decode(rng, [16 * rng.randint(2, 4) + rest], 2, 2), because="NaN lies behind")


@task("chunked.4", after="test_paged_last_block")
def test_paged_several_sequences(student, rng):
    """Each sequence has its own length and its own row of the block table; leading blocks may be shared."""
    lengths = [rng.randint(17, 90) for _ in range(4)]
    launch(student, problems.paged_decode(rng, lengths, 2, 2), orders=EVERY_ORDER)
    lengths = [rng.randint(50, 90), 48, rng.randint(48, 120)]
    launch(student, problems.paged_decode(rng, lengths, 2, 2, shared_blocks=rng.randint(1, 3)))


# --- chunked.4, then each difficulty by itself


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_short_sequences(student, rng):
    """One token, two, and every length at which a warp or a block has nothing, or one token more."""
    lengths = [1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 31, 32, 33, 63, 65]
    rng.shuffle(lengths)
    launch(student, problems.paged_decode(rng, lengths, 1, 1), orders=EVERY_ORDER, because="1 token is a sequence too")
    launch(student, problems.paged_decode(rng, [1], 2, 2), because="1 token is a sequence too")


@task("chunked.4", after="test_paged_several_sequences", weight=3.0)
def test_paged_grouped_heads(student, rng):
    """Neighbouring query heads share a KV head, whatever the size of the group, and each has a query of its own."""
    for heads, kv_heads in ((8, 2), (6, 3), (4, 1), (3, 3), (rng.choice([2, 4]) * 3, 3)):
        launch(student, problems.paged_decode(rng, [rng.randint(17, 40), rng.randint(17, 40)], heads, kv_heads))


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_head_sizes(student, rng):
    """Heads of 32, 64, 80, 96 and 128 numbers."""
    for head_dim in (80, 32, 96, 128, 64):
        launch(student, problems.paged_decode(rng, [rng.randint(17, 40)], 2, 2, head_dim))


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_block_sizes(student, rng):
    """Blocks of any size: one token, 32, or a number that is no power of two."""
    for block_size in (32, 4, 1, 12, rng.choice([3, 5, 7])):
        launch(student, problems.paged_decode(rng, [rng.randint(33, 70), rng.randint(17, 40)], 2, 2, 64, block_size))


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_huge_pools(student, rng):
    """An index beyond 32 bits is still the right one."""
    launch(student, problems.paged_decode(rng, [rng.randint(17, 60), rng.randint(17, 32)], 2, 2, far=True))


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_own_scale(student, rng):
    """The scale is the one that was given: not every model divides by the root of the head size."""
    for own_scale in (round(rng.uniform(0.2, 0.4), 3), 0.0625):
        launch(student, problems.paged_decode(rng, [rng.randint(17, 60)], 2, 2, own_scale=own_scale))


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_scores_far_above_zero(student, rng):
    """Large scores, near each other or far apart, do not overflow."""
    for logits in ("far above zero", "wide"):
        launch(student, problems.paged_decode(rng, [rng.randint(33, 90), rng.randint(17, 32)], 2, 2, logits=logits))


@task("chunked.4", after="test_paged_scores_far_above_zero", weight=2.0)
def test_paged_scores_far_below_zero(student, rng):
    """When all scores lie far below zero, their weights are what matters, not zero."""
    launch(
        student, problems.paged_decode(rng, [rng.randint(33, 90), rng.randint(17, 32)], 2, 2, logits="far below zero"),
        because="exp(-150) is 0 in float: take the largest score off, which is below zero as well",
    )  # fmt: skip


@task("chunked.4", after="test_paged_scores_far_above_zero")
def test_paged_scores_rise_and_fall(student, rng):
    """The largest score may be the last one or the first one: what is summed up already is scaled down."""
    for logits in ("rising", "falling"):
        launch(student, problems.paged_decode(rng, [rng.randint(100, 200), rng.randint(20, 40)], 2, 2, logits=logits))


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_long_context(student, rng):
    """A context whose scores do not fit into shared memory."""
    launch(
        student, problems.paged_decode(rng, [LONG + rng.randint(0, 500)], 1, 1, 32),
        because="shared memory has 48 KB, and a context may be as long as it likes",
        tip="keep a maximum, a total and a sum, and correct them as the maximum grows: no score has to be kept",
    )  # fmt: skip


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_halves(student, rng):
    """A pool in half precision."""
    for lengths in ([rng.randint(17, 60), rng.randint(17, 32)], [rng.randint(100, 200)]):
        launch(student, problems.paged_decode(rng, lengths, 2, 2, dtype=torch.float16))


@task("chunked.4", after="test_paged_halves")
def test_paged_sums_in_float(student, rng):
    """Products, sums and the total of the weights are kept in float, also where the pool is in half precision."""
    half = torch.float16
    launch(student, problems.paged_decode(rng, [rng.randint(40, 90)], 2, 2, dtype=half, logits="cancelling"), DIGITS)
    launch(student, problems.paged_decode(rng, [rng.randint(96, 120)], 2, 2, dtype=half, logits="equal"), DIGITS)
    many = [rng.randint(9500, 9900)]
    even = problems.paged_decode(rng, many, 1, 1, 32, dtype=half, logits="equal", value_level=3.0)
    launch(student, even, because="beyond 2,048 a __half cannot count by ones")


@task("chunked.4", after="test_paged_several_sequences", weight=2.0)
def test_paged_sectors(student, rng):
    """Each head reads each key and each value once, as whole sectors."""
    for head_dim in (64, 128):
        problem = problems.paged_decode(rng, [rng.randint(150, 250), rng.randint(60, 100)], 2, 2, head_dim)
        decode_moves_little(problem, launch(student, problem))


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_merge(student, rng):
    """The four warps share the tokens, and meet once in shared memory."""
    problem = problems.paged_decode(rng, [rng.randint(150, 250)], 2, 2)
    decode_merges_once(problem, launch(student, problem, orders=EVERY_ORDER))


@task("chunked.4", after="test_paged_several_sequences")
def test_paged_banks(student, rng):
    """The lanes of a warp meet different banks of shared memory."""
    for head_dim in (64, 128):
        problem = problems.paged_decode(rng, [rng.randint(30, 60), rng.randint(60, 100)], 2, 2, head_dim)
        decode_meets_no_bank_twice(problem, launch(student, problem))


@task("chunked.4", gpu=True)
def test_paged_on_a_gpu(student, rng, gpu):
    """On a GPU fresh sequences of all lengths give the right answers, in float and in half precision."""
    for dtype in DTYPES:
        lengths = [1, rng.randint(2, 40), rng.randint(1000, 3000), rng.randint(40, 400)]
        launch_on_gpu(gpu, student, problems.paged_decode(rng, lengths, 8, 2, 64, 16, dtype))
        launch_on_gpu(gpu, student, problems.paged_decode(rng, lengths[:2], 6, 3, 80, 5, dtype))
        launch_on_gpu(gpu, student, problems.paged_decode(rng, lengths[:2], logits="rising", dtype=dtype))
