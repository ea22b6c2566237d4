"""The cell magic, and the pictures of a report."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import cuda_cases
import pytest
import torch
from cuda_broken import BROKEN

from kvcourse.cuda import CompileError, Kernel, LaunchError, ready
from kvcourse.cuda import magic as magic_module
from kvcourse.cuda.errors import NoCompilerError
from kvcourse.cuda.magic import define

CELL = 'extern "C" __global__ void twice(float* x) {\n  x[threadIdx.x] *= 2.0f;\n}\n'


def test_a_cell_becomes_a_kernel_that_is_compiled_at_once(capsys):
    names = {}
    define("twice", CELL, names)
    assert capsys.readouterr().out == "twice(float* x) compiles\n"
    x = torch.ones(8)
    names["twice"].launch(1, 8, x)
    assert x.tolist() == [2.0] * 8
    assert names["twice"].source == CELL


def test_lines_are_those_of_the_cell(capsys):
    names = {}
    define("twice", CELL.replace("x[threadIdx.x] *=", "y[threadIdx.x] *="), names)
    assert "line 3: " in capsys.readouterr().err
    define("twice", CELL.replace("threadIdx.x", "threadIdx.x + 1"), names)
    report = names["twice"].check(1, 8, torch.ones(8))
    assert report.faults[0].line == 3 and "x[threadIdx.x + 1]" in report.text()


def test_a_stub_is_kept_as_text_and_said_to_be_not_started(capsys):
    names = {}
    define("write_kv", '__global__ void write_kv(float* pool) {\n#error "chunked.3: write keys and values"\n}\n', names)
    assert "write_kv: not started (chunked.3: write keys and values)" in capsys.readouterr().out
    with pytest.raises(NotImplementedError, match=r"chunked\.3"):
        names["write_kv"].launch(1, 1, torch.zeros(1))
    assert "#error" in names["write_kv"].source


def test_a_source_that_does_not_compile_is_kept(capsys):
    names = {}
    define("twice", "int main() {}\n" + CELL, names)
    assert "host function" in capsys.readouterr().err
    with pytest.raises(CompileError, match="host function"):
        names["twice"].check(1, 1, torch.zeros(1))


def test_templates_and_several_kernels_in_a_cell(capsys):
    names = {}
    cell = "template <int N> __global__ void fill(float* x) { x[threadIdx.x] = N; }\n"
    define('fill --template "7"', cell, names)
    x = torch.zeros(4)
    names["fill"].launch(1, 4, x)
    assert x.tolist() == [7.0] * 4
    define("twice thrice", CELL + CELL.replace("twice", "thrice").replace("2.0f", "3.0f"), names)
    names["thrice"].launch(1, 4, x)
    assert x.tolist() == [21.0] * 4


@pytest.mark.parametrize("line", ["", "my kernel!", "a --template"])
def test_a_magic_without_a_name_says_how_to_write_it(line):
    with pytest.raises(CompileError, match="write %%cuda name"):
        define(line, CELL, {})
    with pytest.raises(CompileError, match="quotation mark is not closed"):
        define('a --template "float', CELL, {})


def test_where_only_text_is_wanted_nothing_is_compiled(monkeypatch, capsys):
    monkeypatch.setenv(magic_module.TEXT_ONLY, "1")
    names = {}
    define("twice", "this is no C++", names)
    assert names["twice"].source == "this is no C++" and capsys.readouterr() == ("", "")


def test_the_magic_registers_with_ipython():
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    shell = interactive.InteractiveShell.instance()
    try:
        shell.run_line_magic("load_ext", "kvcourse.cuda")
        shell.run_cell("%%cuda twice\n" + CELL)
        assert isinstance(shell.user_ns["twice"], Kernel)
    finally:
        interactive.InteractiveShell.clear_instance()


def test_sectors_are_drawn_with_the_finding_as_title():
    figure = cuda_cases.CASES["transpose_naive"].check().plot_sectors()
    assert figure.axes[0].get_title(loc="left") == "Line 6 stores 32 sectors a request: 4 would do"
    table = figure.axes[0].images[0].get_array()
    assert table.shape[0] == 8 and table.max() == 4  # bytes used of each sector
    clean = cuda_cases.CASES["vector_add"].check().plot_sectors()
    assert "none is wasted" in clean.axes[0].get_title(loc="left")


def test_banks_are_drawn_for_the_worst_line():
    worst = cuda_cases.CASES["transpose_tiled"].check().plot_banks().axes[0]
    heights = sorted(bar.get_height() for bar in worst.patches)
    assert heights == [0] * 31 + [32] and "32 turns" in worst.get_title(loc="left")
    padded = cuda_cases.CASES["transpose_padded"].check().plot_banks().axes[0]
    assert "no bank has to answer twice" in padded.get_title(loc="left")


def test_a_race_is_drawn_as_two_threads_at_one_address():
    pair = next(p for p in BROKEN if p.name == "missing barrier after the load")
    report = Kernel(pair.wrong, "k").check(pair.grid, pair.block, *pair.arguments())
    texts = " ".join(text.get_text() for text in report.plot_race().axes[0].texts)
    assert (
        "thread (32, 0, 0)" in texts and "thread (0, 0, 0)" in texts and "part\nbyte 128" in texts and "line 6" in texts
    )


def test_there_is_a_sentence_where_there_is_nothing_to_draw():
    report = cuda_cases.CASES["vector_add"].check()
    for draw in (report.plot_banks, report.plot_race, lambda: report.plot_sectors(line=99)):
        with pytest.raises(LaunchError):
            draw()


# --- a GPU that kernels cannot run on yet


@pytest.fixture
def gpu_without_packages(monkeypatch):
    """torch sees a GPU with CUDA 12, NVIDIA's Python packages are missing; gives what pip is asked for."""
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(ready, "NEEDED", ("kvcourse_has.no_such_module",))
    monkeypatch.setattr(
        ready.subprocess, "run", lambda command, check: asked.append(command[-2:]) or SimpleNamespace(returncode=0)
    )
    return asked


def test_what_a_gpu_needs_is_one_sentence(gpu_without_packages, capsys):
    ready.prepare_gpu()
    out = capsys.readouterr().out
    assert '%pip install "cuda-core>=1.0,<2" "cuda-bindings==12.*", then restart' in out and "run on the CPU" in out
    assert gpu_without_packages == []


def test_on_colab_it_is_installed(gpu_without_packages, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace())
    ready.prepare_gpu()
    assert gpu_without_packages == [["cuda-core>=1.0,<2", "cuda-bindings==12.*"]]
    assert "Kernels run on the GPU" in capsys.readouterr().out


def test_nothing_is_said_without_a_gpu_or_when_all_is_there(gpu_without_packages, capsys, monkeypatch):
    monkeypatch.setattr(ready, "NEEDED", ("json.decoder",))
    ready.prepare_gpu()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ready.prepare_gpu()
    assert capsys.readouterr().out == "" and gpu_without_packages == []


def test_a_cell_compiles_for_the_cpu_when_the_gpu_cannot_be_used(capsys, monkeypatch):
    def no_compiler(self, device=None):
        raise NoCompilerError("NVIDIA's compiler is not there")

    monkeypatch.setattr("kvcourse.cuda.kernel._has_gpu", lambda: True)
    monkeypatch.setattr("kvcourse.cuda.gpu.GpuKernel.compile", no_compiler)
    define("twice", CELL, {})
    assert capsys.readouterr().out == "twice(float* x) compiles\n"
