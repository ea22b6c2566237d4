"""The checked run names every planted mistake with line, thread and block, and is silent about the repaired kernel."""

from __future__ import annotations

import re

import cuda_cases
import pytest
import torch
from cuda_broken import BROKEN, Pair, kernel, numbers, zeros

from kvcourse.cuda import Kernel, KernelError
from kvcourse.cuda.cpu.kinds import KINDS
from kvcourse.cuda.cpu.limits import Limits
from kvcourse.cuda.cpu.report import Report

SHORT = Limits(seconds=0.5)


def check_wrong(pair: Pair, **options) -> Report:
    arguments = (pair.broken_arguments or pair.arguments)()
    shared = pair.shared if pair.broken_shared is None else pair.broken_shared
    broken = Kernel(pair.wrong, "k", limits=SHORT)
    return broken.check(pair.grid, pair.block, *arguments, shared=shared, empty=pair.empty, **options)


@pytest.mark.parametrize("pair", BROKEN, ids=lambda pair: pair.name)
def test_the_mistake_is_named(pair):
    report = check_wrong(pair)
    found = report.notes if pair.note else report.faults
    assert found, report
    fault = found[0]
    assert fault.kind == pair.kind, report
    if pair.other_line is None:
        assert fault.line == pair.line, report
    else:  # which of the two comes first depends on the order of threads
        assert {fault.line, fault.other_line} == {pair.line, pair.other_line}, report
    assert all(words in fault.message for words in pair.says), report
    assert bool(report) is pair.note
    assert len(fault.thread) == len(fault.block) == 3
    assert fault.title in report.text() and fault.message in report.text()


@pytest.mark.parametrize("pair", BROKEN, ids=lambda pair: pair.name)
def test_the_repaired_kernel_is_clean(pair):
    report = Kernel(pair.right, "k").check(
        pair.grid, pair.block, *pair.arguments(), shared=pair.shared, empty=pair.empty
    )
    assert report and not report.notes, report


def test_the_list_is_long_and_covers_every_kind_of_report():
    assert len(BROKEN) >= 25
    assert {pair.kind for pair in BROKEN} == set(KINDS)


RACES = [p for p in BROKEN if p.kind in ("race", "unset", "same-value-writes")]


@pytest.mark.parametrize("order", ["reverse", pytest.param("random", marks=pytest.mark.slow)])
@pytest.mark.parametrize("pair", RACES, ids=lambda pair: pair.name)
def test_races_are_found_whatever_the_order_of_threads(pair, order):
    report = check_wrong(pair, orders=(order,))
    kinds = {fault.kind for fault in (report.notes if pair.note else report.faults)}
    assert pair.kind in kinds or (pair.name.startswith("last block") or "fence" in pair.name), report


BARRIER = re.compile(r"__sync(threads|warp)\(\);")


def mutants() -> list[tuple[str, int]]:
    """(case, which barrier) for every barrier of our own kernels."""
    found = []
    for name, case in cuda_cases.CASES.items():
        count = len(BARRIER.findall(case.source))
        found += [(name, i) for i in range(count) if (name, i) not in cuda_cases.BARRIER_NOT_USED]
    return found


@pytest.mark.parametrize(("name", "which"), mutants())
def test_each_barrier_of_our_kernels_is_missed_when_it_is_gone(name, which):
    case = cuda_cases.CASES[name]
    barrier = list(BARRIER.finditer(case.source))[which]
    without = case.source[: barrier.start()] + case.source[barrier.end() :]
    report = case.check(source=without)
    assert {fault.kind for fault in report.faults} & {"race", "unset"}, report


def test_a_last_block_that_fences_is_no_race_in_any_order():
    for order in ("forward", "reverse", "random"):
        assert cuda_cases.CASES["total_sum"].check(orders=(order,))


def test_a_fence_by_every_thread_before_a_barrier_also_counts():
    source = kernel(
        """  __shared__ bool last;
  parts[blockIdx.x * 32 + threadIdx.x] = 1.0f;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(count, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) out[threadIdx.x] = parts[threadIdx.x] + parts[(gridDim.x - 1) * 32 + threadIdx.x];""",
        "float* parts, float* out, unsigned* count",
    )
    arguments = [zeros(256), zeros(32), zeros(1, dtype=torch.int32)]
    assert Kernel(source, "k").check(8, 32, *arguments)
    one_fences = source.replace("  __threadfence();", "  if (threadIdx.x == 5) __threadfence();")
    assert not Kernel(one_fences, "k").check(8, 32, *[zeros(256), zeros(32), zeros(1, dtype=torch.int32)])


def test_order_passes_from_atomic_to_atomic():
    """Block 0 releases x to block 1 through a; block 1 releases to block 2 through b; block 2 may read x."""
    source = kernel(
        """  if (blockIdx.x == 0) { *x = 7.0f; __threadfence(); atomicAdd(a, 1); }
  if (blockIdx.x == 1) { atomicAdd(a, 0); __threadfence(); atomicAdd(b, 1); }
  if (blockIdx.x == 2) { if (atomicAdd(b, 0)) *out = *x; }""",
        "float* x, float* out, int* a, int* b",
    )
    arguments = lambda: [zeros(1), zeros(1), zeros(1, dtype=torch.int32), zeros(1, dtype=torch.int32)]  # noqa: E731
    assert Kernel(source, "k").check(3, 1, *arguments())
    assert not Kernel(source.replace("atomicAdd(a, 0);", ""), "k").check(3, 1, *arguments())


