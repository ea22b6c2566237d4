"""Kernels on a real GPU, where there is one; the rest of the GPU run's code is checked without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import cuda_cases
import pytest
import torch
from cuda_broken import kernel

from kvcourse.cuda import Kernel, KernelError
from kvcourse.cuda.arguments import bind
from kvcourse.cuda.gpu import _as_cuda

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
ROOT = Path(__file__).parents[1]


def test_numbers_are_handed_to_cuda_in_their_own_size():
    source = kernel("", "float* out, int n, float x, long long big, bool b, const int* none, unsigned char c, double d")
    tensor = torch.zeros(3)
    bound = bind(Kernel(source, "k").signature, (tensor, 7, 0.5, 2**40, True, None, 255, 1.5))
    values = [_as_cuda(argument) for argument in bound]
    assert values[0] == tensor.data_ptr() and values[5] == 0
    sizes = [getattr(value, "itemsize", 8) for value in values]
    assert sizes == [8, 4, 4, 8, 1, 8, 1, 8]
    assert [float(value) for value in values[1:5]] == [7, 0.5, 2**40, 1]


@needs_gpu
@pytest.mark.parametrize("name", cuda_cases.CASES)
def test_both_runs_agree(name):
    case = cuda_cases.CASES[name]
    p = case.problem()
    arguments = [a.cuda() if isinstance(a, torch.Tensor) else a for a in p.arguments]
    case.kernel().launch(p.grid, p.block, *arguments, shared=p.shared)
    for position, want in p.outputs.items():
        torch.testing.assert_close(arguments[position].cpu(), want, rtol=case.tolerance, atol=case.tolerance)


@needs_gpu
def test_a_check_of_tensors_on_the_gpu_runs_on_the_cpu_and_brings_the_results_back():
    x = torch.ones(64, device="cuda")
    assert Kernel(kernel("  out[threadIdx.x] *= 2.0f;"), "k").check(1, 64, x)
    assert x.tolist() == [2.0] * 64


@needs_gpu
def test_the_current_stream_is_used():
    side = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    with torch.cuda.stream(side):
        x.add_(1)
        Kernel(kernel("  out[blockIdx.x * 256 + threadIdx.x] *= 3.0f;"), "k").launch(4096, 256, x)
    assert bool((x == 3).all())


def test_a_fault_on_the_gpu_is_a_sentence(monkeypatch):
    from kvcourse.cuda import gpu

    def refuse(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore words")

    core = SimpleNamespace(
        Device=lambda _: SimpleNamespace(set_current=lambda: None, create_stream=lambda _: None),
        LaunchConfig=lambda **_: None,
        launch=refuse,
    )
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(core=core))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=0))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    k = Kernel(kernel("  out[0] = 1.0f;"), "k")
    monkeypatch.setattr(gpu.GpuKernel, "compile", lambda *_: None)
    from kvcourse.cuda.dims import read_dims

    with pytest.raises(KernelError, match=r"k failed on the GPU: CUDA error: an illegal memory access") as error:
        k._gpu.launch(read_dims(1, 1, 0), bind(k.signature, (torch.zeros(1),)))
    assert "more words" not in str(error.value) and "restarted" in str(error.value)


@pytest.mark.slow
def test_the_prepared_gpu_script_runs_dry(tmp_path):
    done = subprocess.run(
        [ROOT / "bench" / "gpu.sh", "--dry-run", "--out", tmp_path / "gpu.json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "gpu.json").read_text())
    assert result["agreement"]["all_agree"]
    assert not any(isinstance(part, str) for part in result.values()), result
