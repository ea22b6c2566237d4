"""Grading CUDA kernels: right ones earn points, wrong ones are told their line, hostile ones gain and reach nothing."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_kernels import HOSTILE
from kernel_lesson import FULL, LESSON, MAGIC, OTHERS, RIGHT, SCALE, STUB, grade, notebook, points
from need_sandbox import need_level_2

from autograde import kernels
from autograde.grade import InfrastructureFault, Limits, grade_notebook
from autograde.kernels import kernel_limits, kernel_sandbox
from autograde.sandbox import protection_level
from kvcourse.cuda import CompileError, Kernel, KernelError, Slice
from kvcourse.cuda.cpu import compile as cpu_compile
from kvcourse.cuda.cpu import worker
from kvcourse.cuda.cpu.limits import Budget, default_limits
from kvcourse.tasks.api import Test, task
from kvcourse.tasks.course import Task
from kvcourse.tasks.kernel_kit import source_of


@pytest.mark.parametrize("level", ["L1", "L2"])
def test_right_kernels_earn_everything_and_leave_no_process(level):
    if level == "L2":
        need_level_2()
    before = default_limits()
    graded = grade(level=level)
    assert points(graded) == FULL and graded.notes == [], graded.tasks
    assert default_limits() == before and not worker._workers


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        f"from kvcourse.cuda import Kernel\nscale = Kernel({SCALE!r}, 'scale')",
        f"scale = {SCALE!r}",
        f"%%cuda scale -t float\n{SCALE}\n",
        f"%%cuda scale\n\n{SCALE.replace('scale(', 'scale (')}",
        MAGIC + SCALE.replace("\n", "\r\n"),
        MAGIC + "// a comment: größer\n" + SCALE,
    ],
    ids=["Kernel", "text", "other magic", "no template", "windows", "comment"],
)
def test_a_kernel_may_be_written_in_several_ways(cell):
    need_level_2()
    assert points(grade(scales_1=cell)) == FULL


def test_nothing_is_compiled_in_the_sandbox_and_the_text_arrives_as_it_was():
    need_level_2()
    seen = {}

    @task("scales.1")
    def test_look(student):
        """Looks."""
        seen["text"], seen["line"] = source_of(student, "scale")
        seen["rest"] = (student.scale.name, student.scale.template)

    def tests(about: Task) -> list[Test]:
        return [test_look.kvcourse_test] if about.name == "scales.1" else []

    nb = notebook("import os\nos.environ['PATH'] = ''")
    graded = grade_notebook(nb, LESSON, student_id="a", seed=b"", level="L2", tests=tests, solution=dict, release=nb)
    assert seen == {"text": SCALE + "\n", "line": 2, "rest": ("scale", "float")}
    assert graded.outputs["scales-1-code"] == []


def test_a_wrong_kernel_is_told_its_line_in_the_cell():
    need_level_2()
    graded = grade(scales_1=MAGIC + SCALE.replace("if (i < n) ", ""))
    first, second, _ = graded.tasks["scales.1"].properties
    assert (first.status, second.status) == ("passed", "failed")
    assert "line 5: out of bounds: thread" in second.got and "out[i] = (T)(a * (float)x[i]);" in second.got
    assert points(graded) == OTHERS | {"scales.1": pytest.approx(4 / 3)}
    graded = grade(scales_1=MAGIC + SCALE.replace("(T)(a", "(T)(2 * a"))
    assert points(graded) == OTHERS and "out[0]" in graded.tasks["scales.1"].properties[0].expected
    graded = grade(scales_1=MAGIC + SCALE.replace("if (i < n)", "if (j < n)"))
    assert "line 5" in graded.tasks["scales.1"].properties[0].got and points(graded) == OTHERS


def test_a_stub_is_not_started():
    need_level_2()
    graded = grade(scales_1=MAGIC + STUB)
    assert graded.tasks["scales.1"].status == "not started" and points(graded) == OTHERS


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (
            MAGIC.replace("scale", "scales") + SCALE,
            "scales.1 needs scale, which is not defined; there is scales: re",
        ),
        (
            '%%cuda scale --template "float\n' + SCALE,
            "cell of scales.1 stopped with CompileError: A quotation mark",
        ),
        ("scale = Kernl()", "The cell of scales.1 stopped with NameError"),
    ],
)
def test_a_missing_kernel_is_explained(cell, words):
    need_level_2()
    graded = grade(scales_1=cell)
    assert words in graded.tasks["scales.1"].problem and points(graded) == OTHERS


@pytest.mark.slow
@pytest.mark.parametrize("title", HOSTILE)
def test_a_hostile_kernel_earns_nothing_and_harms_nobody(title):
    need_level_2()
    graded = grade(scales_1=MAGIC + HOSTILE[title], limits=Limits(kernel_seconds=8.0))
    assert points(graded) == OTHERS, graded.tasks["scales.1"]
    told = str(graded.tasks) + str(graded.outputs)
    assert "root:" not in told and str(Path(kernels.__file__).parents[1]) not in told
    assert len(told) < 300_000 and not worker._workers


def test_a_kernel_that_prints_without_end_is_only_loud(capfd):
    need_level_2()
    graded = grade(scales_1=MAGIC + SCALE.replace(RIGHT, f'for (int k = 0; k < 500; k++) printf("%d ", k); {RIGHT}'))
    assert points(graded) == FULL and len(str(graded.tasks)) < 10_000
    assert len("".join(capfd.readouterr())) < 100_000


@pytest.mark.slow
@pytest.mark.slow
def test_an_endless_kernel_uses_up_its_own_time_only():
    need_level_2()
    loop = SCALE.replace(RIGHT, f"while (n > 0) {{}} {RIGHT}")
    graded = grade(scales_1=MAGIC + loop, limits=Limits(kernel_seconds=1.0))
    first, *rest = graded.tasks["scales.1"].properties
    assert "line 5: time limit" in first.got
    assert all("was used up by the launches before it" in one.got for one in rest)
    assert points(graded) == OTHERS and not worker._workers


def test_a_compiler_that_does_not_end_uses_up_the_same_time():
    need_level_2()
    slow = "constexpr __device__ long f(long n) { long s = 0; for (long i = 0; i < n; i++) s += i % 7; return s; }\n"
    text = slow + SCALE.replace(RIGHT, f"constexpr long c = f(33000000); {RIGHT} out[0] = c;")
    graded = grade(scales_1=MAGIC + text, limits=Limits(kernel_seconds=2.0))
    assert points(graded) == OTHERS
    assert {p.status for p in graded.tasks["scales.1"].properties} == {"failed"}


@pytest.mark.parametrize(
    "source",
    [
        "class K:\n    source, first_line = 7, 1\nscale = K()",
        "class K:\n    @property\n    def source(self): raise SystemExit\nscale = K()",
        f"class K:\n    source, first_line = {SCALE.replace('a *', '7 *')!r}, -5\nscale = K()",
        "class K:\n    def __getattr__(self, name): return self\nscale = K()",
        "import kvcourse.cuda.kernel as k\nk.Kernel.source = 'x' * 10**7\nscale = k.Kernel('', 'scale')",
        "scale = print",
        "scale = 3",
    ],
)
def test_what_is_no_kernel_is_a_failure(source):
    need_level_2()
    graded = grade(scales_1=source)
    assert points(graded) == OTHERS and graded.tasks["scales.1"].status == "failed"


def test_cells_cannot_reach_the_kernels_that_are_judged():
    """The cache of kernels is not in the sandbox of the cells, so nothing can be planted where a hash is looked up."""
    need_level_2()
    cache = cpu_compile.cache_folder()
    cell = f"import os\nos.makedirs({str(cache)!r}, exist_ok=True)\nprint(os.listdir({str(cache)!r}))"
    graded = grade(cell, "from kvcourse.cuda.cpu.compile import cache_folder\nprint(list(cache_folder().glob('*')))")
    assert points(graded) == FULL and str(graded.outputs).count("kernel") == 0
    assert graded.outputs["extra-0"][0].ename in ("OSError", "PermissionError", "FileNotFoundError")


def in_the_sandbox(prefix: tuple[str, ...], script: str) -> subprocess.CompletedProcess:
    return subprocess.run([*prefix, "/bin/sh", "-c", script], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("which", ["prefix", "compile_prefix"])
def test_compiler_and_kernel_see_nothing_of_the_course(which, tmp_path, monkeypatch):
    need_level_2()
    monkeypatch.setenv("KVCOURSE_TEST_SECRET", "open sesame")
    prefix = getattr(kernel_limits(protection_level(), Limits()), which)
    project = Path(kernels.__file__).parents[1]
    for folder in (project / "solutions", project / "autograde", project / "kvcourse" / "tasks", tmp_path):
        assert folder.is_dir() and in_the_sandbox(prefix, f"ls {folder}").returncode, folder
    assert in_the_sandbox(prefix, f"ls {project}/kvcourse/cuda/kernels").stdout == ""
    for file in (path for path in Path.home().iterdir() if path.is_file()):
        assert in_the_sandbox(prefix, f"test -e '{file}'").returncode, file
    seen = in_the_sandbox(prefix, "env; cat /etc/passwd /etc/shadow").stdout
    assert "sesame" not in seen and "root:" not in seen
    for folder in ("/", "/usr", "/proc/sys/kernel", str(Path.home()), str(project), str(tmp_path)):
        in_the_sandbox(prefix, f"touch {folder}/planted")  # below /tmp it may write, to a folder of its own in memory
        assert not (Path(folder) / "planted").exists(), folder
    assert in_the_sandbox(prefix, f"kill -0 {os.getpid()}").returncode  # another pid namespace
    network = in_the_sandbox(prefix, "cat /proc/net/dev").stdout.splitlines()[2:]
    assert [line.split(":")[0].strip() for line in network] == ["lo"]


def test_only_the_compiler_writes_the_cache():
    need_level_2()
    limits, cache = kernel_limits(protection_level(), Limits()), cpu_compile.cache_folder()
    assert in_the_sandbox(limits.prefix, f"ls {cache}").returncode == 0
    assert in_the_sandbox(limits.prefix, f"touch {cache}/planted").returncode
    mark = cache / f"mark-{os.getpid()}"
    assert in_the_sandbox(limits.compile_prefix, f"touch {mark} && rm {mark}").returncode == 0


def test_at_level_1_there_are_limits_but_no_sandbox():
    limits = kernel_limits(replace(protection_level(), level="L1"), Limits())
    assert limits.prefix == limits.compile_prefix == () and limits.memory == Limits().memory


def test_a_huge_array_can_be_launched_in_the_sandbox():
    need_level_2()
    source = "__global__ void k(float* x, long long at) { x[at + threadIdx.x] = 1.0f; }"
    with kernel_sandbox(protection_level(), Limits()):
        out = torch.zeros(32)
        assert Kernel(source, "k").check(1, 32, Slice(out, 2**40), 2**40) and out.sum() == 32


def test_a_machine_without_a_compiler_is_no_zero(monkeypatch):
    def missing() -> Any:
        raise CompileError("There is no C++ compiler on this machine.")

    monkeypatch.setattr(cpu_compile, "find_compiler", missing)
    kernels._try.cache_clear()
    with pytest.raises(InfrastructureFault, match=r"No CUDA kernel can be run here: There is no C\+\+ compiler"):
        grade(level=protection_level().level)


def test_a_budget_pays_for_launches_and_compilations():
    budget = Budget(0.0)
    limits = replace(default_limits(), budget=budget)
    source = f"__global__ void k(float* x) {{ x[threadIdx.x] = {time.time_ns() % 10**6}.0f; }}"
    with pytest.raises(KernelError, match="was used up"):
        Kernel(source, "k", limits=limits).compile()
    budget.left = 50.0
    kernel, out = Kernel(source, "k", limits=limits), torch.zeros(32)
    kernel.launch(1, 32, out)
    assert 0 < budget.left < 50
    budget.left = 0.0
    with pytest.raises(KernelError, match="was used up"):
        kernel.launch(1, 32, out)
