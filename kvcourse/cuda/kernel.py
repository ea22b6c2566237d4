"""`Kernel`: CUDA C++ source with one interface for a GPU and for a CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kvcourse.cuda.arguments import Argument, Pointer, bind
from kvcourse.cuda.cpu.executor import CpuKernel
from kvcourse.cuda.cpu.limits import Limits, default_limits
from kvcourse.cuda.cpu.report import Report
from kvcourse.cuda.cpu.run import Order
from kvcourse.cuda.dims import read_dims
from kvcourse.cuda.errors import CompileError, LaunchError, NoCompilerError
from kvcourse.cuda.language import check_language
from kvcourse.cuda.lexer import Source, read_source
from kvcourse.cuda.signature import Signature, read_signature

if TYPE_CHECKING:
    from kvcourse.cuda.gpu import GpuKernel
    from kvcourse.cuda.nvrtc import Resources

Size = int | Sequence[int]


class Kernel:
    """One `__global__` function of a CUDA C++ source.

    `template` gives the arguments of a template kernel, such as "__half, 64". Nothing is compiled before it is needed;
    then CompileError names the lines of the source (the first one counts as `first_line`), and NotImplementedError
    says which task a stub still stands for.
    """

    def __init__(
        self, source: str, name: str, template: str | None = None, *, first_line: int = 1, limits: Limits | None = None
    ) -> None:
        if not isinstance(source, str) or not isinstance(name, str) or not isinstance(template, str | None):
            raise LaunchError("A kernel is made from text: Kernel(source, name), template arguments as text as well.")
        self.source, self.name, self.template, self.first_line = source, name, template, first_line
        self._limits = limits

    def __repr__(self) -> str:
        arguments = f"<{self.template.strip('<>')}>" if self.template else ""
        return f"Kernel {self.name}{arguments}, {len(self.source.splitlines())} lines"

    @property
    def limits(self) -> Limits:
        return self._limits or default_limits()

    @property
    def signature(self) -> Signature:
        """The kernel's parameters; CompileError when the source is not in the language that both runs share."""
        return self._read[1]

    def launch(self, grid: Size, block: Size, *args: Any, shared: int = 0) -> None:
        """Run the kernel on the device its tensors are on; they are changed in place.

        `grid` and `block` are one to three numbers; `shared` is dynamic shared memory in bytes. LaunchError before
        anything runs when an argument does not fit; KernelError when the kernel had to be stopped.
        """
        dims, bound = read_dims(grid, block, shared), bind(self.signature, args)
        if _on_gpu(bound):
            self._gpu.launch(dims, bound)
        else:
            self._cpu.launch(dims, bound)

    def check(
        self,
        grid: Size,
        block: Size,
        *args: Any,
        shared: int = 0,
        empty: Sequence[str] = (),
        orders: Sequence[Order] = ("forward",),
    ) -> Report:
        """Run the kernel on the CPU, watching every access; gives the faults and what was asked of memory.

        `empty` names parameters whose memory counts as unset until the kernel writes it. With several `orders`
        ("forward", "reverse", "random") the launch is repeated and the results are compared.
        """
        dims, bound = read_dims(grid, block, shared), bind(self.signature, args)
        if not _on_gpu(bound):
            return self._cpu.check(dims, bound, empty, orders)
        near = [replace(b, tensor=_cpu_copy(b.tensor)) if isinstance(b, Pointer) else b for b in bound]
        report = self._cpu.check(dims, near, empty, orders)
        for far, copy in zip(bound, near, strict=True):
            if isinstance(far, Pointer) and far.tensor is not None and far.parameter.writes:
                far.tensor.copy_(copy.tensor)
        return report

    def compile(self) -> Kernel:
        """Compile now, for the GPU if there is one that kernels can run on, else for the CPU; gives the kernel back."""
        if _has_gpu():
            with contextlib.suppress(NoCompilerError):  # a launch on the GPU would say what is missing
                self._gpu.compile()
                return self
        self._cpu.program("check")
        return self

    def compile_for(self, arch: str) -> Resources:
        """Compile with NVRTC for an architecture such as "sm_75", without a GPU: registers, shared bytes, spills."""
        from kvcourse.cuda.nvrtc import compile_cubin

        return compile_cubin(self.source, self.signature, arch, self.limits, self.first_line).resources

    @property
    def _read(self) -> tuple[Source, Signature]:
        if isinstance(self._outcome, Exception):
            raise self._outcome.with_traceback(None)
        return self._outcome

    @cached_property
    def _outcome(self) -> tuple[Source, Signature] | CompileError | NotImplementedError:
        """The source, read once: also what is wrong with it is found once."""
        try:
            source = read_source("\n" * (self.first_line - 1) + self.source)
            check_language(source)
            return source, read_signature(source, self.name, self.template)
        except CompileError as error:
            return CompileError(f"{self.name}: {error}")
        except RecursionError:
            return CompileError(f"{self.name}: the source is nested too deep to be read.")
        except NotImplementedError as stub:
            return stub

    @property
    def _cpu(self) -> CpuKernel:
        self._cpu_kernel.limits = self.limits  # they may have been set since
        return self._cpu_kernel

    @cached_property
    def _cpu_kernel(self) -> CpuKernel:
        return CpuKernel(self.source, *self._read, self.first_line, self.limits)

    @cached_property
    def _gpu(self) -> GpuKernel:
        from kvcourse.cuda.gpu import GpuKernel

        return GpuKernel(self.source, self.signature, self.first_line, self.limits)


def _on_gpu(bound: Sequence[Argument]) -> bool:
    return any(isinstance(b, Pointer) and b.tensor is not None and b.tensor.is_cuda for b in bound)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _cpu_copy(tensor: Any) -> Any:
    """A copy in CPU memory that lies as far from a multiple of 512 bytes as the tensor does."""
    if tensor is None:
        return None
    import torch

    lead = tensor.storage_offset() * tensor.element_size() % 512 // tensor.element_size()
    room = torch.empty(lead + tensor.numel(), dtype=tensor.dtype)
    return room[lead:].copy_(tensor.flatten()).view(tensor.shape)
