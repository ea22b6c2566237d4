"""Runs the tests of one task against a student, in the notebook and in the grader alike.

A task has two verdicts. That of the CPU properties is the task's status: points come from them alone, so they are the
same on every machine. Properties marked `gpu` run once all others hold; their verdict stands beside and carries none.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol

from kvcourse.check.gpu import NO_GPU, Launches
from kvcourse.check.student import Student
from kvcourse.cuda.errors import CompileError, KernelError, LaunchError
from kvcourse.tasks.api import Failure, GpuUnavailable, Interrupted, NotStarted, StudentError, Test
from kvcourse.tasks.course import Task, load_course
from kvcourse.tasks.show import show

UNEXPECTED = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError)
Status = Literal["passed", "failed", "not started", "not run"]
WAITS_FOR_CPU = "runs on a GPU once all properties above hold"


class Opens(Protocol):
    """A learner's code: `session()` gives a fresh view of it."""

    def names(self) -> list[str]: ...

    def session(self) -> AbstractContextManager[Student]: ...


@dataclass
class PropertyResult:
    """One property's verdict; `problem` says why it was not run."""

    name: str
    title: str
    status: Status
    hidden: bool = False
    weight: float = 1.0
    call: str = ""
    expected: str = ""
    got: str = ""
    because: str = ""
    tip: str = ""
    problem: str = ""
    gpu: bool = False


@dataclass
class TaskResult:
    """A task's verdict, with one entry a property; `status` is the CPU's, and no GPU property changes it."""

    task: str
    status: Status
    properties: list[PropertyResult] = field(default_factory=list)
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaskResult:
        return cls(**{**data, "properties": [PropertyResult(**p) for p in data["properties"]]})

    @property
    def gpu(self) -> Status | None:
        """The GPU's verdict: passed, failed or not run; None for a task without GPU properties."""
        found = self.on_gpu
        return _overall(found) if found else None

    @property
    def on_cpu(self) -> list[PropertyResult]:
        return [p for p in self.properties if not p.gpu]

    @property
    def on_gpu(self) -> list[PropertyResult]:
        return [p for p in self.properties if p.gpu]

    def fraction(self) -> float | None:
        """Share of the points earned, 0..1: the hidden CPU properties that hold, by weight. None: it was not run."""
        if self.status == "not run":
            return None
        counted = [p for p in self.on_cpu if p.hidden]
        total = sum(p.weight for p in counted)
        return sum(p.weight for p in counted if p.status == "passed") / total if total else 0.0


def run_task(
    task: Task,
    student: Opens,
    tests: Sequence[Test],
    fixtures: Callable[[Test], Mapping[str, Any]] = lambda _: {},
    kernels: Callable[[], Opens | str] | None = None,
) -> TaskResult:
    """Run `tests` in order, each in a session of its own; `fixtures(test)` gives what it asks for besides `student`.

    GPU tests come last, and run only if all others passed. Their fixture `gpu` is an object that launches kernels, or
    the reason (a str) why none can be; `kernels()` gives what they see as `student`, if that is something else.
    """
    cpu, gpu = [t for t in tests if not t.gpu], [t for t in tests if t.gpu]
    later = [_skipped(test, "not run", WAITS_FOR_CPU) for test in gpu]
    missing = _missing(task, student.names())
    if missing:
        return TaskResult(task.name, "failed", [*(_skipped(t, "failed", missing) for t in cpu), *later], missing)
    results: list[PropertyResult] = []
    for test in cpu:
        results.append(_waits(test, results) or run_test(test, student, fixtures(test)))
        if results[-1].status == "not started" and len(task.names) == 1:
            break
    status = _overall(results)
    if status == "not started":
        return TaskResult(task.name, status, [*(_skipped(t, status, "") for t in cpu), *later])
    if status == "passed" and gpu:
        later = run_on_gpu(gpu, kernels() if kernels else student, fixtures)
    return TaskResult(task.name, status, results + later)


def run_on_gpu(
    tests: Sequence[Test], student: Opens | str, fixtures: Callable[[Test], Mapping[str, Any]]
) -> list[PropertyResult]:
    """The GPU tests of a task whose other properties all hold. Once the GPU cannot be used, the rest is not run."""
    results: list[PropertyResult] = []
    reason = student if isinstance(student, str) else ""
    for test in tests:
        given = {} if reason else fixtures(test)
        gpu = given.get("gpu", NO_GPU)
        reason = reason or (gpu if isinstance(gpu, str) else "")
        if isinstance(student, str) or reason:
            results.append(_skipped(test, "not run", reason))
        elif waits := _waits(test, results):
            results.append(waits)
        else:
            results.append(run_test(test, student, given))
            reason = results[-1].problem
    return results


