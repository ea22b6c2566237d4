"""Shared by all tests: one torch thread, and a learner's record that is never the developer's own."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest


@pytest.fixture(autouse=True)
def own_record(tmp_path, monkeypatch):
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "progress.json"
