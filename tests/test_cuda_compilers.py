"""What is counted and found depends on the source alone: g++, clang++ and ziglang agree to the last number."""

from __future__ import annotations

import importlib.util
import shutil
import sys

import cuda_cases
import pytest
from cuda_broken import BROKEN, Pair

from kvcourse.cuda import Kernel
from kvcourse.cuda.cpu.limits import Limits
from kvcourse.cuda.cpu.report import Report

OTHERS = {
    "clang++": ("clang++", shutil.which("clang++") is not None),
    "ziglang": (f"{sys.executable} -m ziglang c++", importlib.util.find_spec("ziglang") is not None),
}


def compiler_or_skip(name: str) -> str:
    command, there = OTHERS[name]
    if not there:
        pytest.skip(f"{name} is not installed")
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return command


def everything(report: Report) -> tuple:
    lines = [(c.line, c.kind, c.shared, c.bytes_each, c.requests, c.sectors, c.waves) for c in report.lines]
    return report.counters.as_dict(), lines, [(f.kind, f.line, f.thread, f.block) for f in report.faults]


@pytest.mark.parametrize("name", cuda_cases.CASES)
@pytest.mark.parametrize("other", [pytest.param("clang++"), pytest.param("ziglang", marks=pytest.mark.slow)])
def test_counters_are_the_same_line_by_line(name, other, monkeypatch):
    command = compiler_or_skip(other)
    reports = []
    for compiler in ("g++", command):
        monkeypatch.setenv("CXX", compiler)
        reports.append(everything(cuda_cases.CASES[name].check()))
    assert reports[0] == reports[1]


@pytest.mark.slow
@pytest.mark.parametrize("pair", [p for p in BROKEN if p.kind != "time-limit"], ids=lambda pair: pair.name)
@pytest.mark.parametrize("other", OTHERS)
def test_mistakes_are_named_alike(pair: Pair, other, monkeypatch):
    monkeypatch.setenv("CXX", compiler_or_skip(other))
    shared = pair.shared if pair.broken_shared is None else pair.broken_shared
    broken = Kernel(pair.wrong, "k", limits=Limits(seconds=1.0))
    report = broken.check(pair.grid, pair.block, *pair.arguments(), shared=shared, empty=pair.empty)
    fault = (report.notes if pair.note else report.faults)[0]
    assert (fault.kind, fault.line) == (pair.kind, pair.line) or pair.line in (fault.line, fault.other_line), report
    right = Kernel(pair.right, "k").check(
        pair.grid, pair.block, *pair.arguments(), shared=pair.shared, empty=pair.empty
    )
    assert right and not right.notes, right


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS)
def test_every_construct_is_counted_alike(other, monkeypatch):
    import torch
    from test_cuda_constructs import CONSTRUCTS

    command = compiler_or_skip(other)
    different = []
    for name, (source, template, _) in CONSTRUCTS.items():
        counts = []
        for compiler in ("g++", command):
            monkeypatch.setenv("CXX", compiler)
            block = (4, 2, 4) if name == "three dimensions" else 32
            counts.append(
                Kernel(source, "k", template).check(1, block, torch.zeros(32), shared=2048).counters.as_dict()
            )
        if counts[0] != counts[1]:
            different.append(
                (name, {key: (counts[0][key], counts[1][key]) for key in counts[0] if counts[0][key] != counts[1][key]})
            )
    assert not different
