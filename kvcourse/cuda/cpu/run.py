"""One launch of a compiled kernel, written down for the runtime (see request.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from kvcourse.cuda.arguments import Argument, Pointer, Value
from kvcourse.cuda.cpu.compile import Program
from kvcourse.cuda.cpu.limits import Limits
from kvcourse.cuda.cpu.worker import Memory, ask

Order = Literal["forward", "reverse", "random"]
ORDERS: dict[str, int] = {"forward": 0, "reverse": 1, "random": 2}
CHECK, COUNT = 1, 2  # enum Option of types.h


@dataclass(frozen=True)
class Static:
    """A variable of the compiled kernel outside its stack: a `__shared__` array, a `__device__` variable."""

    name: str
    address: int
    size: int
    shared: bool
    constant: bool
    guard: bool = False  # the compiler's own, for a variable with a constructor


@dataclass(frozen=True)
class Launch:
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: Sequence[Argument]
    statics: Sequence[Static]
    options: int
    order: Order = "forward"
    seed: int = 0
    empty: frozenset[str] = frozenset()  # parameters whose memory counts as unset


def run(program: Program, launch: Launch, limits: Limits) -> dict[str, Any]:
    """Run one launch; tensors that it may write are changed in place. Gives the runtime's reply (see reply.h)."""
    memories = memories_of(launch)
    with limits.charged() as limits:
        request = _request(program, launch, memories, limits)
        return ask([*limits.prefix, *program.command], request, memories, limits)


def memories_of(launch: Launch) -> list[Memory]:
    """The tensors as stretches of memory: those that overlap share one, so that a race between them shows."""
    found: list[Memory] = []
    pointers = [(a, a.tensor) for a in launch.arguments if isinstance(a, Pointer) and a.tensor is not None]
    for pointer, tensor in sorted(pointers, key=lambda pair: (pair[1].data_ptr(), pair[1].nbytes)):
        parameter = pointer.parameter
        begin, size = tensor.data_ptr(), tensor.nbytes
        lead = tensor.storage_offset() * tensor.element_size()
        unset = parameter.name in launch.empty
        one = Memory(parameter.name, begin, size, lead % 512, parameter.writes, unset, pointer.before)
        last = found[-1] if found else None
        if last is not None and begin < last.start + last.size:
            end = max(last.start + last.size, begin + size)
            one = replace(
                last,
                size=end - last.start,
                writes=last.writes or one.writes,
                unset=last.unset and one.unset,
                before=max(last.before, one.before),
            )
            found.pop()
        found.append(one)
    return found


def _request(program: Program, launch: Launch, memories: list[Memory], limits: Limits) -> bytes:
    """The launch as lines of words (see request.h)."""
    lines = [
        f"options {launch.options}",
        f"anchor {program.anchor}",
        f"grid {launch.grid[0]} {launch.grid[1]} {launch.grid[2]}",
        f"block {launch.block[0]} {launch.block[1]} {launch.block[2]}",
        f"shared {launch.shared}",
        f"order {ORDERS[launch.order]} {launch.seed}",
        f"limit {max(1, int(limits.seconds * 1000))}",  # 0 would be no limit
    ]
    lines += [
        f"static {s.address} {s.size} {s.shared | s.constant << 1 | s.guard << 2} {s.name}" for s in launch.statics
    ]
    lines += [f"buffer {m.size} {m.lead} {m.before} {(not m.writes) | m.unset << 1} {m.name}" for m in memories]
    for argument in launch.arguments:
        if isinstance(argument, Value):
            lines.append(f"value {int.from_bytes(argument.data.ljust(8, bytes(1)), 'little')}")
        elif argument.tensor is None:
            lines.append("value 0")
        else:
            address = argument.tensor.data_ptr()
            index = next(i for i, m in enumerate(memories) if m.start <= address < m.start + max(m.size, 1))
            lines.append(f"pointer {index} {address - memories[index].start - argument.before}")
    return ("\n".join(lines) + "\ndata\n").encode()
