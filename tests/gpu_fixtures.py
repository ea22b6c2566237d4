"""A GPU runner on the CPU, whose process the tests can make die or hang: `pytest_plugins = ["gpu_fixtures"]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_lesson import GOOD

from autograde.gpu import GpuRunner

STAND_IN = (sys.executable, str(Path(__file__).with_name("gpu_stand_in.py")))


@pytest.fixture
def runner(tmp_path) -> Iterator[GpuRunner]:
    made = GpuRunner("cpu", command=STAND_IN, lock=tmp_path / "gpu.lock")
    yield made
    made.close()


def doubled(runner: GpuRunner, source: str = GOOD) -> list[Any]:
    return runner.launch(source, "double_all", None, 2, 32, [torch.zeros(64), torch.arange(64.0), 40])


def works(runner: GpuRunner) -> bool:
    out, x, number = doubled(runner)
    return out.tolist() == [2.0 * i if i < 40 else 0.0 for i in range(64)] and len(x) == 64 and number is None
