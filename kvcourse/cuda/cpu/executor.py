"""A kernel on the CPU: the fast run, and the run that checks and counts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcourse.cuda.arguments import Argument, Pointer
from kvcourse.cuda.cpu.compile import Mode, Program, compile_kernel
from kvcourse.cuda.cpu.counters import read_counts
from kvcourse.cuda.cpu.faults import Fault, Naming, read_fault, without_echoes
from kvcourse.cuda.cpu.limits import Limits
from kvcourse.cuda.cpu.prepare import prepare
from kvcourse.cuda.cpu.report import Report
from kvcourse.cuda.cpu.run import CHECK, COUNT, ORDERS, Launch, Order, Static, run
from kvcourse.cuda.declarations import declarations
from kvcourse.cuda.dims import SHARED_LIMIT, Dims
from kvcourse.cuda.errors import CompileError, KernelError, LaunchError
from kvcourse.cuda.language import static_locals
from kvcourse.cuda.lexer import Source
from kvcourse.cuda.signature import Signature, kernels_of

if TYPE_CHECKING:
    import torch


@dataclass
class CpuKernel:
    """One kernel, compiled when it is first needed, once for each way of running."""

    text: str
    source: Source
    signature: Signature
    first_line: int = 1
    limits: Limits = field(default_factory=Limits)
    seconds: float = 0.0  # of the processor, for the last launch
    _compiled: dict[Mode, tuple[Program, list[Static]]] = field(default_factory=dict)

    def program(self, mode: Mode) -> Program:
        """The compiled kernel; CompileError when it does not compile or has too many `__shared__` arrays."""
        return self._compile(mode)[0]

    def launch(self, dims: Dims, arguments: Sequence[Argument]) -> None:
        """The fast run: results only. KernelError when the kernel was stopped."""
        reply = self._run("fast", dims, arguments)
        _show(reply["output"])
        faults = self._faults(self.program("fast"), reply, arguments)
        if any(not fault.note for fault in faults):
            stopped = f"{self.signature.name} was stopped. {faults[0]}"
            raise KernelError(f"{stopped} check(...) in place of launch(...) says more.")

    def check(self, dims: Dims, arguments: Sequence[Argument], empty: Sequence[str], orders: Sequence[Order]) -> Report:
        """The checked run, once for each order of threads; the tensors hold the results of the first."""
        unknown = sorted(set(empty) - {p.name for p in self.signature.parameters if p.pointer})
        if unknown:
            raise LaunchError(f"empty names {', '.join(unknown)}, no pointer parameter of {self.signature.name}.")
        if not orders or not set(orders) <= set(ORDERS):
            raise LaunchError(f"orders is {orders!r}: choose among {', '.join(ORDERS)}.")
        if dims.threads >= 2**32:
            raise LaunchError(f"A checked launch has fewer than 2**32 threads; this one has {dims.threads:,}.")
        if len(orders) == 1:
            return self._check_once(dims, arguments, empty, orders[0])
        written = {a.parameter.name: a.tensor for a in arguments if _is_written(a)}
        before = {name: tensor.clone() for name, tensor in written.items()}
        report = self._check_once(dims, arguments, empty, orders[0])
        results = {name: tensor.clone() for name, tensor in written.items()}
        for order in orders[1:]:
            _fill(written, before)
            again = self._check_once(dims, arguments, empty, order)
            report.compare(again, order, _differences(results, written))
        _fill(written, results)
        return report

    def _check_once(self, dims: Dims, arguments: Sequence[Argument], empty: Sequence[str], order: Order) -> Report:
        reply = self._run("check", dims, arguments, order, frozenset(empty))
        return self._report(self.program("check"), reply, dims, arguments)

    def _compile(self, mode: Mode) -> tuple[Program, list[Static]]:
        if mode not in self._compiled or not self._compiled[mode][0].library.exists():
            program = compile_kernel(prepare(self.text), self.signature.instance, mode, self.limits, self.first_line)
            statics = self._statics(program)
            size = sum(s.size for s in statics if s.shared)
            if size > SHARED_LIMIT:
                arrays = f"The __shared__ arrays of {self.signature.name}"
                raise CompileError(f"{arrays} take {size:,} bytes; a block has {SHARED_LIMIT:,}.")
            self._compiled[mode] = program, statics
        return self._compiled[mode]

    def _run(
        self,
        mode: Mode,
        dims: Dims,
        arguments: Sequence[Argument],
        order: Order = "forward",
        empty: frozenset[str] = frozenset(),
    ) -> dict[str, Any]:
        program, statics = self._compile(mode)
        shared = sum(s.size for s in statics if s.shared)
        if shared + dims.shared > SHARED_LIMIT:
            raise LaunchError(
                f"The block wants {shared + dims.shared:,} bytes of shared memory ({shared:,} in __shared__ arrays,"
                f" {dims.shared:,} by shared=); it has {SHARED_LIMIT:,}."
            )
        options = CHECK | COUNT if mode == "check" else 0
        launch = Launch(dims.grid, dims.block, dims.shared, arguments, statics, options, order, 1, empty)
        reply = run(program, launch, self.limits)
        self.seconds = reply["seconds"]
        return reply

    def _report(self, program: Program, reply: dict[str, Any], dims: Dims, arguments: Sequence[Argument]) -> Report:
        faults = self._faults(program, reply, arguments)
        counters, lines = read_counts(reply, lambda place: _line_of(program, place))
        return Report(
            kernel=self.signature.name,
            dims=dims,
            faults=[fault for fault in faults if not fault.note],
            notes=[fault for fault in faults if fault.note],
            counters=counters,
            lines=lines,
            output=reply["output"],
            source=tuple(self.text.split("\n")),
            first_line=self.first_line,
            seconds=reply["seconds"],
            complete=not reply["stopped"],
        )

    def _faults(self, program: Program, reply: dict[str, Any], arguments: Sequence[Argument]) -> list[Fault]:
        pointers = [a for a in arguments if isinstance(a, Pointer) and a.tensor is not None]
        naming = Naming(
            {a.parameter.name: a.tensor.element_size() for a in pointers},
            {a.parameter.name: a.start for a in pointers},
        )
        return without_echoes(
            [read_fault(raw, naming, lambda place: _line_of(program, place)) for raw in reply["faults"]]
        )

    def _statics(self, program: Program) -> list[Static]:
        """`__shared__` arrays of this kernel and what it calls, and variables of the grid, from the symbol table."""
        files = {d.name: d.head for d in declarations(self.source) if d.parameters is None and not d.in_class}
        grid_wide = static_locals(self.source)
        others = set(kernels_of(self.source)) - {self.signature.name}
        found = []
        for symbol in program.variables:
            if symbol.name.startswith("_ZGV"):
                found.append(Static(symbol.name, symbol.address, symbol.size, shared=False, constant=False, guard=True))
                continue
            owner, name = _names_in(symbol.name)
            shared = bool(owner) and name not in grid_wide
            writable = bool(owner) or "__device__" in files.get(name, ())
            if owner not in others:
                found.append(Static(name, symbol.address, symbol.size, shared, constant=not writable))
        return found


def _is_written(argument: Argument) -> bool:
    return isinstance(argument, Pointer) and argument.tensor is not None and argument.parameter.writes


def _fill(tensors: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def _differences(first: Mapping[str, torch.Tensor], now: Mapping[str, torch.Tensor]) -> list[str]:
    """Where the results of another order of threads differ from the first one's."""
    found = []
    for name, tensor in first.items():
        a, b = tensor.flatten().double(), now[name].flatten().double()
        different = ~a.isclose(b, rtol=1e-3, atol=1e-5, equal_nan=True)
        if different.any():
            i = int(different.nonzero()[0])
            found.append(f"{name}[{i}] is {a[i].item():.6g} or {b[i].item():.6g}")
    return found


def _line_of(program: Program, place: Sequence[int]) -> int | None:
    """The kernel's own line of a place: the innermost of its return addresses that lies in the kernel's source."""
    for code in place:
        line = program.binary.line(code - 1) if code else None
        if line is not None:
            return line
    return None


def _names_in(symbol: str) -> tuple[str, str]:
    """(function, variable) of a mangled name: _ZZ6matmulPKfE2As -> ("matmul", "As"); ("", name) outside functions."""
    local = re.match(r"_ZZ(?:L|N?K?)*(\d+)(\w+)$", symbol)
    if local:
        length, rest = int(local.group(1)), local.group(2)
        variable = re.search(r"E(\d+)([A-Za-z_]\w*)$", rest)
        name = variable.group(2)[: int(variable.group(1))] if variable else rest
        return rest[:length], name
    outside = re.match(r"_ZL(\d+)(\w+)$", symbol)
    return "", outside.group(2)[: int(outside.group(1))] if outside else symbol


def _show(output: str) -> None:
    if output:
        print(output, end="" if output.endswith("\n") else "\n")
