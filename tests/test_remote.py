"""Calls into the student's kernel: values both ways, errors, hangs and deaths, each costing one property only."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch

from autograde import submission as submissions
from autograde.limits import Limits
from autograde.remote import ENDED, USED_UP, Link, RemoteStudent
from autograde.sandbox import Sandbox, protection_level
from autograde.submission import Cell, Submission
from kvcourse.tasks.api import Interrupted, NotStarted, StudentError

LIMITS = Limits(call_seconds=1.0, task_seconds=1000.0)
CODE = """
import os, time, threading, dataclasses, collections
import numpy as np, torch
state = {"count": 0}
Pair = collections.namedtuple("Pair", "left right")
def same(x): return x
def count():
    state["count"] += 1
    return state["count"]
def fill(box, value):
    box[:] = [value] * len(box) if isinstance(box, list) else value
def scalar(): return np.float64(1.5), np.int64(3), np.bool_(True)
def pair(): return Pair(1, [2, 3])
def hang():
    while True: time.sleep(0.01)
def die(): os._exit(3)
def crash(): os.abort()
def stub(): raise NotImplementedError("small.1: to do")
def wrong():
    x = 1
    raise KeyError("no such block")
def leave(): raise SystemExit(3)
def noisy():
    print("a" * 10**6, flush=True)
    display("b")
    os.write(1, b"c" * 10**6)
    return 1
def layers(config): return config.num_hidden_layers, type(config).__name__
def big(): return "x" * 20_000_000
class Box:
    size = 3
    def __init__(self, items): self.items = items
    def add(self, item):
        self.items.append(item)
        return len(self.items)
    def __len__(self): return len(self.items)
    def __getitem__(self, i): return self.items[i]
def total(box): return sum(box.items)
"""


@pytest.fixture(scope="module")
def remote():
    with Sandbox(protection_level(), LIMITS) as box:
        run = Submission([Cell(1, "code", "", CODE)], box, LIMITS)
        run.start()
        run.kernel.wait_ready()
        run.run_cells()
        assert run.ends[0].status == "ok", run.outputs
        yield RemoteStudent(Link(run.serve(), run.alive, run.serve_again), LIMITS)
        run.close()


@pytest.fixture
def student(remote):
    with remote.session() as view:
        yield view


def test_names_are_listed_without_private_ones(remote):
    names = remote.names()
    assert {"same", "Box", "fill"} <= set(names) and not [name for name in names if name.startswith("_")]


NUMBERS = [True, 0, -(2**70), 1.5, -0.0, math.inf]


@pytest.mark.parametrize(
    "value", [None, *NUMBERS, "ü\ud800", b"\0\xff", [1, [2, (3, "a")]], {"a": {1: None}}, {1, 2}, range(3)]
)
def test_plain_values_come_back_as_they_went(student, value):
    got = student.same(value)
    assert got == value and type(got) is type(value)


def test_arrays_and_tensors_come_back_bit_for_bit(student):
    array, tensor = np.arange(6, dtype=np.int16).reshape(2, 3), torch.randn(3, 2).to(torch.bfloat16)
    got, back = student.same(array), student.same(tensor)
    assert got.dtype == array.dtype and (got == array).all()
    assert back.dtype == torch.bfloat16 and torch.equal(back, tensor)


def test_numpy_scalars_and_records_arrive_as_plain_values(student):
    assert [type(x) for x in student.scalar()] == [float, int, bool]
    assert student.pair().right == [2, 3] and student.pair() == (1, [2, 3])


def test_changes_in_place_are_seen(student):
    for box in ([0, 0], np.zeros(2), torch.zeros(2)):
        student.fill(box, 7)
        assert list(map(float, box)) == [7.0, 7.0]


def test_objects_stay_there_and_answer(student):
    box = student.Box([1, 2])
    assert box.add(5) == 3 and len(box) == 3 and box[2] == 5 and box.size == 3 and box.items == [1, 2, 5]
    assert student.total(box) == 8
    with pytest.raises(TypeError, match="compare values"):
        assert box == 3


def test_errors_come_with_kind_message_and_line(student):
    with pytest.raises(StudentError, match="no such block") as caught:
        student.wrong()
    assert caught.value.kind == "KeyError" and caught.value.line == CODE.strip().split("\n").index("    x = 1") + 2
    with pytest.raises(StudentError, match="SystemExit"):
        student.leave()
    with pytest.raises(NotStarted):
        student.stub()
    with pytest.raises(StudentError, match="missing is not defined"):
        student.missing(1)
    with pytest.raises(StudentError, match="larger than"):
        student.big()


def test_every_session_starts_from_the_notebook_s_state(remote):
    for _ in range(2):
        with remote.session() as view:
            assert [view.count(), view.count()] == [1, 2]


def test_printing_costs_nothing(student):
    began = time.monotonic()
    assert student.noisy() == 1 and time.monotonic() - began < 1


def test_a_hang_costs_one_property(remote):
    with remote.session() as view, pytest.raises(Interrupted, match="No answer after 1 s"):
        view.hang()
    with remote.session() as view:
        assert view.same(1) == 1


@pytest.mark.parametrize("name", ["die", "crash"])
def test_the_end_of_the_process_costs_one_property(remote, name):
    with remote.session() as view:
        with pytest.raises(Interrupted) as caught:
            getattr(view, name)()
        assert str(caught.value) == ENDED
        with pytest.raises(Interrupted):
            view.same(1)
    with remote.session() as view:
        assert view.same(1) == 1


@pytest.mark.slow
def test_configs_are_rebuilt_there(remote):
    from transformers import LlamaConfig, MistralConfig

    with remote.session() as view:
        assert view.layers(LlamaConfig(num_hidden_layers=3)) == (3, "LlamaConfig")
        assert view.layers(MistralConfig(num_hidden_layers=5)) == (5, "MistralConfig")
    with remote.session() as view:
        assert view.layers(MistralConfig(num_hidden_layers=7)) == (7, "MistralConfig")


def test_the_time_of_a_task_is_limited(remote):
    task = RemoteStudent(remote.link, Limits(call_seconds=1.0, task_seconds=1.5))
    for _ in range(2):
        with task.session() as view, pytest.raises(Interrupted, match="No answer"):
            view.hang()
    with task.session() as view, pytest.raises(Interrupted, match=USED_UP):
        view.same(1)


@pytest.mark.slow
def test_a_kernel_that_cannot_fork_answers_itself_and_is_replaced_after_a_hang(monkeypatch):
    monkeypatch.setattr(submissions, "CALL", "\nserve(control, names, False)\n")
    limits = Limits(call_seconds=0.3)
    code = "state = []\ndef count():\n    state.append(1)\n    return len(state)\ndef hang():\n    while True: pass"
    with Sandbox(protection_level(), limits) as box:
        run = Submission([Cell(1, "code", "", code)], box, limits)
        run.start()
        run.kernel.wait_ready()
        run.run_cells()
        remote = RemoteStudent(Link(run.serve(), run.alive, run.serve_again, 1.0), limits)
        for want in (1, 2):
            with remote.session() as view:
                assert view.count() == want
        with remote.session() as view, pytest.raises(Interrupted):
            view.hang()
        with remote.session() as view:
            assert view.count() == 1
        run.close()
