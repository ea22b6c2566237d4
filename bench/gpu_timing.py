"""Launches and times on either device, for the parts of bench/gpu_run.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kvcourse.cuda import Kernel
from kvcourse.cuda.arguments import bind
from kvcourse.cuda.dims import read_dims


def on(device: str, arguments: Sequence[Any]) -> list[Any]:
    """The arguments with their tensors on `device`."""
    return [a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments]


def launcher(
    device: str, kernel: Kernel, grid: Any, block: Any, arguments: Sequence[Any], shared: int = 0
) -> Callable[[], None]:
    """A launch that does nothing else: the arguments are read once, and on a GPU nobody waits for its end."""
    dims, bound = read_dims(grid, block, shared), bind(kernel.signature, arguments)
    if device == "cpu":
        return lambda: kernel._cpu.launch(dims, bound)
    return lambda: kernel._gpu.launch(dims, bound, wait=False)


def best_seconds(device: str, call: Callable[[], Any], rounds: int) -> float:
    """Seconds of one call, the best of `rounds`."""
    call()
    best = float("inf")
    for _ in range(rounds):
        if device == "cpu":
            before = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - before)
            continue
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return best
