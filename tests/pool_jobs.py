"""Jobs for the worker pool: some end their process, some never come back."""

from __future__ import annotations

import os
import time
from pathlib import Path


def answer(number: int, mode: str) -> int:
    once = Path(os.environ["POOL_ONCE"])
    if mode == "die" or (mode == "once" and not once.exists()):
        once.touch()
        os._exit(1)
    if mode == "hang":
        time.sleep(600)
    return number * number