def run_test(test: Test, student: Opens, fixtures: Mapping[str, Any]) -> PropertyResult:
    """One property, with its verdict."""
    result = PropertyResult(test.name, test.title, "passed", test.hidden, test.weight, gpu=test.gpu)
    wanted = {name: fixtures[name] for name in inspect.signature(test.fn).parameters if name != "student"}
    with student.session() as view:
        if test.gpu:
            wanted["gpu"] = Launches(fixtures["gpu"], view.calls)
        try:
            test.fn(student=view, **wanted)
        except NotStarted as stub:
            other = str(stub).split(":")[0]
            if other != test.task and other in _task_names():
                result.status, result.call = "failed", _last_call(view)
                result.because = f"It uses {other}, which is not started: do {other} first."
            else:
                result.status = "not started"
        except Failure as failure:
            result.status = "failed"
            result.call, result.expected, result.got = failure.call, failure.expected, failure.got
            result.because, result.tip = failure.because, failure.tip
        except AssertionError as error:
            result.status = "failed"
            _explain_assert(result, error, view)
        except StudentError as error:
            result.status = "failed"
            result.call, result.expected, result.got = _last_call(view), "a result", str(error)
        except Interrupted as stop:
            result.status, result.call, result.because = "failed", _last_call(view), str(stop)
        except (CompileError, KernelError, LaunchError) as error:
            result.status, result.call, result.because = "failed", _last_call(view), str(error)
        except GpuUnavailable as lost:
            result.status, result.problem = "not run", str(lost)
        except UNEXPECTED as error:  # the test reads the result as what the task asks for, and it is something else
            result.status = "failed"
            result.call, result.got = view.calls[-1] if view.calls else ("", "")
            result.because = f"The result has not the expected form ({type(error).__name__}: {str(error)[:200]})."
    return result


def _task_names() -> set[str]:
    return {task.name for lesson in load_course() for task in lesson.tasks}


def _missing(task: Task, names: list[str]) -> str:
    """One sentence for the first name the task needs and does not find."""
    for name in task.names:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
            if near:
                return f"{task.name} needs {name}, which is not defined; there is {near[0]}: rename it to {name}."
            return f"{task.name} needs {name}, which is not defined: run the cell that defines it."
    return ""


def _waits(test: Test, results: Sequence[PropertyResult]) -> PropertyResult | None:
    """The verdict of a test whose property `after` does not hold; None when it may run."""
    first = next((r for r in results if r.name == test.after), None)
    if first is None or first.status == "passed":
        return None
    return _skipped(test, "not run", f"counts once this holds: {first.title}")


def _skipped(test: Test, status: Status, problem: str) -> PropertyResult:
    return PropertyResult(test.name, test.title, status, test.hidden, test.weight, problem=problem, gpu=test.gpu)


def _overall(results: list[PropertyResult]) -> Status:
    statuses = {result.status for result in results}
    if statuses <= {"passed"}:
        return "passed"
    if "failed" in statuses or {"passed", "not started"} <= statuses:  # a task of several functions, half of them done
        return "failed"
    return "not started" if "not started" in statuses else "not run"


def _last_call(student: Student) -> str:
    return student.calls[-1][0] if student.calls else ""


def _explain_assert(result: PropertyResult, error: AssertionError, student: Student) -> None:
    """For a plain `assert student.f(x) == want, "why"`: the last call is the example, the other side is expected."""
    result.because = str(error).split("\n")[0]
    if student.calls:
        result.call, result.got = student.calls[-1]
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    test = _assert_expression(step) if step is not None else None
    if step is not None and isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        for side in (test.comparators[0], test.left):
            if not any(isinstance(node, ast.Call) for node in ast.walk(side)):
                code = compile(ast.Expression(side), "<expected>", "eval")
                frame = step.tb_frame
                result.expected = show(eval(code, frame.f_globals, dict(frame.f_locals)))
                return


def _assert_expression(step: TracebackType) -> ast.expr | None:
    """The condition of the assert statement that raised."""
    try:
        lines, start = inspect.getsourcelines(step.tb_frame.f_code)
    except OSError:
        return None
    tree = ast.parse(textwrap.dedent("".join(lines)))
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    at = step.tb_lineno - start + 1
    return next((node.test for node in asserts if node.lineno <= at <= (node.end_lineno or node.lineno)), None)
