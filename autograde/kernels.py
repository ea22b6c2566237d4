"""Where students' CUDA kernels are compiled and run while a notebook is graded.

Only their text leaves the sandbox of the cells. Compiler and kernel are processes of the grader's, at L2 each behind
bubblewrap: no network, namespaces of their own, nothing of the course and no home, a file tree that is read-only but
for the compiler's cache of kernels. That cache cannot be reached from student cells, and a kernel is found in it by the
hash of its text and all that compiles it. At L1 there are the usual limits on time and memory only.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import kvcourse.cuda
from autograde.limits import InfrastructureFault, Limits
from autograde.mounts import SYSTEM, mounts
from autograde.sandbox import Protection
from kvcourse.cuda.cpu.compile import cache_folder
from kvcourse.cuda.cpu.compilers import find_compiler
from kvcourse.cuda.cpu.limits import Budget, set_limits
from kvcourse.cuda.cpu.limits import Limits as KernelLimits
from kvcourse.cuda.cpu.worker import close_workers
from kvcourse.cuda.errors import CompileError, KernelError

TRIAL = "__global__ void trial(float* x) { x[threadIdx.x] = 1.0f; }"


@contextlib.contextmanager
def kernel_sandbox(protection: Protection, limits: Limits, needed: bool = False) -> Iterator[Budget]:
    """Every kernel launched within runs as `protection` asks for; gives the budget, to be filled again for each task.

    With `needed` a kernel of ours is tried first: InfrastructureFault when this machine can run none. Afterwards no
    process of a kernel is left, so that none sees what the next notebook does.
    """
    budget = Budget(limits.kernel_seconds)
    own = kernel_limits(protection, limits)
    if needed:
        _try(own)
    before = set_limits(replace(own, budget=budget))
    try:
        yield budget
    finally:
        set_limits(before)
        close_workers()


def kernel_limits(protection: Protection, limits: Limits) -> KernelLimits:
    """The limits of one launch, with the bubblewrap command lines in front of compiler and kernel at L2."""
    if protection.level != "L2":
        return KernelLimits(memory=limits.memory)
    cache = cache_folder()
    with contextlib.suppress(OSError):  # where it cannot be written, the trial says so
        cache.mkdir(parents=True, exist_ok=True)
    at = str(cache)
    headers = str(Path(kvcourse.cuda.__file__).parent)
    own = [f"ZIG_{kind}_CACHE_DIR={at}/zig" for kind in ("GLOBAL", "LOCAL")] if _is_zig() else []
    kernel = {"/proc": ("--proc", "/proc"), at: ("--ro-bind-try", at, at)}
    compiler = {
        "/proc": ("--proc", "/proc"),
        "/dev": ("--dev", "/dev"),
        at: ("--bind-try", at, at),
        headers: ("--ro-bind", headers, headers),
        f"{headers}/kernels": ("--tmpfs", f"{headers}/kernels"),
        **_compiler_folder(),
    }
    for place in ("/tmp", "/dev/shm"):
        compiler[place] = ("--size", str(limits.scratch), "--tmpfs", place)
    closed = ("--remount-ro", "/proc", "--remount-ro", "/")
    return KernelLimits(
        memory=limits.memory,
        prefix=(*_bare(), *protection.options, *mounts(kernel, python=False), *closed, "--"),
        compile_prefix=(
            *_bare(*own),
            *protection.options,
            *mounts(compiler),
            *closed,
            "--remount-ro",
            "/dev",
            "--",
        ),
    )


def has_kernels(notebook: Any) -> bool:
    """A lesson with kernels has a cell for one."""
    return notebook is not None and any(cell.source.startswith("%%cuda") for cell in notebook.cells)


def _bare(*variables: str) -> tuple[str, ...]:
    """Nothing of the grader's environment crosses."""
    env = shutil.which("env")
    assert env is not None, "a machine with bubblewrap has env"
    return (env, "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "TMPDIR=/tmp", "LANG=C.UTF-8", *variables)


def _is_zig() -> bool:
    with contextlib.suppress(CompileError):
        return find_compiler().is_zig
    return False


def _compiler_folder() -> dict[str, tuple[str, ...]]:
    """The compiler's own folder, where it is not the system's or Python's."""
    try:
        program = Path(find_compiler().command[0])
    except CompileError:  # the trial says so
        return {}
    folders = {str(path.parent.parent) for path in (program, program.resolve())}
    return {
        folder: ("--ro-bind", folder, folder)
        for folder in folders
        if folder != "/" and not any(Path(folder).is_relative_to(system) for system in SYSTEM)
    }


@functools.cache
def _try(limits: KernelLimits) -> None:
    """Compile and launch a kernel of ours, once a process; compiling the runtime is then nobody's time either."""
    import torch

    from kvcourse.cuda import Kernel

    out = torch.zeros(32)
    try:
        report = Kernel(TRIAL, "trial", limits=limits).check(1, 32, out)
    except (CompileError, KernelError) as error:
        raise InfrastructureFault(f"No CUDA kernel can be run here: {error}") from error
    finally:
        close_workers()
    if not report or out.sum() != 32:
        raise InfrastructureFault("No CUDA kernel can be run here: one that writes ones gave something else.")
