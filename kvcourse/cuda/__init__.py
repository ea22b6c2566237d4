"""CUDA kernels: one source, run on a GPU or, watched and counted, on a CPU.

`Kernel(source, name)` has `launch`, `check` and `compile_for`; `Slice(tensor, start)` stands in for a tensor of a huge
array; `%load_ext kvcourse.cuda` adds the cell magic `%%cuda`.
"""

from __future__ import annotations

import os
from typing import Any

from kvcourse.cuda.arguments import Slice
from kvcourse.cuda.errors import CompileError, KernelError, LaunchError

__all__ = ["CompileError", "Kernel", "KernelError", "LaunchError", "Slice", "load_ipython_extension"]


def __getattr__(name: str) -> Any:
    if name == "Kernel":  # brings in the compiler's side only when a kernel is made
        from kvcourse.cuda.kernel import Kernel

        return Kernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    from kvcourse.cuda.magic import TEXT_ONLY, register
    from kvcourse.cuda.ready import prepare_gpu

    register(shell)
    if not os.environ.get(TEXT_ONLY):
        prepare_gpu()
