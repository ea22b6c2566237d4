"""The GPU as a GPU test sees it: `launch` gives a kernel's source to this machine's GPU and brings the tensors back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kvcourse.cuda.arguments import Slice
from kvcourse.tasks.api import GpuUnavailable

if TYPE_CHECKING:
    import torch

    from kvcourse.cuda import Kernel

NO_GPU = "there is no GPU that torch can use here"
BROKEN = re.compile(r"out of memory|OUT_OF_MEMORY|_ECC_|DEVICE_UNAVAILABLE|DEVICE_LOST|NO_DEVICE|_DRIVER|_SYSTEM_")
KEPT = 8  # compiled kernels
Size = int | Sequence[int]


class Launcher(Protocol):
    """What the fixture `gpu` of a test is."""

    def launch(
        self,
        source: str,
        name: str,
        template: str | None,
        grid: Size,
        block: Size,
        arguments: Sequence[Any],
        shared: int = 0,
    ) -> list[torch.Tensor | None]:
        """Launch on copies of the given CPU tensors; gives each as it is afterwards, on the CPU, and None for numbers.

        CompileError, LaunchError, KernelError for what the kernel does wrong; GpuUnavailable when the GPU is to blame.
        """
        ...


class Gpu:
    """A device used in this process; "cpu" stands in for a GPU in the tests of the course itself."""

    def __init__(self, device: str = "cuda") -> None:
        self.device = device
        self._kernels: dict[tuple[str, str, str | None], Kernel] = {}

    def launch(
        self,
        source: str,
        name: str,
        template: str | None,
        grid: Size,
        block: Size,
        arguments: Sequence[Any],
        shared: int = 0,
    ) -> list[torch.Tensor | None]:
        """See `Launcher`."""
        from kvcourse.cuda.errors import KernelError, NoCompilerError

        kernel = self._kernel(source, name, template)
        try:
            near = [self._copy(argument) for argument in arguments]
            kernel.launch(grid, block, *near, shared=shared)
            after = [argument.tensor if isinstance(argument, Slice) else argument for argument in near]
            return [argument.cpu() if hasattr(argument, "data_ptr") else None for argument in after]
        except NoCompilerError as error:
            raise GpuUnavailable(str(error)) from None
        except KernelError as error:
            if self.device != "cpu" and BROKEN.search(str(error)):
                raise GpuUnavailable(str(error)) from None
            raise
        except NotImplementedError:  # a stub is in the source
            raise
        except RuntimeError as error:  # torch's: no memory left, or a kernel before this one broke the context
            if type(error).__name__ == "OutOfMemoryError":
                raise GpuUnavailable("the GPU has not enough free memory") from None
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise GpuUnavailable(f"the GPU cannot be used until this Python is restarted ({reason})") from None

    def _kernel(self, source: str, name: str, template: str | None) -> Kernel:
        """The same text is compiled once, although several launches need it."""
        from kvcourse.cuda import Kernel

        about = (source, name, template)
        if about not in self._kernels:
            if len(self._kernels) == KEPT:
                del self._kernels[next(iter(self._kernels))]
            self._kernels[about] = Kernel(source, name, template)
        return self._kernels[about]

    def _copy(self, argument: Any) -> Any:
        if isinstance(argument, Slice):
            return Slice(self._copy(argument.tensor), argument.start)
        if not hasattr(argument, "data_ptr"):
            return argument
        return argument.detach().contiguous().to(self.device, copy=True)


class Launches:
    """Notes every launch among a test's calls, so that a failure names it."""

    def __init__(self, gpu: Launcher, calls: list[tuple[str, str]]) -> None:
        self._gpu, self._calls = gpu, calls

    def launch(
        self, source: str, name: str, template: str | None, grid: Size, block: Size, *rest: Any, **more: Any
    ) -> list[torch.Tensor | None]:
        """See `Launcher`."""
        kernel = f"{name}<{template.strip('<>')}>" if template else name
        self._calls.append((f"{kernel}<<<{_shown(grid)}, {_shown(block)}>>> on a GPU", ""))
        return self._gpu.launch(source, name, template, grid, block, *rest, **more)


def gpu_here() -> Launcher | str:
    """This machine's GPU, or the reason why there is none. Imports torch, so ask only for a test that needs it."""
    import torch

    return Gpu() if torch.cuda.is_available() else NO_GPU


def _shown(size: Size) -> str:
    return str(size) if isinstance(size, int) else f"({', '.join(map(str, size))})"
