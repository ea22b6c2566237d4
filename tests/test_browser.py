"""A learner's notebook in JupyterLab in a real browser: a passing and a failing check, and a picture to look at."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest

from autograde import sources
from kvcourse.tasks.course import load_course

pytestmark = pytest.mark.slow
LESSON = load_course()[0]
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
SECONDS = 90


@pytest.fixture
def lab(tmp_path):
    """JupyterLab on a free loopback port, over a folder with one notebook; stopped afterwards."""
    write_notebook(tmp_path / "mine.ipynb")
    env = os.environ | {"JUPYTER_CONFIG_DIR": str(tmp_path / "config"), "PYTHONPATH": str(sources.ROOT)}
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


def test_a_passing_and_a_failing_check_are_shown(lab, tmp_path):
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "no Chromium found: install the package chromium (apt-get install chromium)"
    pictures = sources.ROOT / "build" / "screenshots"
    pictures.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 1700})
        page.goto(f"{lab}/lab/tree/mine.ipynb?token=test")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=SECONDS * 1000)
        page.wait_for_selector(
            '[data-status="idle"], .jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=SECONDS * 1000
        )
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        failed = page.locator(".jp-OutputArea-output", has_text="sizing.2 ").filter(has_text="failed")
        failed.first.wait_for(timeout=SECONDS * 1000)
        failed.first.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        page.screenshot(path=str(pictures / "check.png"))
        shown = page.locator(".jp-Notebook").inner_text()
        browser.close()
    assert "sizing.1 bytes per token: passed" in shown
    assert re.search(r"sizing\.2 .*: failed: \d+ of \d+ properties hold", shown)
    for label in ("input", "expected", "got", "why", "try"):
        assert label in shown
    assert "Traceback" not in shown
