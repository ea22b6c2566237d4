"""Public tests of chunked.3 and chunked.4: the first kernels, in the order in which one meets their difficulties."""

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

# --- chunked.3


@task("chunked.3")
def test_axpy_one_block(student):
    """One block of 128 threads computes 128 numbers."""
    launch(
        student, problems.axpy(Random(1), 128), because="out[i] = a * x[i] + y[i]",
        tip="thread threadIdx.x computes number i = threadIdx.x",
    )  # fmt: skip


@task("chunked.3", after="test_axpy_one_block")
def test_axpy_several_blocks(student):
    """Three blocks compute 384 numbers: each block has numbers of its own."""
    launch(
        student, problems.axpy(Random(2), 384), because="block 1 begins where block 0 ends, at number 128",
        tip="i = blockIdx.x * blockDim.x + threadIdx.x",
    )  # fmt: skip


@task("chunked.3", after="test_axpy_several_blocks")
def test_axpy_tail(student):
    """With 300 numbers, the last 84 threads of the third block have nothing to do."""
    tip = "the threads behind the end do nothing: if (i < n)"
    launch(student, problems.axpy(Random(3), 300), because="3 x 128 threads, 300 numbers", tip=tip)
    launch(student, problems.axpy(Random(4), 1), because="128 threads, 1 number", tip=tip)


@task("chunked.3", after="test_axpy_several_blocks")
def test_axpy_coalesced(student):
    """Neighbours in a warp read neighbours in memory: 1,024 numbers move 384 sectors, and hardly more."""
    problem = problems.axpy(Random(5), 1024)
    axpy_moves_little(problem, launch(student, problem))


@task("chunked.3")
def test_write_kv_one_token(student):
    """The key and the value of one token go to its slot, and all other slots stay as they are."""
    launch(
        student, problems.write_kv(Random(6), 1, slots=[5]), because="slot_mapping[0] is 5: row 5 of the pool",
        tip="a row is `width` numbers long, so slot s begins at number s * width",
    )  # fmt: skip


@task("chunked.3", after="test_write_kv_one_token")
def test_write_kv_any_slot(student):
    """Each block of the grid takes one token, and the slots come in any order."""
    launch(
        student, problems.write_kv(Random(7), 4, slots=[17, 3, 0, 40]),
        because="token t is row t of key and value, and slot_mapping[t] of the pools", tip="t is blockIdx.x",
    )  # fmt: skip


@task("chunked.3", after="test_write_kv_any_slot")
def test_write_kv_width(student):
    """A row may have more numbers than the block has threads, or fewer."""
    tip = "for (int i = threadIdx.x; i < width; i += blockDim.x)"
    launch(student, problems.write_kv(Random(8), 3, 4, 80), because="320 numbers, 128 threads", tip=tip)
    launch(student, problems.write_kv(Random(9), 3, 1, 80), because="80 numbers, 128 threads", tip=tip)


@task("chunked.3", after="test_write_kv_any_slot")
def test_write_kv_padding(student):
    """A negative slot is padding: its token is written nowhere."""
    launch(
        student, problems.write_kv(Random(10), 4, slots=[9, -1, 2, -1]),
        because="engines fill their inputs up to a fixed number of tokens", tip="return before you compute an address",
    )  # fmt: skip


@task("chunked.3", after="test_write_kv_any_slot")
def test_write_kv_half(student):
    """The same text serves float and __half: what T is, the engine decides."""
    launch(
        student, problems.write_kv(Random(11), 3, dtype=torch.float16),
        because="the numbers are copied, bit by bit", tip="write T wherever a number of the pool is meant",
    )  # fmt: skip


@task("chunked.3", after="test_write_kv_any_slot")
def test_write_kv_far(student):
    """A pool of more than 2,147,483,647 numbers needs an index of 64 bits."""
    launch(
        student, problems.write_kv(Random(12), 2, far=True),
        because="an int ends at 2,147,483,647, and then begins again at the negative end",
        tip="keep the slot a long long: then slot * width is one too",
    )  # fmt: skip


@task("chunked.3", after="test_write_kv_any_slot")
def test_write_kv_coalesced(student):
    """Neighbours in a warp write neighbours in memory: no sector moves for one number alone."""
    problem = problems.write_kv(Random(13), 8, 4, 64)
    write_kv_moves_little(problem, launch(student, problem))


@task("chunked.3", gpu=True)
def test_first_kernels_on_a_gpu(student, gpu):
    """On a GPU the results are the same, in float and in half precision."""
    for n in (1, 128, 100_003):
        launch_on_gpu(gpu, student, problems.axpy(Random(n), n))
    for dtype in DTYPES:
        launch_on_gpu(gpu, student, problems.write_kv(Random(14), 300, 4, 80, dtype=dtype))
        launch_on_gpu(gpu, student, problems.write_kv(Random(15), 4, slots=[9, -1, 2, -1], dtype=dtype))


# --- chunked.4


@task("chunked.4")
def test_decode_one_token(student):
    """With one token in the cache the answer is its value, whatever the query is."""
    launch(
        student, problems.paged_decode(Random(1), [1], 1, 1),
        because="the softmax of one score is 1", tip="divide the sum of weight * value by the sum of the weights",
    )  # fmt: skip


