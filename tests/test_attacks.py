"""Hostile notebooks earn nothing, end in time and leave nothing behind; honest tasks in them keep their points."""

from __future__ import annotations

import os
import resource
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from need_sandbox import need_level_2
from read_attacks import Attack, read_attacks
from small_lesson import CODE, LESSON, notebook, points, small_tests, solution

from autograde.grade import Graded, Limits, grade_notebook

SECONDS = 30.0
MOST_MEMORY = 2_500_000  # KiB of this process, whatever it was sent
FORBIDDEN = (
    "SECRET",
    "FOUND",
    "NOTEBOOKS ['",
    "SENT",
    "WROTE",
    "TOOK IT",
    "USER NAMESPACE",
    "MOUNT",
    "ROOT",
    "ModuleSpec",
)
STUB = "def {0}(*args, **kwargs):\n    raise NotImplementedError('{1}: to do')"
PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture
def course(tmp_path):
    """A course folder with everything an attacker would like to reach, and a listener that hears what gets out."""
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "small.py").write_text("\n".join(CODE.values()))
    (tmp_path / "hidden.ipynb").write_text("SECRET")
    (tmp_path / "submitted" / "bob").mkdir(parents=True)
    (tmp_path / "submitted" / "bob" / "small.ipynb").write_text("{}")
    (tmp_path / "config.py").write_text("")
    with sqlite3.connect(tmp_path / "gradebook.db") as book:
        book.execute("create table grade (score)")
        book.execute("insert into grade values (0)")
    book.close()
    return tmp_path


@pytest.fixture
def heard(course):
    """What arrived on a TCP port and on a unix socket of this machine."""
    received: list[bytes] = []
    tcp, unix = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    unix.bind(str(course / "listen"))
    unix.listen()
    for server in (tcp, unix):
        threading.Thread(target=listen, args=(server, received), daemon=True).start()
    yield tcp.getsockname()[1], received
    tcp.close()
    unix.close()


def listen(server: socket.socket, received: list[bytes]) -> None:
    while True:
        try:
            connection, _ = server.accept()
            received.append(connection.recv(100))
        except OSError:
            return


def run(attack: Attack, course: Path, port: int = 1) -> Graded:
    stubs = {task.name: STUB.format(task.names[0], task.name) for task in LESSON.tasks}
    code = stubs | attack.code | {name: CODE[name] for name in attack.honest}
    nb = notebook(f"COURSE, PROJECT, PORT = {str(course)!r}, {str(PROJECT)!r}, {port}", *attack.cells, code=code)
    for cell in nb.cells:
        cell.metadata["tags"] = list(attack.tags)
    files = course / "submitted" / "eve"
    for name, text in attack.files.items():
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(text)
    return grade_notebook(
        nb, LESSON, student_id="eve", seed=b"secret", limits=replace(Limits(), **attack.limits), level="L2",
        files=files if attack.files else None, tests=small_tests, solution=solution, release=nb,
    )  # fmt: skip


def parameters() -> list:
    return [pytest.param(a, id=a.name, marks=[pytest.mark.slow] if a.slow else []) for a in read_attacks()]


@pytest.mark.parametrize("attack", parameters())
def test_attack_gains_nothing(attack, course, heard):
    need_level_2()
    before, folders = snapshot(course), kvgrade_folders()
    began = time.monotonic()
    graded = run(attack, course, heard[0])
    took = time.monotonic() - began
    text = str(graded.outputs)
    assert points(graded) == sum(task.points for task in LESSON.tasks if task.name in attack.honest), graded.tasks
    own = [output for cell, kept in graded.outputs.items() if "extra" in cell for output in kept]
    stops = {output.ename for output in own if output.output_type == "error"}
    assert stops <= {attack.stops}, f"the attack itself is broken: {stops}"
    assert took < SECONDS and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MOST_MEMORY
    assert not [word for word in FORBIDDEN if word in text], text[:3000]
    assert len(text) < 2_500_000
    assert heard[1] == []
    if "later" in attack.name or "at_exit" in attack.name:
        time.sleep(1.2)  # it would write now
    assert snapshot(course) == before
    assert kvgrade_folders() == folders and not running(f"98765.{heard[0]}")


def snapshot(course: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(course.rglob("*")) if p.is_file() and "eve" not in p.parts}


def kvgrade_folders() -> set[Path]:
    """Work folders of this process."""
    return set(Path(tempfile.gettempdir()).glob(f"kvgrade-{os.getpid()}-*"))


def running(word: str) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if word in line]
