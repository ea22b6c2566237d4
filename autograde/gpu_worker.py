"""The process that launches kernels on the GPU for the grader. It receives kernel text and tensors, and nothing else.

A kernel that faults leaves the GPU unusable for its process, and one that never ends can only be killed with it; so
neither happens in the grader. Started by gpu.py: `python -m autograde.gpu_worker SOCKET DEVICE`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
from typing import Any

from autograde.agent import receive, send
from kvcourse.check.gpu import NO_GPU, Gpu
from kvcourse.check.values import Record, pack, unpack
from kvcourse.cuda import CompileError, KernelError, LaunchError, Slice
from kvcourse.tasks.api import GpuUnavailable

TRIAL = "__global__ void trial(float* x) { x[0] = 1.0f; }"
READY, UNUSABLE = "ready", "unusable"


def main(number: str, device: str) -> None:
    """Say whether the device works, then answer launches until the grader hangs up."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, 9)  # die with the grader (Linux)
    link = socket.socket(fileno=int(number))
    problem = _problem(device)
    send(link, [UNUSABLE, problem] if problem else [READY, ""])
    gpu = Gpu(device)
    with contextlib.suppress(OSError):
        while not problem and (asked := receive(link)) is not None:
            send(link, *_answer(gpu, *asked))


def _problem(device: str) -> str:
    """Why no kernel can be launched on the device; "" when one was."""
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        return NO_GPU
    try:
        after = Gpu(device).launch(TRIAL, "trial", None, 1, 1, [torch.zeros(1)])
    except (GpuUnavailable, CompileError, KernelError) as error:
        return str(error)
    assert after[0] is not None
    return "" if after[0].item() == 1.0 else "a kernel that writes one number gave another one"


def _answer(gpu: Gpu, asked: Any, buffers: list) -> tuple[Any, list[bytes]]:
    """["ok", packed tensors], or [the error's class, its message]."""
    source, name, template, grid, block, arguments, shared = unpack(asked, buffers)
    arguments = [Slice(a.tensor, a.start) if isinstance(a, Record) else a for a in arguments]
    try:
        packed, out = pack(gpu.launch(source, name, template, grid, block, arguments, shared))
        return ["ok", packed], out
    except GpuUnavailable as error:
        return [UNUSABLE, str(error)], []
    except NotImplementedError as stub:
        return ["CompileError", str(stub)], []
    except (CompileError, LaunchError, KernelError) as error:
        kind = next(k for k in (CompileError, LaunchError, KernelError) if isinstance(error, k))
        return [kind.__name__, str(error)], []


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # not even a broken context keeps it