@task("chunked.4", after="test_decode_one_token")
def test_decode_one_block(student):
    """Over the 16 tokens of one full block: scores, their softmax, and the weighted mean of the values."""
    launch(
        student, problems.paged_decode(Random(2), [16], 1, 1), orders=EVERY_ORDER,
        because="16 tokens for 4 warps",
        tip="score = scale * (query . key): each lane multiplies some numbers, and the warp adds up",
    )  # fmt: skip


@task("chunked.4", after="test_decode_one_block")
def test_decode_shuffled_blocks(student):
    """Token t lies in block block_tables[t / block_size], at place t % block_size."""
    launch(
        student, problems.paged_decode(Random(3), [64], 1, 1),
        because="the four blocks of the sequence lie in any order, with other blocks between them",
        tip="slot = block * block_size + place; a slot holds kv_heads * D numbers",
    )  # fmt: skip


@task("chunked.4", after="test_decode_shuffled_blocks")
def test_decode_ragged(student):
    """Each sequence ends where context_lens says: behind it lie numbers of nobody."""
    launch(
        student, problems.paged_decode(Random(4), [37, 5, 48, 1], 1, 1),
        because="the pool holds NaN in every place that no token has",
        tip="row blockIdx.y of block_tables, context_lens[blockIdx.y] tokens; a warp may have none at all",
    )  # fmt: skip


@task("chunked.4", after="test_decode_ragged")
def test_decode_grouped_heads(student):
    """Four query heads share each of two KV heads: head 3 reads KV head 0, head 4 reads KV head 1."""
    launch(
        student, problems.paged_decode(Random(5), [20, 33], 8, 2),
        because="neighbouring query heads share a KV head", tip="KV head = head / (heads / kv_heads)",
    )  # fmt: skip


@task("chunked.4", after="test_decode_ragged")
def test_decode_head_of_80(student):
    """A head of 80 numbers is no multiple of 32 lanes: 16 lanes have one number more than the others."""
    launch(
        student, problems.paged_decode(Random(6), [21], 2, 2, 80),
        because="numbers 64 to 79 belong to lanes 0 to 15",
        tip="go over d = lane, lane + 32, ... while d < D, and round the number of rounds up",
    )  # fmt: skip


@task("chunked.4", after="test_decode_ragged")
def test_decode_small_blocks(student):
    """Blocks of 4 and of 1: every few tokens the next one lies somewhere else."""
    for block_size in (4, 1):
        launch(
            student, problems.paged_decode(Random(7), [23, 9], 2, 2, block_size=block_size),
            because="a look-up in the block table holds for block_size tokens, not for all that a warp reads",
            tip="look up block_tables[t / block_size] for every token t",
        )  # fmt: skip


@task("chunked.4", after="test_decode_ragged")
def test_decode_far_scores(student):
    """Scores of 150 and of -150: exp(150) is too large for a float, and exp(-150) is 0."""
    for logits in ("far above zero", "far below zero"):
        launch(
            student, problems.paged_decode(Random(8), [40], 2, 2, logits=logits),
            because="a softmax stays the same when the largest score is taken off all of them",
            tip="the largest score so far begins at -INFINITY; when it grows, scale down what is summed up already",
        )  # fmt: skip


@task("chunked.4", after="test_decode_ragged")
def test_decode_half(student):
    """A pool in half precision: read __half, compute in float, write __half."""
    launch(
        student, problems.paged_decode(Random(9), [40, 3], 2, 2, dtype=torch.float16),
        because="a __half has 11 binary digits, which sums of many numbers need more of",
        tip="(float)k_pool[...] on reading, (T) on writing, and float for all that lies between",
    )  # fmt: skip


@task("chunked.4", after="test_decode_ragged")
def test_decode_coalesced(student):
    """A warp reads a key as a whole: neighbouring lanes read neighbouring numbers."""
    problem = problems.paged_decode(Random(10), [160], 2, 2)
    decode_moves_little(problem, launch(student, problem))


@task("chunked.4", after="test_decode_ragged")
def test_decode_merge(student):
    """Four warps, four parts of the tokens, and one merge through shared memory at the end."""
    problem = problems.paged_decode(Random(11), [160], 2, 2)
    decode_merges_once(problem, launch(student, problem, orders=EVERY_ORDER))


@task("chunked.4", after="test_decode_ragged")
def test_decode_banks(student):
    """In shared memory the lanes of a warp meet different banks."""
    problem = problems.paged_decode(Random(12), [64], 2, 2)
    decode_meets_no_bank_twice(problem, launch(student, problem))


@task("chunked.4", gpu=True)
def test_decode_on_a_gpu(student, gpu):
    """On a GPU the answers are the same, in float and in half precision, also over 4,000 tokens."""
    for dtype in DTYPES:
        launch_on_gpu(gpu, student, problems.paged_decode(Random(13), [4000, 1, 37], 8, 2, dtype=dtype))
        launch_on_gpu(gpu, student, problems.paged_decode(Random(14), [45], head_dim=80, block_size=4, dtype=dtype))
        launch_on_gpu(gpu, student, problems.paged_decode(Random(15), [33], logits="far below zero", dtype=dtype))
