"""The process that runs kernels for the grader: it may hang, die or not start, and the next launch works again."""

from __future__ import annotations

import fcntl
import sys

import pytest
import torch
from gpu_fixtures import doubled, works
from gpu_lesson import GOOD
from gpu_stand_in import AT_START, DIE, HANG, LOSE

from autograde import gpu
from autograde.gpu import BUSY, OFF, SWITCH, USED_UP, GpuRunner, grading_gpu
from kvcourse.check.gpu import NO_GPU
from kvcourse.cuda import CompileError, KernelError, LaunchError, Slice
from kvcourse.tasks.api import GpuUnavailable

pytest_plugins = ["gpu_fixtures"]
QUICK_LIMIT = """import sys
from autograde import gpu_worker
from kvcourse.cuda.cpu.limits import set_limits
set_limits(seconds=0.3)
gpu_worker.main(*sys.argv[-2:])
"""


def test_launches_share_one_process(runner):
    assert runner._process is None, "it starts when it is first needed"
    assert works(runner)
    first = runner._process.pid
    assert works(runner) and runner._process.pid == first


def test_arguments_of_every_kind_cross(runner):
    source = (
        "template <typename T> __global__ void k(T* out, const int* none, long long big, float f) "
        "{ out[0] = none == nullptr ? f : 0.0f; out[1] = (float)(big >> 40); }"
    )
    far = Slice(torch.zeros(2), 0)
    after = runner.launch(source, "k", "float", (1, 1, 1), [1], [far, None, 2**40, 0.5])
    assert after[0].tolist() == [0.5, 1.0] and after[1:] == [None, None, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "arguments", "kind"),
    [
        (GOOD.replace(";", "", 1), None, CompileError),
        ('#error "small.1: double on a GPU"\n' + GOOD, None, CompileError),
        (GOOD, [torch.zeros(1)], LaunchError),
        (GOOD.replace("if (i < n)", "while (true)"), None, KernelError),
    ],
)
def test_errors_of_a_kernel_come_back_and_the_next_one_runs(runner, monkeypatch, source, arguments, kind):
    if kind is KernelError:
        monkeypatch.setattr(runner, "command", (sys.executable, "-c", QUICK_LIMIT))
    with pytest.raises(kind):
        runner.launch(source, "double_all", None, 1, 1, arguments or [torch.zeros(1), torch.zeros(1), 1])
    assert works(runner)


@pytest.mark.slow
def test_a_kernel_that_ends_the_process_fails_and_the_next_one_runs(runner):
    assert works(runner)
    with pytest.raises(KernelError, match="double_all ended the process that launched it"):
        doubled(runner, GOOD + DIE)
    assert works(runner)


@pytest.mark.slow
def test_a_kernel_that_does_not_come_back_fails_and_is_not_waited_for_twice(runner):
    assert works(runner)
    runner.launch_seconds = 0.2
    with pytest.raises(KernelError, match=r"did not come back within 0\.2 s"):
        doubled(runner, GOOD + HANG)
    runner.launch_seconds = 60.0
    with pytest.raises(KernelError, match="did not come back from a launch before"):
        doubled(runner, GOOD + HANG)
    assert works(runner)


@pytest.mark.slow
def test_no_kernel_is_to_blame_for_what_happens_between_launches(runner):
    assert works(runner)
    runner._process.kill()
    runner._process.wait()
    assert works(runner)
    with pytest.raises(GpuUnavailable, match="the driver is gone"):
        doubled(runner, GOOD + LOSE)
    assert works(runner)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_start", "reason"),
    [("die", "ended while it started"), ("hang", "not ready within 0.2 s"), ("lost", "the driver is gone")],
)
def test_a_process_that_does_not_start_is_no_verdict(runner, monkeypatch, at_start, reason):
    monkeypatch.setenv(AT_START, at_start)
    if at_start == "hang":
        runner.start_seconds = 0.2
    for _ in range(2):
        with pytest.raises(GpuUnavailable, match=reason):
            works(runner)
    assert runner._process is None


@pytest.mark.slow
def test_grading_processes_take_turns_for_a_bounded_time(runner):
    assert works(runner)
    with open(runner.lock, "r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        runner.left = 0.05
        with pytest.raises(GpuUnavailable, match=BUSY):
            works(runner)
    with pytest.raises(GpuUnavailable, match=USED_UP):
        works(runner)
    runner.left = 60.0
    assert works(runner) and runner.left < 60.0


def test_which_gpu_grades(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "_shared", lambda: GpuRunner())
    found = grading_gpu()
    assert isinstance(found, GpuRunner) and found.device == "cuda" and 0 < found.left < 1000
    monkeypatch.setenv(SWITCH, "off")
    assert grading_gpu() == OFF
    monkeypatch.setenv(SWITCH, "auto")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert grading_gpu() == NO_GPU
