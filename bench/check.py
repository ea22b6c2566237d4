"""How long a learner waits for a verdict: import, first check and repeated check of every task, in one process.

Run `python bench/check.py`; it writes bench/results/check.json with the machine and the versions.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

os.environ["KVCOURSE_HOME"] = tempfile.mkdtemp(prefix="kvcourse-bench-")
RESULT = Path(__file__).parent / "results" / "check.json"


def seconds(work) -> float:
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        work()
    return round(time.perf_counter() - began, 3)


def main() -> None:
    imported = seconds(lambda: (__import__("torch"), __import__("transformers"), __import__("kvcourse")))
    from autograde.sources import solution_namespace
    from kvcourse import check
    from kvcourse.tasks.course import load_course

    rows = {}
    for lesson in load_course():
        names = solution_namespace(lesson)
        for task in lesson.tasks:
            answers = {name: value for name, value in names.items() if callable(value)}
            first, again = (seconds(lambda: check(task.name, **answers)) for _ in range(2))  # noqa: B023 - called at once
            rows[task.name] = {"first_s": first, "again_s": again}
    machine = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    versions = {name: version(name) for name in ("torch", "transformers", "numpy")}
    result = {"machine": machine, "versions": versions, "import_s": imported, "checks": rows}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
