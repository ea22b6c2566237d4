"""A kernel on a GPU: machine code for the present device, launched on torch's current stream."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvcourse.cuda.arguments import Argument, Pointer
from kvcourse.cuda.cpp_types import SCALARS
from kvcourse.cuda.cpu.limits import Limits
from kvcourse.cuda.dims import Dims
from kvcourse.cuda.errors import KernelError
from kvcourse.cuda.nvrtc import compile_cubin
from kvcourse.cuda.signature import Signature

# cuda-core passes a Python int as 8 bytes and a float as a double; a NumPy number keeps its size.
_NUMPY = {"?": np.bool_, "b": np.int8, "B": np.uint8, "h": np.int16, "H": np.uint16, "i": np.int32, "I": np.uint32,
          "q": np.int64, "Q": np.uint64, "e": np.float16, "f": np.float32, "d": np.float64}  # fmt: skip


class _TorchStream:
    """Torch's current stream in the form that cuda-core takes."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@dataclass
class GpuKernel:
    """One kernel, compiled when a device first needs it."""

    text: str
    signature: Signature
    first_line: int = 1
    limits: Limits = field(default_factory=Limits)
    _loaded: dict[str, Any] = field(default_factory=dict)  # by architecture

    def compile(self, device: int | None = None) -> Any:
        """The kernel as cuda-core's Kernel, for torch's device number `device` (the current one)."""
        import torch

        major, minor = torch.cuda.get_device_capability(device)
        arch = f"sm_{major}{minor}"
        if arch not in self._loaded:
            from cuda.core import ObjectCode

            cubin = compile_cubin(self.text, self.signature, arch, self.limits, self.first_line)
            self._loaded[arch] = ObjectCode.from_cubin(cubin.code, name="kernel.cu").get_kernel(cubin.name)
        return self._loaded[arch]

    def launch(self, dims: Dims, arguments: Sequence[Argument], *, wait: bool = True) -> None:
        """Launch on the current stream of the tensors' device; with `wait`, KernelError if it faults."""
        import torch

        tensors = [a.tensor for a in arguments if isinstance(a, Pointer) and a.tensor is not None]
        index = tensors[0].device.index if tensors[0].device.index is not None else torch.cuda.current_device()
        kernel = self.compile(index)
        from cuda import core  # there, since the kernel was compiled

        device = core.Device(index)
        device.set_current()
        stream = device.create_stream(_TorchStream(torch.cuda.current_stream(index).cuda_stream))
        config = core.LaunchConfig(grid=dims.grid, block=dims.block, shmem_size=dims.shared)
        try:
            core.launch(stream, config, kernel, *[_as_cuda(argument) for argument in arguments])
            if wait:
                torch.cuda.synchronize(index)
        except Exception as error:
            reason = f"{self.signature.name} failed on the GPU: {str(error).splitlines()[0]}"
            raise KernelError(
                f"{reason}. The GPU stays unusable until this Python is restarted; check(...) on tensors of the CPU"
                " names the line."
            ) from None


def _as_cuda(argument: Argument) -> Any:
    if isinstance(argument, Pointer):
        address = argument.tensor.data_ptr() if argument.tensor is not None else 0
        return np.uint64((address - argument.before) % 2**64)  # a huge array may begin below all memory: only a number
    code = SCALARS[argument.parameter.type]
    return _NUMPY[code](struct.unpack("<" + code, argument.data)[0])
