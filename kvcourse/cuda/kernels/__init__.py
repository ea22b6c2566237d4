"""Small kernels that show one thing each: for experiments, tests and benchmarks."""

from __future__ import annotations

from pathlib import Path


def source(name: str) -> str:
    """The text of a demonstration kernel's file, for example "transpose"."""
    return (Path(__file__).parent / f"{name}.cu").read_text(encoding="utf-8")
