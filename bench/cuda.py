"""What a kernel costs on a CPU: compiled, run, and run while every access is checked and counted.

Side by side with the CUDA simulator of mlsys-lab 0.4.0 (a tiled matrix product of 64 x 64 x 64, with its counters):
    pip install mlsys-lab==0.4.0 && python bench/cuda.py        (about 1 minute; writes bench/results/cuda.json)
Without that package its row is left out. Seconds are on the clock, the best of several rounds; `cpu_s` are seconds of
the processor for the kernel's threads alone, which neighbours on the machine touch less.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import cuda_cases  # noqa: E402

from kvcourse.cuda import Kernel  # noqa: E402
from kvcourse.cuda.cpu.compilers import find_compiler  # noqa: E402

OUT = Path(__file__).parent / "results" / "cuda.json"
ROUNDS = 5
PEER_ROUNDS = 3
SHORT = {
    "vector_add": lambda: cuda_cases.vector_add(1 << 18),
    "matmul": cuda_cases.matmul,
    "row_sum": lambda: cuda_cases.row_sum(64, 4096),
}
CHECK_LENGTHS = (1, 15, 16, 17, 40, 64, 100, 128)  # tokens of the eight cases of a task's public check

# The same product in the dialect that the simulator understands: one dimension, one variable a declaration.
PEER_SOURCE = """__global__ void matmul(const float* A, const float* B, float* C, int m, int n, int k) {
  __shared__ float a[256];
  __shared__ float b[256];
  int tx = threadIdx.x % 16;
  int ty = threadIdx.x / 16;
  int row = (blockIdx.x / 4) * 16 + ty;
  int column = (blockIdx.x % 4) * 16 + tx;
  float sum = 0.0f;
  for (int start = 0; start < k; start += 16) {
    a[ty * 16 + tx] = A[row * k + start + tx];
    b[ty * 16 + tx] = B[(start + ty) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; i++) { sum += a[ty * 16 + i] * b[i * 16 + tx]; }
    __syncthreads();
  }
  C[row * n + column] = sum;
}"""


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["KVCOURSE_CACHE"] = cache  # nothing is compiled yet
        first = _seconds(lambda: cuda_cases.CASES["vector_add"].kernel()._cpu.program("check"))
        result: dict[str, Any] = {
            "machine": {"cpu": _cpu_name(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "compiler": find_compiler().version,
            },
            "first_compile_s": round(first, 3),  # with the runtime
            "matmul_64": side_by_side(),
            "paged_decode_1024": paged_decode(),
            "public_check": public_check(),
            "kernels": {name: kernel(name, problem) for name, problem in SHORT.items()},
        }
    result["goals"] = goals(result)
    OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def side_by_side() -> dict[str, Any]:
    """The same product, checked and counted by us and by the simulator, in turns."""
    case = cuda_cases.CASES["matmul"]
    problem, ours_kernel = case.problem(), case.kernel()
    same_text, flat = Kernel(PEER_SOURCE, "matmul"), replace(problem, grid=16, block=256)
    simulate = _peer_launch(problem)
    ours, text, peer, cpu = [], [], [], []
    for _ in range(PEER_ROUNDS):
        for kernel, p, times in ((ours_kernel, problem, ours), (same_text, flat, text)):
            _check(kernel, p)
            for _ in range(3):
                times.append(_seconds(lambda kernel=kernel, p=p: cpu.append(_check(kernel, p).seconds)))
        if simulate is not None:
            peer.append(_seconds(simulate))
    row = {"checked_s": round(min(ours), 4), "same_source_s": round(min(text), 4), "cpu_s": round(min(cpu), 4)}
    if peer:
        row |= {"mlsys_lab_s": round(min(peer), 3), "times_faster": round(min(peer) / min(text), 1)}
        row["times_faster_by_median"] = round(statistics.median(peer) / statistics.median(text), 1)
    return row


def _peer_launch(problem: cuda_cases.Problem) -> Callable[[], Any] | None:
    try:
        import numpy as np
        from mlsys.sim import GPU, CudaProgram
    except ImportError:
        return None
    a, b = problem.arguments[0].numpy().ravel(), problem.arguments[1].numpy().ravel()
    program = CudaProgram(PEER_SOURCE)

    def launch() -> Any:
        gpu = GPU(3 * 64 * 64, 512)
        gpu.gmem[:8192] = np.concatenate([a, b])
        params = {"A": 0, "B": 4096, "C": 8192, "m": 64, "n": 64, "k": 64}
        metrics = program.launch(gpu, "matmul", 16, 256, params)
        got = torch.from_numpy(np.array(gpu.gmem[8192:])).float().view(64, 64)
        torch.testing.assert_close(got, problem.outputs[2], rtol=1e-4, atol=1e-4)
        return metrics

    return launch


def paged_decode() -> dict[str, Any]:
    """4 sequences, 8 heads over 2, D 128, 1,024 tokens, half precision."""
    problem = cuda_cases.paged_decode(sequences=4, heads=8, kv_heads=2, d=128, tokens=1024)
    case = cuda_cases.CASES["paged_decode"]
    kernel = Kernel(case.source, case.name, "__half, 128, 16")
    return _measure(kernel, problem, case.tolerance)


def kernel(name: str, problem: Callable[[], cuda_cases.Problem]) -> dict[str, Any]:
    case = cuda_cases.CASES[name]
    return _measure(case.kernel(), problem(), 10 * case.tolerance)


def public_check() -> dict[str, Any]:
    """What a learner waits for: a changed paged kernel compiled, eight lengths checked and compared."""
    case = cuda_cases.CASES["paged_decode"]
    problems = [cuda_cases.paged_decode(tokens=n) for n in CHECK_LENGTHS]
    source = case.source + "// changed just now\n"

    def check() -> None:
        fresh = Kernel(source, case.name, case.template)
        for p in problems:
            assert fresh.check(p.grid, p.block, *p.arguments, shared=p.shared, empty=case.empty)
            torch.testing.assert_close(p.arguments[0], p.outputs[0], rtol=1e-3, atol=1e-3)

    return {"cases": len(problems), "with_compile_s": round(_seconds(check), 3), "again_s": round(_seconds(check), 3)}


def _measure(kernel: Kernel, problem: cuda_cases.Problem, tolerance: float) -> dict[str, Any]:
    row = {
        f"compile_{mode}_s": round(_seconds(lambda mode=mode: kernel._cpu.program(mode)), 3)
        for mode in ("fast", "check")
    }
    launch = lambda: kernel.launch(problem.grid, problem.block, *problem.arguments, shared=problem.shared)  # noqa: E731
    fast = min(_seconds(launch) for _ in range(ROUNDS))
    for position, want in problem.outputs.items():
        torch.testing.assert_close(problem.arguments[position], want, rtol=tolerance, atol=tolerance)
    row |= {"fast_s": round(fast, 4), "fast_cpu_s": round(kernel._cpu.seconds, 4)}
    checked = min(_seconds(lambda: _check(kernel, problem)) for _ in range(ROUNDS))
    return row | {"checked_s": round(checked, 4), "checked_cpu_s": round(kernel._cpu.seconds, 4)}


def _check(kernel: Kernel, problem: cuda_cases.Problem) -> Any:
    report = kernel.check(problem.grid, problem.block, *problem.arguments, shared=problem.shared)
    assert report, report
    return report


def goals(result: dict[str, Any]) -> dict[str, bool | None]:
    """The figures asked for, and whether this run meets them."""
    matmul, paged, check = result["matmul_64"], result["paged_decode_1024"], result["public_check"]
    return {
        "matmul checked at least 40 times faster than mlsys-lab": matmul.get("times_faster", 0) >= 40
        if "mlsys_lab_s" in matmul
        else None,
        "paged decode fast under 0.5 s": paged["fast_s"] < 0.5,
        "paged decode checked under 4 s": paged["checked_s"] < 4,
        "compile under 1 s after the first": max(paged["compile_fast_s"], paged["compile_check_s"]) < 1,
        "public check of a kernel task under 5 s": check["with_compile_s"] < 5,
    }


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
