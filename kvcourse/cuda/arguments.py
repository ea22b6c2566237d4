"""Python arguments turned into what a kernel's parameters declare: an `int` gets 4 bytes, whatever Python holds."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvcourse.cuda.cpp_types import ELEMENTS, SCALARS, VECTORS
from kvcourse.cuda.errors import LaunchError
from kvcourse.cuda.signature import Parameter, Signature

if TYPE_CHECKING:
    import torch

SLICE_STEP = 512  # bytes: what a GPU's memory is aligned to
FURTHEST_SLICE = 2**44  # bytes: a process has 2**47 addresses


@dataclass(frozen=True)
class Slice:
    """The part of a huge array that begins at its element `start`, to launch a kernel with indices beyond 32 bits.

    A launch argument in place of a tensor: the kernel gets the address of element 0, so that its index `start` is the
    tensor's first element. Only the tensor takes up memory. start * element size is a multiple of 512 bytes, as if
    the whole array had been allocated on a GPU.
    """

    tensor: torch.Tensor
    start: int


@dataclass(frozen=True)
class Pointer:
    """An argument that is a tensor (None: a null pointer); the kernel counts its first element as `start`."""

    parameter: Parameter
    tensor: torch.Tensor | None
    start: int = 0

    @property
    def before(self) -> int:
        """Bytes from element 0, where the kernel's pointer points, to the tensor."""
        return self.start * self.tensor.element_size() if self.tensor is not None else 0


@dataclass(frozen=True)
class Value:
    """An argument that is a number, as the bytes the kernel receives."""

    parameter: Parameter
    data: bytes


Argument = Pointer | Value


def bind(signature: Signature, arguments: Sequence[Any]) -> list[Argument]:
    """The arguments in the form the kernel needs; LaunchError names the parameter that does not fit."""
    names = [p.name for p in signature.parameters]
    if len(arguments) != len(names):
        raise LaunchError(f"{signature.name} takes {len(names)} arguments ({', '.join(names)}), got {len(arguments)}.")
    bound = [_bind_one(p, a) for p, a in zip(signature.parameters, arguments, strict=True)]
    places = {str(b.tensor.device): b.parameter.name for b in bound if isinstance(b, Pointer) and b.tensor is not None}
    if len(places) > 1:
        where = " and ".join(f"{name} is on {device}" for device, name in places.items())
        raise LaunchError(f"The tensors of one launch must be on one device; here {where}.")
    return bound


def _bind_one(p: Parameter, argument: Any) -> Argument:
    if isinstance(argument, Slice):
        return _bind_slice(p, argument)
    is_tensor = hasattr(argument, "data_ptr")
    if not p.pointer:
        if is_tensor:
            raise LaunchError(f"{p.name} is a {p.type}, got a tensor: give a number.")
        return Value(p, _number(p, argument))
    if argument is None:
        return Pointer(p, None)
    if not is_tensor:
        raise LaunchError(f"{p.name} is a pointer ({p.type}*), got {type(argument).__name__}: give a torch tensor.")
    dtype = str(argument.dtype).removeprefix("torch.")
    element, width = VECTORS.get(p.type, (p.type, 1))
    if p.type != "void" and dtype not in ELEMENTS[element]:
        raise LaunchError(f"{p.name} is a {p.type}*, which reads {ELEMENTS[element][0]}; the tensor holds {dtype}.")
    if argument.device.type not in ("cpu", "cuda"):
        raise LaunchError(f"{p.name} is on the device {argument.device}; kernels run on cpu and cuda.")
    if not argument.is_contiguous():
        raise LaunchError(
            f"{p.name} is not contiguous (strides {tuple(argument.stride())}): pass {p.name}.contiguous()."
        )
    if argument.numel() % width:
        raise LaunchError(f"{p.name} is a {p.type}*, but its {argument.numel()} numbers are no multiple of {width}.")
    return Pointer(p, argument)


def _bind_slice(p: Parameter, part: Slice) -> Pointer:
    start = part.start
    if not p.pointer:
        raise LaunchError(f"{p.name} is a {p.type}, got a Slice: give a number.")
    if not hasattr(part.tensor, "data_ptr"):
        raise LaunchError(f"{p.name}: a Slice is made of a torch tensor, got {type(part.tensor).__name__}.")
    if not isinstance(start, int) or isinstance(start, bool) or start < 0:
        raise LaunchError(f"{p.name}: a Slice starts at a whole number of elements, 0 or more, not at {start!r}.")
    bound = replace(_bind_one(p, part.tensor), start=start)
    if bound.before % SLICE_STEP or bound.before > FURTHEST_SLICE:
        raise LaunchError(
            f"{p.name}: a Slice starts at a multiple of {SLICE_STEP} bytes, at 2**44 bytes at most; element {start}"
            f" is at byte {bound.before}."
        )
    return bound


def _number(p: Parameter, value: Any) -> bytes:
    code = SCALARS[p.type]
    if hasattr(value, "item") and not isinstance(value, bool | int | float):
        value = value.item()  # a NumPy number
    if not isinstance(value, bool | int | float):
        raise LaunchError(f"{p.name} is a {p.type}, got {type(value).__name__}: give a number.")
    if code in "efd":
        return _packed(p, code, float(value))
    if isinstance(value, float):
        raise LaunchError(f"{p.name} is a {p.type}, got the float {value!r}: give a whole number.")
    return _packed(p, code, bool(value) if code == "?" else int(value))


def _packed(p: Parameter, code: str, value: float) -> bytes:
    try:
        return struct.pack("<" + code, value)
    except (struct.error, OverflowError):
        raise LaunchError(f"{p.name} is a {p.type}, which cannot hold {value!r}.") from None
