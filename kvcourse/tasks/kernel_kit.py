"""The trusted side of kernel tests: takes the learner's source text, launches it, and explains what went wrong.

Only text comes from the learner. Inputs, outputs and the launch are ours: outputs start as NaN, inputs are compared
afterwards, and the answer is computed after the kernel has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from kvcourse.cuda import CompileError, Kernel, KernelError, LaunchError, Slice
from kvcourse.cuda.cpu.limits import default_limits, set_limits
from kvcourse.cuda.cpu.report import Report
from kvcourse.cuda.cpu.run import Order
from kvcourse.tasks.api import Failure, NotStarted

ONCE: tuple[Order, ...] = ("forward",)
EVERY_ORDER: tuple[Order, ...] = ("forward", "reverse", "random")
SECONDS = 4.0  # of the processor, for one launch
LONGEST_SOURCE = 100_000  # characters
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3}  # of 1 + the largest number of the answer
WRONG_ADDRESS = ("out-of-bounds", "array-index", "wild-pointer")
UNTOUCHED = 77  # what outputs of whole numbers hold before the launch
KEEP_TYPES = "the parameters belong to the engine that calls the kernel: leave their types and order as they are"


@dataclass(frozen=True)
class Problem:
    """One launch of a kernel and what it must give.

    parameters: the C++ type of each parameter, such as "const T*"; arguments: by parameter name, in the same order
    outputs: names of what the kernel writes; want(): their values, in double precision; NaN: whatever it is
    words: the case in words; place(output, index): where a number stands, in words
    """

    kernel: str
    template: str | None
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    parameters: tuple[str, ...]
    arguments: Mapping[str, Any]
    want: Callable[[], Mapping[str, Tensor]]
    words: str
    place: Callable[[str, tuple[int, ...]], str]
    empty: tuple[str, ...] = ()  # outputs of which every number must be written
    tolerance: float | None = None

    def __post_init__(self) -> None:
        assert len(self.parameters) == len(self.arguments), "a type for every argument"

    @property
    def call(self) -> str:
        name = f"{self.kernel}<{self.template}>" if self.template else self.kernel
        return f"{name} on {self.words}"


class Answered(dict[str, Tensor]):
    """What the outputs hold after a launch, by parameter name."""


def launch(student: Any, problem: Problem, because: str = "", tip: str = "", orders: Sequence[Order] = ONCE) -> Report:
    """Launch the learner's kernel on the CPU, every access watched; Failure when it faults or gives a wrong answer.

    With several orders of threads the results must not depend on the order. The report counts what it asked of memory.
    """
    kernel = kernel_of(student, problem)
    own = fresh(problem.arguments)
    try:
        names = [p.name for p in kernel.signature.parameters]
        empty = [names[list(own).index(name)] for name in problem.empty]
        with short_launches():
            report = kernel.check(problem.grid, problem.block, *own.values(), empty=empty, orders=orders)
    except (CompileError, LaunchError, KernelError) as error:
        raise refused(problem, error) from None
    if not report:
        raise faulty(problem, report, because, tip)
    judge(problem, own, because, tip)
    return report


def launch_on_gpu(gpu: Any, student: Any, problem: Problem, because: str = "", tip: str = "") -> None:
    """The same on a GPU (`gpu` is the fixture of that name): results and inputs are compared, nothing is counted."""
    kernel = kernel_of(student, problem)
    own = fresh(problem.arguments)
    try:
        back = gpu.launch(
            kernel.source, problem.kernel, problem.template, problem.grid, problem.block, list(own.values())
        )
    except (CompileError, LaunchError, KernelError) as error:
        raise refused(problem, error) from None
    after = {name: value if after is None else after for (name, value), after in zip(own.items(), back, strict=True)}
    judge(problem, after, because, tip)


@contextmanager
def short_launches() -> Iterator[None]:
    """A launch of a test ends within SECONDS or never: the reference takes less than a tenth of one."""
    before = set_limits(seconds=min(SECONDS, default_limits().seconds))
    try:
        yield
    finally:
        set_limits(before)


def kernel_of(student: Any, problem: Problem) -> Kernel:
    """The learner's kernel, made from its text; NotStarted for a stub, Failure for what is no kernel of this form."""
    text, first_line = source_of(student, problem.kernel)
    kernel = made(text, problem.kernel, problem.template, first_line)
    try:
        found = kernel.signature.parameters
    except NotImplementedError as stub:
        raise NotStarted(str(stub)) from None
    except CompileError as error:
        raise refused(problem, error) from None
    given = tuple(p.kind for p in found)
    element = problem.template.split(",")[0].strip() if problem.template else ""
    wanted = tuple(kind.replace("T*", f"{element}*") for kind in problem.parameters)
    if given != wanted:
        raise Failure(problem.kernel, f"({', '.join(wanted)})", f"({', '.join(given)})", KEEP_TYPES)
    return kernel


def source_of(student: Any, name: str) -> tuple[str, int]:
    """The text of a kernel in the learner's notebook and the number of its first line in the cell."""
    value = getattr(student, name)
    if isinstance(value, str):
        return value[:LONGEST_SOURCE], 1
    if not hasattr(value, "source"):
        raise Failure(
            name, "a kernel", f"a {type(value).__name__}", f"write it in a cell that begins with %%cuda {name}"
        )
    text, line = value.source, value.first_line
    if not isinstance(text, str) or len(text) > LONGEST_SOURCE:
        raise Failure(name, f"CUDA C++ of at most {LONGEST_SOURCE:,} characters", type(text).__name__)
    return text, line if type(line) is int and 1 <= line <= 1000 else 1


