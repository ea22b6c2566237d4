"""CPU and GPU verdicts stand apart: whatever a GPU says, a task's status and its points are those of the CPU."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from html import unescape

import gpu_lesson
import pytest
import torch
from gpu_lesson import BROKEN, FAULT, FIRST_BLOCK, GOOD, TASK, WRONG, FakeGpu, gpu_tests, names

import kvcourse
from kvcourse.check import gpu as check_gpu
from kvcourse.check.gpu import NO_GPU, Gpu, gpu_here
from kvcourse.check.report import Report
from kvcourse.check.runner import WAITS_FOR_CPU, TaskResult, run_task
from kvcourse.check.student import LocalStudent
from kvcourse.cuda import CompileError, Kernel, KernelError, LaunchError, Slice
from kvcourse.cuda.errors import NoCompilerError
from kvcourse.tasks import api
from kvcourse.tasks.api import GpuUnavailable

SIGN = {"passed": "✓", "failed": "✗", "not run": "–"}


def run(gpu, source: str = GOOD, **changed) -> TaskResult:
    fixtures = {"gpu": gpu, "rng": random.Random(1)}
    return run_task(TASK, LocalStudent(names(source) | changed), gpu_tests(TASK), lambda _: fixtures)


def words(html: str) -> str:
    """What a reader sees of a page, blanks evened out."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def test_gpu_tests_come_last_and_run_where_the_others_hold():
    gpu = FakeGpu()
    result = run(gpu)
    assert [p.gpu for p in result.properties] == [False, False, True, True], "although they are written first"
    assert (result.status, result.gpu, gpu.launched) == ("passed", "passed", 2)


@pytest.mark.parametrize("changed", [{"number": lambda x: 0}, {"source": WRONG}])
def test_no_kernel_goes_to_the_gpu_unless_every_other_property_holds(changed):
    gpu = FakeGpu()
    result = run(gpu, **changed)
    assert (result.status, result.gpu, gpu.launched) == ("failed", "not run", 0)
    assert {p.problem for p in result.on_gpu} == {WAITS_FOR_CPU}


def test_a_stub_and_a_missing_name_send_nothing_either():
    def stub(x):
        raise NotImplementedError("small.1: double on a GPU")

    gpu = FakeGpu()
    missing = run_task(TASK, LocalStudent({}), gpu_tests(TASK), lambda _: {"gpu": gpu})
    assert (missing.status, missing.gpu, missing.problem != "") == ("failed", "not run", True)
    one = gpu_lesson.Task("small.1", "", 2.0, ("number",), ())
    tests = [t for t in gpu_tests(TASK) if t.name != "test_one_block"]
    stubs = run_task(one, LocalStudent({"number": stub}), tests, lambda _: {"gpu": gpu})
    assert (stubs.status, stubs.gpu) == ("not started", "not run") and gpu.launched == 0


@pytest.mark.parametrize(
    ("gpu", "verdict"),
    [(NO_GPU, "not run"), (FakeGpu(), "passed"), (FakeGpu(FAULT), "failed"), (FakeGpu(BROKEN), "not run")],
)
def test_points_and_status_are_the_same_on_every_machine(gpu, verdict):
    result = run(gpu)
    assert result.gpu == verdict
    assert (result.status, result.fraction()) == ("passed", 1.0)
    assert TaskResult.from_dict(json.loads(json.dumps(result.as_dict()))) == result


@pytest.mark.parametrize("error", [FAULT, LaunchError("too many threads"), CompileError("line 3: no")])
def test_what_the_kernel_does_wrong_is_a_failure_that_names_the_launch(error):
    first, second = run(FakeGpu(error)).on_gpu
    assert (first.status, first.because) == ("failed", str(error))
    assert first.call == "double_all<<<2, 32>>> on a GPU"
    assert second.status == "not run" and second.problem == "counts once this holds: Several blocks share the work."


def test_a_gpu_that_cannot_be_used_is_never_the_kernels_fault():
    gpu = FakeGpu(BROKEN)
    result = run(gpu)
    assert [p.problem for p in result.on_gpu] == ["the driver is gone"] * 2 and gpu.launched == 1


def test_kernels_may_be_shown_from_elsewhere_or_not_at_all():
    def shown(kernels):
        fixtures = {"gpu": Gpu("cpu"), "rng": random.Random(1)}
        return run_task(TASK, LocalStudent(names()), gpu_tests(TASK), lambda _: fixtures, lambda: kernels)

    assert shown(LocalStudent(names(WRONG))).gpu == "failed"
    unread = shown("the text could not be read")
    assert (unread.gpu, unread.on_gpu[0].problem) == ("not run", "the text could not be read")


def test_results_stored_before_there_were_gpu_tests_still_load():
    old = {"name": "f", "title": "F.", "status": "passed", "hidden": True, "weight": 1.0}
    result = TaskResult.from_dict({"task": "sizing.1", "status": "passed", "properties": [old], "problem": ""})
    assert result.gpu is None and result.fraction() == 1.0
    assert "GPU" not in Report(result, "t").text() + Report(result, "t").html() + repr(Report(result, "t"))


