"""Our kernels on the CPU: results equal torch's, counters are exact, and neither depends on the order of threads."""

from __future__ import annotations

import cuda_cases
import pytest
import torch

from kvcourse.cuda import Kernel

NAMES = list(cuda_cases.CASES)


def assert_right(case: cuda_cases.Case, problem: cuda_cases.Problem) -> None:
    for position, want in problem.outputs.items():
        torch.testing.assert_close(problem.arguments[position], want, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_the_fast_run_gives_torchs_answer(name):
    case = cuda_cases.CASES[name]
    p = case.problem()
    case.kernel().launch(p.grid, p.block, *p.arguments, shared=p.shared)
    assert_right(case, p)


@pytest.mark.parametrize("name", NAMES)
def test_the_checked_run_gives_torchs_answer_and_exact_counts_in_every_order(name):
    case = cuda_cases.CASES[name]
    p = case.problem()
    report = case.kernel().check(
        p.grid, p.block, *p.arguments, shared=p.shared, empty=case.empty, orders=("forward", "reverse", "random")
    )
    assert report and not report.notes, report
    assert_right(case, p)
    for counter, value in case.counted.items():
        assert getattr(report.counters, counter) == value, report


def test_strided_reads_take_as_many_sectors_as_hardware_moves():
    case = cuda_cases.CASES["strided_copy"]
    sectors = {}
    for stride in (1, 2, 8, 32):
        p = cuda_cases.strided_copy(128, stride)
        counters = case.kernel().check(p.grid, p.block, *p.arguments).counters
        sectors[stride] = counters.load_sectors // counters.loads
    assert sectors == {1: 4, 2: 8, 8: 32, 32: 32}


def test_an_offset_of_a_view_shifts_the_sectors():
    copy = Kernel(
        'extern "C" __global__ void k(const float* in, float* out) { out[threadIdx.x] = in[threadIdx.x]; }', "k"
    )
    base = torch.zeros(64)
    sectors = [
        copy.check(1, 32, base[shift : shift + 32], torch.zeros(32)).counters.load_sectors for shift in (0, 1, 8)
    ]
    assert sectors == [4, 5, 4]


def test_counts_are_told_line_by_line():
    report = cuda_cases.CASES["matmul"].check()
    shared_loads = [c for c in report.lines if c.shared and c.kind == "load"]
    assert [c.requests for c in shared_loads] == [16_384]
    text = "sum += a[threadIdx.y][i] * b[i][threadIdx.x];"
    assert text in report.line_text(shared_loads[0].line)
    assert sum(c.sectors for c in report.lines) == report.counters.sectors


def test_wide_accesses_count_as_hardware_splits_them():
    source = """extern "C" __global__ void k(float* out) {
      __shared__ float4 s[32];
      s[threadIdx.x] = make_float4(1, 2, 3, 4);
      __syncthreads();
      out[threadIdx.x] = s[threadIdx.x].x;
    }"""
    report = Kernel(source, "k").check(1, 32, torch.zeros(32))
    store, load = [c for c in report.lines if c.shared]
    assert (store.bytes_each, store.waves, store.least_waves) == (16, 4, 4)  # a quarter of a warp at a time
    assert (load.bytes_each, load.waves, load.least_waves) == (4, 4, 1)  # every fourth bank


def test_diverged_lanes_are_lined_up_by_place_and_turn():
    source = """extern "C" __global__ void k(const float* in, float* out) {
      float sum = 0.0f;
      for (int i = 0; i <= threadIdx.x; i++) sum += in[i * 32 + threadIdx.x];
      if (threadIdx.x % 2) out[threadIdx.x] = sum;
      else out[threadIdx.x] = -sum;
    }"""
    report = Kernel(source, "k").check(1, 32, torch.ones(1024), torch.zeros(32))
    assert report.counters.loads == 32  # the n-th turns of all lanes together
    assert report.counters.lanes == 32 * 33 // 2 + 32
    assert report.counters.stores == 2


def test_lengths_that_are_no_multiple_of_anything():
    for n in (1, 31, 33, 255, 257):
        case = cuda_cases.CASES["vector_add"]
        p = cuda_cases.vector_add(n)
        assert case.kernel().check(p.grid, p.block, *p.arguments, empty=case.empty)
        assert_right(case, p)
    for m, n, k in ((1, 1, 1), (17, 33, 5), (16, 31, 47)):
        case = cuda_cases.CASES["matmul"]
        p = cuda_cases.matmul(m, n, k)
        assert case.kernel().check(p.grid, p.block, *p.arguments, empty=case.empty)
        assert_right(case, p)


def test_all_logits_far_below_zero():
    case = cuda_cases.CASES["paged_decode_fp32"]
    p = cuda_cases.paged_decode(dtype=torch.float32)
    p.arguments[2][:] = -30 * p.arguments[1].sign().mean(1).sign().view(2, 1, 1, -1)[0]
    queries, keys, values, table, lengths = p.arguments[1:6]
    case.kernel().launch(p.grid, p.block, *p.arguments, shared=p.shared)
    for s, length in enumerate(lengths.tolist()):
        k, v = (pool[table[s].long()].flatten(0, 1)[:length] for pool in (keys, values))
        want = cuda_cases.attention(queries[s : s + 1], k, v, 64**-0.5)[0].float()
        torch.testing.assert_close(p.arguments[0][s], want, rtol=1e-4, atol=1e-4)
