"""A kernel cannot take more than it is given, and what goes wrong is a sentence; nothing else is harmed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
import torch
from cuda_broken import kernel, zeros

from kvcourse.cuda import CompileError, Kernel, KernelError
from kvcourse.cuda.cpu import compile as cpu_compile
from kvcourse.cuda.cpu.limits import Limits, default_limits, set_limits
from kvcourse.cuda.cpu.worker import close_workers

GOOD = kernel("  out[threadIdx.x] = 1.0f;")
QUICK = Limits(seconds=0.2)


@pytest.mark.parametrize(
    "loop",
    [
        "while (out[0] < 1.0f) {}",
        "for (;;) out[1] = out[0] + 1.0f;",
        "while (true) __syncwarp();",
        "for (;;) __syncthreads();",
    ],
)
def test_an_endless_kernel_is_a_message_with_its_line(loop):
    source = kernel(f"  {loop}")
    before = time.monotonic()
    with pytest.raises(KernelError, match="line 2: time limit"):
        Kernel(source, "k", limits=QUICK).launch(1, 32, zeros(32))
    report = Kernel(source, "k", limits=QUICK).check(1, 32, zeros(32))
    assert report.faults[0].kind == "time-limit" and report.faults[0].line == 2
    assert not report.complete and time.monotonic() - before < 20


def test_waiting_for_a_block_that_comes_later_ends():
    source = kernel(
        "  if (blockIdx.x == 0) while (atomicAdd(flag, 0) == 0) {}\n  else atomicExch(flag, 1);", "int* flag"
    )
    assert Kernel(source, "k", limits=QUICK).check(2, 1, zeros(1, dtype=torch.int32)).faults[0].kind == "time-limit"


def test_too_much_memory_is_a_message_and_the_next_launch_works():
    small = Limits(memory=64 << 20)
    with pytest.raises(KernelError, match=r"more than 64 MB of memory"):
        Kernel(GOOD, "k", limits=small).launch(1, 32, torch.zeros(40 << 20))
    out = zeros(32)
    Kernel(GOOD, "k", limits=small).launch(1, 32, out)
    assert out.sum() == 32


def test_a_launch_after_a_fault_starts_clean():
    bad = kernel("  out[threadIdx.x * n] = 1.0f;", "float* out, int n")
    k = Kernel(bad, "k")
    for _ in range(3):
        with pytest.raises(KernelError):
            k.launch(1, 32, zeros(32), 10_000_000)
        out = zeros(32)
        k.launch(1, 32, out, 1)
        assert out.sum() == 32


def test_a_worker_that_dies_is_replaced():
    from kvcourse.cuda.cpu import worker as workers

    k, out = Kernel(GOOD, "k"), zeros(32)
    k.launch(1, 32, out)
    worker = next(reversed(workers._workers.values()))
    worker.process.kill()
    worker.process.wait()
    out.zero_()
    k.launch(1, 32, out)
    assert out.sum() == 32


def test_launches_from_several_threads_do_not_mix():
    k = Kernel(kernel("  out[threadIdx.x] = x;", "float* out, float x"), "k")
    results = {}

    def work(number: int) -> None:
        for _ in range(5):
            out = zeros(64)
            k.launch(1, 64, out, float(number))
            results.setdefault(number, []).append(out.tolist() == [float(number)] * 64)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(all(right) for right in results.values()) and len(results) == 4


def test_a_compiler_that_is_kept_busy_is_stopped():
    bomb = "template <int N> struct F { static constexpr int v = F<N - 1>::v + F<N - 2>::v; };\n"
    bomb += "constexpr __device__ long f(long n) { long s = 0; for (long i = 0; i < n; i++) s += i % 7; return s; }\n"
    source = bomb + kernel("  constexpr long a = f(30000); out[threadIdx.x] = a;")
    source = source.replace("30000", "33000000")
    before = time.monotonic()
    with pytest.raises(CompileError):
        Kernel(source, "k", limits=Limits(compile_seconds=2.0)).compile()
    assert time.monotonic() - before < 20


def test_a_compiler_that_wants_too_much_memory_is_stopped():
    with pytest.raises(CompileError):
        Kernel(GOOD + "// a compiler needs more", "k", limits=Limits(memory=30 << 20)).compile()


def test_limits_can_be_set_for_all_kernels():
    before = set_limits(seconds=0.25)
    try:
        assert default_limits().seconds == 0.25 and Kernel(GOOD, "k").limits.seconds == 0.25
    finally:
        set_limits(before)
    assert default_limits() == before


def test_the_prefix_goes_in_front_of_what_runs(tmp_path):
    script = tmp_path / "prefix"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\nexec "$@"\n')
    script.chmod(0o755)
    out = zeros(32)
    source = GOOD + f"// {tmp_path}"
    limits = Limits(prefix=(str(script),), compile_prefix=(str(script),))
    Kernel(source, "k", limits=limits).launch(1, 32, out)
    log = (tmp_path / "log").read_text()
    assert out.sum() == 32 and "-c kernel.cpp" in log and "kernel.so" in log


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_kernels_run_inside_bubblewrap():
    folder = str(cpu_compile.cache_folder())
    system = [
        part
        for path in ("/usr", "/lib", "/lib64", "/bin")
        if os.path.exists(path)
        for part in ("--ro-bind", path, path)
    ]
    wrap = (
        "bwrap",
        *system,
        "--ro-bind",
        folder,
        folder,
        "--unshare-all",
        "--die-with-parent",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    )
    if subprocess.run([*wrap, "true"], capture_output=True).returncode:
        pytest.skip("bubblewrap may not make namespaces here")
    out = zeros(32)
    k = Kernel(GOOD, "k", limits=Limits(prefix=wrap))
    k.compile()
    k.launch(1, 32, out)
    assert out.sum() == 32
    with pytest.raises(KernelError, match="time limit"):
        Kernel(kernel("  for (;;) {}"), "k", limits=replace(QUICK, prefix=wrap)).launch(1, 32, zeros(32))


@pytest.fixture
def other_cache(tmp_path, monkeypatch):
    """An empty cache but for the runtime, which takes seconds to compile."""
    for program in cpu_compile.cache_folder().glob("*/runtime"):
        shutil.copytree(program.parent, tmp_path / "cuda" / program.parent.name)
    monkeypatch.setenv("KVCOURSE_CACHE", str(tmp_path))
    return tmp_path / "cuda"


@pytest.mark.slow
def test_two_processes_may_compile_the_same_kernel_at_once(other_cache):
    code = "import torch\nfrom kvcourse.cuda import Kernel\no = torch.zeros(32)\n"
    code += f"Kernel({GOOD!r}, 'k').launch(1, 32, o)\nassert o.sum() == 32"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert len(list(other_cache.glob("*/kernel.so"))) == 1 and not list(other_cache.glob("work-*"))


def test_the_cache_forgets_the_oldest(other_cache, monkeypatch):
    monkeypatch.setattr(cpu_compile, "KEEP", 2)
    for n in range(4):
        Kernel(GOOD.replace("1.0f", f"{n}.0f"), "k").compile()
    assert len(list(other_cache.glob("*/kernel.so"))) == 2


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVCOURSE_CACHE", str(tmp_path / "file"))
    with pytest.raises(CompileError, match=r"\$KVCOURSE_CACHE names another folder"):
        Kernel(GOOD, "k").compile()


def test_workers_end_with_the_program():
    k = Kernel(GOOD, "k")
    k.launch(1, 32, zeros(32))
    from kvcourse.cuda.cpu import worker as workers

    processes = [worker.process for worker in workers._workers.values()]
    close_workers()
    assert processes and all(process.poll() is not None for process in processes)