def test_a_lock_orders_what_it_guards():
    source = kernel(
        """  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *sum += in[threadIdx.x];
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }""",
        "const float* in, float* sum, int* lock",
    )
    total = zeros(1)
    assert Kernel(source, "k").check(1, 64, numbers(64), total, zeros(1, dtype=torch.int32))
    assert total.item() == 64 * 65 / 2
    unfenced = source.replace("      __threadfence();\n", "")
    assert not Kernel(unfenced, "k").check(1, 64, numbers(64), zeros(1), zeros(1, dtype=torch.int32))


def test_a_compare_and_swap_loop_may_read_the_place_first():
    add = kernel(
        """  int seen = *sum, before;
  do { before = seen; seen = atomicCAS(sum, before, before + in[threadIdx.x]); } while (seen != before);""",
        "const int* in, int* sum",
    )
    total = zeros(1, dtype=torch.int32)
    assert Kernel(add, "k").check(1, 64, torch.arange(64, dtype=torch.int32), total)
    assert total.item() == 64 * 63 // 2
    plain = add.replace(
        "seen = atomicCAS(sum, before, before + in[threadIdx.x])", "*sum = before + in[threadIdx.x], seen = before"
    )
    assert not Kernel(plain, "k").check(1, 64, torch.arange(64, dtype=torch.int32), zeros(1, dtype=torch.int32))


def test_a_flag_in_global_memory_hands_a_value_on():
    source = kernel(
        """  if (threadIdx.x == 32) { *value = 5.0f; __threadfence(); *flag = 1; }
  if (threadIdx.x == 0) { while (*flag == 0) {} __threadfence(); *out = *value; }""",
        "float* value, volatile int* flag, float* out",
    )
    out = zeros(1)
    assert Kernel(source, "k").check(1, 64, zeros(1), zeros(1, dtype=torch.int32), out)
    assert out.item() == 5.0


def test_a_copy_of_several_words_is_no_note():
    source = kernel(
        "  float4 mine = make_float4(threadIdx.x, 1, 2, 3);\n  memcpy(out, &mine, 16);\n  if (n) out[0] = 1.0f;",
        "float* out, int n",
    )
    report = Kernel(source, "k").check(1, 2, zeros(4), 0)
    assert [fault.kind for fault in report.faults] == ["race"] and report.faults[0].line == 3


def test_bytes_and_halves_beside_each_other_are_no_race():
    source = "#include <cuda_fp16.h>\n" + kernel(
        "  a[threadIdx.x] = 1;\n  b[threadIdx.x] = __float2half(2.0f);", "signed char* a, __half* b"
    )
    assert Kernel(source, "k").check(1, 64, zeros(64, dtype=torch.int8), zeros(64, dtype=torch.float16))


def test_a_race_on_a_variable_of_the_grid_is_seen():
    source = "__device__ int counter;\n" + kernel("  counter += 1;\n  out[threadIdx.x] = counter;")
    report = Kernel(source, "k").check(1, 32, zeros(32))
    assert report.faults[0].kind == "race" and report.faults[0].object == "counter"


def test_variables_of_the_grid_start_afresh_in_every_launch():
    source = "__device__ int counter = 3;\n" + kernel("  out[0] = atomicAdd(&counter, 1);")
    k, out = Kernel(source, "k"), zeros(1)
    for _ in range(2):
        k.launch(1, 1, out)
        assert out.item() == 3
        assert k.check(1, 1, out) and out.item() == 3


def test_results_that_depend_on_luck_are_told():
    source = kernel("  int place = atomicAdd(next, 1);\n  out[place] = threadIdx.x;", "float* out, int* next")
    report = Kernel(source, "k").check(1, 32, zeros(32), zeros(1, dtype=torch.int32), orders=("forward", "reverse"))
    assert not report and not report.faults
    assert "out[0] is 0 or 31" in report.differences[0]
    assert "depends on luck" in report.text()


def test_a_stopped_fast_run_is_an_error_with_the_line():
    source = kernel("  int i = threadIdx.x;\n  out[i] = in[i * n];", "const float* in, float* out, int n")
    with pytest.raises(KernelError, match=r"line 3: out of bounds: thread \(1, 0, 0\)"):
        Kernel(source, "k").launch(1, 32, numbers(32), zeros(32), 1_000_000)


def test_the_first_element_beyond_a_buffer_stops_the_fast_run():
    source = kernel("  out[threadIdx.x] = 1.0f;")
    with pytest.raises(KernelError, match=r"out\[64\], but out has 64 elements"):
        Kernel(source, "k").launch(1, 65, zeros(64))


def test_reports_show_themselves_in_a_notebook():
    pair = next(p for p in BROKEN if p.name == "missing barrier after the load")
    html = check_wrong(pair)._repr_html_()
    assert "race" in html and "part[threadIdx.x] = in[threadIdx.x];" in html and "<script" not in html


def test_what_a_kernel_prints_is_in_its_report(capsys):
    source = kernel('  if (threadIdx.x == 1) printf("n is %d, x is %.2f\\n", n, 0.5f);', "int n")
    assert Kernel(source, "k").check(1, 4, 7).output == "n is 7, x is 0.50\n"
    Kernel(source, "k").launch(1, 4, 7)
    assert capsys.readouterr().out == "n is 7, x is 0.50\n"