def test_the_report_says_both_in_text_and_html():
    report = Report(run(NO_GPU), TASK.title)
    assert report.text().splitlines() == [
        "✓ small.1 double on a GPU: passed",
        "  ✓ Every number is doubled.",
        "  ✓ The other name of the task is no kernel.",
        f"  on a GPU: – not run ({NO_GPU})",
    ]
    assert report and repr(report) == "<small.1: passed, on a GPU: not run>"
    assert words(report.html()) == " ".join(report.text().split())


def test_a_failure_on_the_gpu_is_shown_with_its_example():
    report = Report(run(Gpu("cpu"), FIRST_BLOCK), TASK.title)
    lines = report.text().splitlines()
    assert lines[0] == "✓ small.1 double on a GPU: passed" and not report
    assert "  on a GPU: ✗ failed: 0 of 2 properties hold" in lines
    assert "    ✗ Several blocks share the work." in lines and "blockIdx counts the blocks" in report.text()
    html = words(report.html())
    assert "on a GPU: ✗ failed: 0 of 2 properties hold ✗ Several blocks share the work." in html
    assert "blockIdx counts the blocks" in html and "Stuck?" not in report.text()


def test_a_pass_on_the_gpu_lists_its_properties():
    text = Report(run(FakeGpu()), TASK.title).text()
    assert text.endswith(
        "  on a GPU: ✓ passed\n    ✓ Several blocks share the work.\n    ✓ Nothing behind the end is written."
    )


def test_failed_counts_are_those_of_the_cpu():
    report = Report(run(NO_GPU, WRONG), TASK.title)
    assert report.headline == "small.1 double on a GPU: failed: 1 of 2 properties hold"
    assert f"on a GPU: – not run ({WAITS_FOR_CPU})" in report.text()


@pytest.mark.parametrize(("gpu", "verdict"), [(NO_GPU, "not run"), (FakeGpu(FAULT), "failed"), (Gpu("cpu"), "passed")])
def test_check_and_progress_show_the_gpu_beside_the_cpu(own_record, capsys, monkeypatch, gpu, verdict):
    monkeypatch.setattr(api, "tests_of", gpu_lesson.public_tests)
    monkeypatch.setattr(check_gpu, "gpu_here", lambda: gpu)
    report = kvcourse.check("sizing.1", **names(), kv_bytes_per_token=print)
    kvcourse.progress()
    out = capsys.readouterr().out
    assert "✓ sizing.1 bytes per token: passed" in out and f"on a GPU: {SIGN[verdict]} {verdict}" in out
    line = next(line for line in out.splitlines() if "checks, 0 hints" in line and "sizing.1" in line)
    assert "✓" in line and line.endswith(f"1 checks, 0 hints, on a GPU: {verdict}")
    stored = json.loads(own_record.read_text())["sizing.1"]
    assert (stored["status"], stored["gpu"], bool(report)) == ("passed", verdict, verdict != "failed")


def test_a_lesson_without_kernels_needs_no_torch():
    code = "import sys, kvcourse; kvcourse.check('sizing.1', kv_bytes_per_token=int); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_launches_copy_their_tensors_and_come_back():
    x, out = torch.arange(6.0), torch.zeros(6)
    after = Gpu("cpu").launch(GOOD, "double_all", None, (1,), [32], [Slice(out, 0), x.view(2, 3).T, 6])
    assert after[0].tolist() == [0, 6, 2, 8, 4, 10] and after[1].shape == (3, 2) and after[2] is None
    assert out.tolist() == [0.0] * 6
    with pytest.raises(LaunchError, match="n is a int, got a tensor"):
        Gpu("cpu").launch(GOOD, "double_all", None, 1, 32, [out, x, x])


def test_what_is_to_blame_is_told_apart(monkeypatch):
    def says(error):
        def launch(*_, **__):
            raise error

        monkeypatch.setattr(Kernel, "launch", launch)
        gpu = Gpu("cuda")
        monkeypatch.setattr(gpu, "_copy", lambda argument: argument)
        with pytest.raises((GpuUnavailable, KernelError, CompileError)) as caught:
            gpu.launch(GOOD, "double_all", None, 1, 1, [])
        return caught.type

    assert says(KernelError("k failed on the GPU: CUDA_ERROR_ILLEGAL_ADDRESS: an address")) is KernelError
    assert says(KernelError("k failed on the GPU: CUDA_ERROR_ECC_UNCORRECTABLE: memory")) is GpuUnavailable
    assert says(NoCompilerError("NVIDIA's compiler is not there")) is GpuUnavailable
    assert says(CompileError("line 1: no")) is CompileError
    assert says(RuntimeError("CUDA error: an illegal memory access")) is GpuUnavailable
    assert says(torch.OutOfMemoryError("CUDA out of memory")) is GpuUnavailable


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_reason_is_given():
    assert gpu_here() == NO_GPU
