"""A grader without a sandbox for tests of the teacher's side: cells say in a comment what should come of them."""

from __future__ import annotations

import os
import re
import time
from typing import Any

from autograde import grade
from autograde.grade import Graded
from autograde.grading import grade_job
from autograde.limits import InfrastructureFault
from kvcourse.check.runner import PropertyResult, TaskResult

SHARE = re.compile(r"# SHARE (\d)/4")


def fake_notebook(nb: Any, lesson: Any, *, student_id: str, seed: bytes, **_: Any) -> Graded:
    """`# SHARE 3/4` in a solution earns that much; other words make the grader crash, hang or fail."""
    text = "\n".join(cell.source for cell in nb.cells if cell.metadata.kvcourse.role in ("solution", "extra"))
    count_file = os.environ.get("FAKE_GRADING_COUNT")
    if count_file:
        with open(count_file, "a") as file:
            file.write(f"{student_id}\n")
    if "# CRASH" in text:
        os._exit(9)
    if "# HANG" in text:
        time.sleep(600)
    if "# FAULT" in text:
        raise InfrastructureFault("the sandbox did not start")
    if "# BUG" in text:
        raise KeyError("ours")
    tasks = {task.name: fake_result(nb, task.name) for task in lesson.tasks}
    outputs = {cell.id: OUTPUTS for cell in nb.cells if "# PRINT" in cell.source}
    return Graded(lesson.name, "L2", tasks, outputs, ["it was slow"] if "# SLOW" in text else [], 0.1)


def fake_result(nb: Any, task: str) -> TaskResult:
    cells = [c.source for c in nb.cells if c.metadata.kvcourse.get("task") == task and "def " in c.source]
    if any("raise NotImplementedError" in source for source in cells):
        return TaskResult(task, "not started", [])
    found = [int(share) for source in cells for share in SHARE.findall(source)]
    good = min(found, default=4)
    properties = [PropertyResult(f"test_{i}", f"Property {i} holds.", "passed", hidden=True) for i in range(4)]
    for one in properties[good:]:
        one.status, one.call, one.expected, one.got = "failed", "f(1)", "2", "<script>alert(1)</script>"
    if any("# UNRUN" in source for source in cells):
        return TaskResult(task, "not run", properties, "the card was lost")
    return TaskResult(task, "passed" if good == 4 else "failed", properties)


def fake_job(root: str, student: str, lesson: str) -> str:
    """What a worker does, with the fake in place of the sandbox."""
    grade.grade_notebook = fake_notebook
    return grade_job(root, student, lesson)


def text_output(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def data_output(**data: str) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {k.replace("_", "/"): v for k, v in data.items()}, "metadata": {}}


OUTPUTS = [
    text_output("plain <b>text</b>\n" + "x" * 50_000),
    data_output(text_html='<p onclick="evil()">ok<script>evil()</script><iframe src="//evil"></iframe></p>'),
    data_output(text_plain="never reached"),
]