@lru_cache(maxsize=64)
def made(text: str, name: str, template: str | None, first_line: int) -> Kernel:
    """One Kernel for one text, so that the tests of a task compile it once."""
    return Kernel(text, name, template, first_line=first_line)


def fresh(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of the arguments: what one launch does to them no other launch sees."""
    return {name: copied(value) for name, value in arguments.items()}


def copied(value: Any) -> Any:
    if isinstance(value, Slice):
        return Slice(value.tensor.clone(), value.start)
    return value.clone() if isinstance(value, Tensor) else value


def plain(value: Any) -> Any:
    return value.tensor if isinstance(value, Slice) else value


def judge(problem: Problem, after: Mapping[str, Any], because: str = "", tip: str = "") -> None:
    """Failure for an input that has changed and for the first number of an output that is wrong."""
    for kind, (name, value) in zip(problem.parameters, problem.arguments.items(), strict=True):
        if kind.startswith("const") and not same(plain(value), plain(after[name])):
            raise Failure(problem.call, f"{name} as it was", f"{name} changed", "it is an input")
    for name, want in problem.want().items():
        got = plain(after[name])
        at = first_wrong(got, want, tolerance_of(problem, got, want))
        if at is not None:
            raise Failure(
                problem.call, f"{number(want[at])} for {problem.place(name, at)}", number(got[at]), because, tip
            )


def tolerance_of(problem: Problem, got: Tensor, want: Tensor) -> float:
    """The largest difference that is still right, absolute."""
    if not got.dtype.is_floating_point:
        return 0.0
    known = want[want.isfinite()].double().abs()
    return (problem.tolerance or TOLERANCE[got.dtype]) * (1.0 + (known.max().item() if known.numel() else 0.0))


def first_wrong(got: Tensor, want: Tensor, tolerance: float) -> tuple[int, ...] | None:
    """The index of the first number that is not what is wanted. Where NaN is wanted, NaN must have stayed."""
    got, want = got.double(), want.double()
    right = (got == want) | ((got - want).abs() <= tolerance) | (got.isnan() & want.isnan())
    wrong = (~right).nonzero()
    return tuple(int(i) for i in wrong[0]) if len(wrong) else None


def same(a: Any, b: Any) -> bool:
    """Equal bytes, so that NaN equals itself."""
    if not isinstance(a, Tensor):
        return True
    if a.numel() == 0:
        return True
    return bool((a.contiguous().view(torch.uint8) == b.contiguous().view(torch.uint8)).all())


def number(value: Tensor) -> str:
    return f"{value.item():.6g}"


def refused(problem: Problem, error: Exception) -> Failure:
    """What the compiler or the launch said, as a failure."""
    wanted = "a kernel that compiles" if isinstance(error, CompileError) else "a launch that ends"
    return Failure(problem.call, wanted, str(error))


def faulty(problem: Problem, report: Report, because: str = "", tip: str = "") -> Failure:
    """The first fault of a watched launch, with its line and what it would do on a GPU.

    Where an address is wrong, the test's own words say more about it.
    """
    if not report.faults:
        got = report.differences[0]
        return Failure(problem.call, "the same result in every order of threads", got, "threads run in any order")
    fault = report.faults[0]
    line = report.line_text(fault.line)
    got = f"{fault}" + (f"\n{line}" if line else "")
    why = f"on a GPU: {fault.on_gpu}"
    if fault.kind in WRONG_ADDRESS:
        return Failure(problem.call, "no faults", got, "; ".join(filter(None, [why, because])), tip or fault.tip)
    return Failure(problem.call, "no faults", got, why, fault.tip)


def at_most(problem: Problem, report: Report, what: str, got: float, most: float, because: str, tip: str = "") -> None:
    """A gate on a counted number: Failure when `got` is above `most`; names the line that asks for most."""
    if got > most:
        raise Failure(problem.call, f"at most {most:,.0f} {what}", f"{got:,.0f}", because, tip)


def at_least(problem: Problem, report: Report, what: str, got: float, least: float, because: str) -> None:
    """A gate from below: a kernel that asks for less has not done the work."""
    if got < least:
        raise Failure(problem.call, f"at least {least:,.0f} {what}", f"{got:,.0f}", because)


def worst_line(report: Report, *, shared: bool, kind: str | None = None) -> str:
    """The line that wastes most of global (sectors) or shared memory (waves), in words; "" if none is wasted."""
    lines = [c for c in report.lines if c.shared == shared and kind in (None, c.kind) and c.requests]
    if not lines:
        return ""
    if shared:
        worst = max(lines, key=lambda c: c.waves - c.least_waves)
        each, would = worst.waves / worst.requests, worst.least_waves / worst.requests
        unit = "waves"
    else:
        worst = max(lines, key=lambda c: c.sectors - c.least_sectors)
        each, would = worst.sectors / worst.requests, worst.least_sectors / worst.requests
        unit = "sectors"
    if each <= would:
        return ""
    text = report.line_text(worst.line)
    return f"line {worst.line or '?'} ({text}) {worst.kind}s {each:.3g} {unit} a request, {would:.3g} would do"


def with_arguments(problem: Problem, **changed: Any) -> Problem:
    """The same problem with other arguments."""
    return replace(problem, arguments={**problem.arguments, **changed})
