"""The sandbox: what it shows, what it forbids, what is left afterwards, and what is said where it cannot work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from need_sandbox import need_level_2

from autograde import kernel, mounts, sandbox
from autograde.cgroup import Cgroup
from autograde.kernel import Kernel
from autograde.limits import InfrastructureFault, Limits
from autograde.outputs import Outputs
from autograde.sandbox import Sandbox, protection_level

LOOK = """
import json, os, socket, sys
def can_write(path):
    try:
        open(path, "a").close()
        return True
    except OSError:
        return False
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "uid": os.getuid(), "caps": status["CapEff"].strip(), "env": dict(os.environ), "root": sorted(os.listdir("/")),
    "course": os.listdir("/course"), "processes": [p for p in os.listdir("/proc") if p.isdigit()],
    "interfaces": [name for _, name in socket.if_nameindex()], "cwd": os.getcwd(), "path": sys.path,
    "written": [p for p in ("/x", "/dev/x", "/etc/passwd", "/course/kvcourse/__init__.py", "/usr/x", sys.prefix + "/x",
                            "/proc/sys/kernel/core_pattern") if can_write(p)],
}))
"""


def look(box: Sandbox, code: str = LOOK) -> str:
    process = box.start([sys.executable, "-P", "-c", code], {})
    try:
        process.wait(30)
    finally:
        box.end(process)
    return (box.folder / "log").read_text()


def alive(word: str) -> bool:
    listed = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True, check=True).stdout
    return any(word in line and not line.startswith("Z") for line in listed.splitlines())


def test_level_2_shows_python_and_the_course_package_and_nothing_else(monkeypatch):
    need_level_2()
    monkeypatch.setenv("TEACHER_TOKEN", "secret")
    with Sandbox(protection_level(), Limits()) as box:
        seen = json.loads(look(box))
    assert seen["course"] == ["kvcourse"] and seen["cwd"] == "/scratch" and "" not in seen["path"]
    assert not {"home", "work", "mnt", "sys", "var"} & set(seen["root"])
    assert "TEACHER_TOKEN" not in seen["env"] and seen["env"]["HOME"] == "/scratch"
    assert not box.folder.exists()


def test_ready_made_parts_cannot_be_imported():
    """The engine's helpers would answer tasks of later lessons."""
    need_level_2()
    code = "import os; print({part: os.listdir('/course/kvcourse/' + part) for part in " + repr(sandbox.PARTS_HIDDEN)
    code += " if os.path.isdir('/course/kvcourse/' + part)}, os.path.getsize('/course/kvcourse/tasks/sizing.py'))"
    with Sandbox(protection_level(), Limits()) as box:
        seen = look(box, code)
    assert "'workload': []" in seen and ".py" not in seen and seen.strip().endswith(" 0")


def test_level_2_gives_no_rights(monkeypatch):
    need_level_2()
    with Sandbox(protection_level(), Limits()) as box:
        seen = json.loads(look(box))
    assert seen["uid"] == 1000 and int(seen["caps"], 16) == 0
    assert seen["written"] == [] and seen["interfaces"] in ([], ["lo"]) and len(seen["processes"]) <= 2


def test_the_project_is_hidden_where_it_lies_inside_something_shown(tmp_path, monkeypatch):
    packages = tmp_path / "env" / "site-packages"
    for name in ("autograde", "solutions", "kvcourse"):
        (packages / name).mkdir(parents=True)
    project = tmp_path / "env" / "src"
    project.mkdir()
    monkeypatch.setattr(mounts, "python_folders", lambda: [tmp_path / "env", project / ".venv"])
    monkeypatch.setattr(mounts, "package_folders", lambda: [str(packages)])
    options = mounts.mounts({}, project=project, work=packages)
    hidden = [options[i + 1] for i, word in enumerate(options) if word == "--tmpfs"]
    assert hidden == [str(project), *(str(packages / name) for name in ("autograde", "kvcourse", "solutions"))]
    assert options.index(str(tmp_path / "env")) < options.index(str(project)) < options.index(str(project / ".venv"))


def test_without_bubblewrap_the_level_is_1_and_says_why():
    found = sandbox._protection(None, True)
    assert found.level == "L1" and "bubblewrap is not installed" in found.why


def test_a_bubblewrap_that_does_not_work_is_found_out_by_trying(tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    found = sandbox._protection(str(broken), True)
    assert found.level == "L1" and "Permission denied" in found.why


def test_a_level_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None if name == "bwrap" else f"/bin/{name}")
    with pytest.raises(InfrastructureFault, match="bubblewrap is not installed"):
        protection_level("L2")


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("level", ["L1", "L2"])
def test_nothing_survives_the_end(level, grouped, monkeypatch):
    if level == "L2":
        need_level_2()
    if not grouped:
        monkeypatch.setattr(Cgroup, "create", lambda memory, processes: Cgroup())
    word = f"9876.{os.getpid()}{grouped:d}"
    with Sandbox(protection_level(level), Limits()) as box:
        code = f"import subprocess\nfor _ in range(3): subprocess.Popen(['sleep', '{word}'], start_new_session=True)"
        process = box.start([sys.executable, "-c", f"{code}\nimport time\ntime.sleep(60)"], {})
        end = time.monotonic() + 20
        while not alive(f"sleep {word}") and time.monotonic() < end:
            time.sleep(0.05)
        assert alive(f"sleep {word}")
        box.end(process)
        folders = list(box.group.folders.values())
    end = time.monotonic() + 5
    while alive(f"sleep {word}") and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(f"sleep {word}") and not any(folder.exists() for folder in folders)


def test_a_group_limits_memory():
    group = Cgroup.create(memory=64 * 2**20, processes=20)
    if "memory" not in group.folders:
        pytest.skip("this machine lets us make no memory control group")
    code = "import time; time.sleep(0.3); x = bytearray(256 * 2**20)\nfor i in range(0, len(x), 4096): x[i] = 1"
    process = subprocess.Popen([sys.executable, "-c", code])
    group.add(process.pid)
    assert process.wait(20) == -9
    assert group.sweep() and not any(folder.exists() for folder in group.folders.values())


def test_a_kernel_that_cannot_start_is_the_grader_s_fault(monkeypatch):
    monkeypatch.setattr(kernel, "BOOT", "raise SystemExit('no room on the disk')")
    with Sandbox(protection_level(), Limits()) as box:
        started = Kernel(box, Limits(), {})
        with pytest.raises(InfrastructureFault, match="no room on the disk"):
            started.wait_ready()
    assert not Path(f"/proc/{started.process.pid}").exists()


def test_output_is_cut_by_lines_bytes_and_messages():
    limits = replace(Limits(), output_lines=3, output_bytes=100, output_messages=4)
    lines, long, many, odd = (Outputs(limits) for _ in range(4))
    lines.add("stream", {"name": "stdout", "text": "1\n2\n3\n4\n"})
    long.add("stream", {"name": "stdout", "text": "x" * 10**6})
    for i in range(10):
        many.add("display_data", {"data": {"text/plain": str(i)}})
    assert lines.kept[0].text == "1\n2\n3\n" and len(long.kept[0].text) == 100 and len(many.kept) == 5
    assert all("cut here" in outputs.kept[-1].text for outputs in (lines, long, many))
    wrong = ({}, {"name": 3, "text": None}, {"data": [1]}, {"data": {"text/html": 5}}, {"ename": 1, "traceback": 2})
    for content in wrong:
        for kind in ("stream", "display_data", "error"):
            odd.add(kind, content)
    assert all(output.name == "stderr" for output in odd.kept)
