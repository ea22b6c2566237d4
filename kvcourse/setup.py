"""Set-up with nothing but Python: make `.venv`, install the tested set (torch first), open the lab or run the tests."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = Path(__file__).with_name("constraints.txt")
VENV = ROOT / ".venv"
NEEDED = {
    "lab": ("torch", "transformers", "matplotlib", "jupyterlab", "ipykernel"),
    "all": (
        "torch",
        "transformers",
        "jupyterlab",
        "nbgrader",
        "jupytext",
        "pytest",
        "hypothesis",
        "ruff",
        "playwright",
    ),
}
PYTHONS = ((3, 11), (3, 14))  # from, up to but not including


def open_lab(torch_index: str | None, browser: bool = True) -> int:
    """JupyterLab on the first lesson; returns when it is closed."""
    python = ready("lab", torch_index)
    first = sorted((ROOT / "notebooks").glob("*/*.ipynb"))[0]
    where = f"--LabApp.default_url=/lab/tree/{first.relative_to(ROOT).as_posix()}"
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # in a container one is root
    command = [python, "-m", "jupyterlab", where, *root, *([] if browser else ["--no-browser"])]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def run_tests(torch_index: str | None, fast: bool = False) -> int:
    """The linter, the drift check of the notebooks, and pytest; the first failure ends it."""
    python = ready("all", torch_index)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    pytest = ["pytest", "-q", "--durations=8", *(["-m", "not slow"] if fast else [])]
    if not fast:  # the tests on real text skip without it
        subprocess.run([python, "-m", "kvcourse", "models", "fetch", "smollm2"], cwd=ROOT, env=environment, check=False)
    for module in (["ruff", "check", "."], ["autograde", "build", "--check"], pytest):
        print("$ python -m", " ".join(module), flush=True)
        code = subprocess.run([python, "-m", *module], cwd=ROOT, env=environment, check=False).returncode
        if code:
            return code
    return 0


def ready(extra: str, torch_index: str | None) -> str:
    """The Python that has the course with `extra`: this one, or that of `.venv`, made or completed when it lacks it."""
    if all(importlib.util.find_spec(name) for name in NEEDED[extra]):
        return sys.executable
    if not (ROOT / "pyproject.toml").is_file():
        _stop(f"This needs more packages: install the course from its clone with `pip install -e '.[{extra}]'`.")
    python = str(VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    if any((VENV / f"complete-{done}").exists() for done in (extra, "all")):
        return python
    if not PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]:
        _stop(f"Python {sys.version.split()[0]} is not supported: use 3.11, 3.12 or 3.13.")
    started = time.monotonic()
    print(f"Setting up {VENV} (about 1.5 GB, one to five minutes) …", flush=True)
    if not any(VENV.glob("complete-*")):
        venv.create(VENV, with_pip=True, clear=VENV.exists())
    index = ["--index-url", torch_index] if torch_index else []
    for what in ([*index, "-c", str(CONSTRAINTS), "torch"], ["-c", str(CONSTRAINTS), "-e", f".[{extra}]"]):
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
        if subprocess.run(pip, cwd=ROOT, check=False).returncode:
            _stop("pip could not install the packages (see its message above): check the network and run this again.")
    (VENV / f"complete-{extra}").touch()
    print(f"Ready after {time.monotonic() - started:.0f} s.", flush=True)
    return python


def _stop(sentence: str) -> None:
    print(sentence, file=sys.stderr)
    raise SystemExit(2)
