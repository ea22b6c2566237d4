"""A learner's notebook in JupyterLab in a real browser: a passing and a failing check, and a picture to look at."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import pytest

from autograde import sources
from kvcourse.tasks.course import find_lesson, load_course

pytestmark = pytest.mark.slow
LESSON = load_course()[0]
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
SECONDS, TRIES = 120, 3


@pytest.fixture
def lab(tmp_path):
    """A fresh JupyterLab on a free loopback port, over a folder with two notebooks; stopped afterwards."""
    write_notebook(tmp_path / "mine.ipynb")
    write_kernels(tmp_path / "kernels.ipynb")
    env = os.environ | {"JUPYTER_CONFIG_DIR": str(tmp_path / "config"), "PYTHONPATH": str(sources.ROOT),
                        "KVCOURSE_HOME": str(tmp_path / "home")}  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root",
               "--IdentityProvider.token=test", f"--ServerApp.root_dir={tmp_path}",
               "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]  # fmt: skip
    log = tmp_path / "lab.log"
    with open(log, "w") as out:
        server = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield address(log)
    finally:
        server.terminate()
        server.wait(timeout=20)


def address(log: Path) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = re.search(r"http://127\.0\.0\.1:(\d+)/lab", log.read_text())
        if found:
            url = f"http://127.0.0.1:{found[1]}"
            with contextlib.suppress(urllib.error.URLError):  # it says where before it listens
                urllib.request.urlopen(f"{url}/api?token=test", timeout=10).close()
                return url
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def write_notebook(path: Path) -> None:
    """sizing.1 solved, sizing.2 answered wrongly, sizing.3 untouched."""
    notebook = nbformat.read(sources.notebook_path(LESSON), as_version=4)
    answer = next(cell.source for cell in sources.read_script(LESSON) if cell.id == "sizing.1.code")
    wrong = "def kv_layers(config):\n    return [LayerKV(2 * config.hidden_size, None, 0)] * config.num_hidden_layers"
    keep = []
    for cell in notebook.cells:
        about = cell.metadata.kvcourse
        task = about.get("task", "")
        if about.role == "solution" and task in ("sizing.1", "sizing.2"):
            cell.source = answer if task == "sizing.1" else wrong
        if about.role in ("setup", "given") or task in ("sizing.1", "sizing.2", "sizing.3"):
            keep.append(cell)
    notebook.cells = keep
    nbformat.write(notebook, path)


def write_kernels(path: Path) -> None:
    """axpy without its bounds check, write_kv solved."""
    lesson = find_lesson("chunked")
    notebook = nbformat.read(sources.notebook_path(lesson), as_version=4)
    answers = {cell.id: cell.source for cell in sources.read_script(lesson)}
    answers["chunked.3.code.a"] = answers["chunked.3.code.a"].replace("if (i < n) ", "")
    keep = []
    for cell in notebook.cells:
        about = cell.metadata.kvcourse
        task = about.get("task", "")
        if about.role == "solution" and task == "chunked.3":
            cell.source = answers[f"chunked.3.code.{cell.id[-1]}"]
        if about.role == "setup" or task == "chunked.3":
            keep.append(cell)
    notebook.cells = keep
    nbformat.write(notebook, path)


def run_all(lab: str, name: str, wait_for: str, *words: str) -> str:
    """Open a notebook, run all its cells, wait for an output with these words, take a picture; gives what is shown."""
    from playwright.sync_api import TimeoutError, sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "no Chromium found: install the package chromium (apt-get install chromium)"
    pictures = sources.ROOT / "build" / "screenshots"
    pictures.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 2200})
        page.goto(f"{lab}/lab/tree/{name}.ipynb?token=test")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=SECONDS * 1000)
        page.wait_for_selector(
            '[data-status="idle"], .jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=SECONDS * 1000
        )
        found = page.locator(".jp-OutputArea-output", has_text=wait_for)
        for word in words:
            found = found.filter(has_text=word)
        for tries_left in reversed(range(TRIES)):  # a kernel that is still being connected drops what it is asked
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            try:
                found.first.wait_for(timeout=SECONDS * 1000 / TRIES)
                break
            except TimeoutError:
                page.screenshot(path=str(pictures / f"{name}.png"))
                assert tries_left, f"{name}: no output with {wait_for!r}, see {pictures / name}.png"
        found.first.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        page.screenshot(path=str(pictures / f"{name}.png"))
        shown = page.locator(".jp-Notebook").inner_text()
        browser.close()
    assert "Traceback" not in shown
    return shown


def test_a_passing_and_a_failing_check_are_shown(lab):
    shown = run_all(lab, "mine", "sizing.2 ", "failed")
    assert "sizing.1 bytes per token: passed" in shown
    assert re.search(r"sizing\.2 .*: failed: \d+ of \d+ properties hold", shown)
    for label in ("input", "expected", "got", "why", "try"):
        assert label in shown


def test_a_kernel_is_told_its_line_thread_and_block(lab):
    shown = run_all(lab, "kernels", "chunked.3 ", "failed")
    assert "write_kv(float* k_pool, float* v_pool, const float* key" in shown and "compiles" in shown
    assert re.search(r"line 7: out of bounds: thread \(44, 0, 0\) of block \(2, 0, 0\) reads x\[300\]", shown)
    assert "on a GPU: – not run" in shown
