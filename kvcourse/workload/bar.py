"""One progress bar for the terminal and the notebook; silent where neither is, and for work that is done at once."""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class _Silent:
    n = 0

    def update(self, step: int = 1) -> None:
        pass


def progress_bar(total: int, unit: str, text: str) -> AbstractContextManager[Any]:
    """Used as `with progress_bar(…) as bar: bar.update(step)`; shown after half a second; none when `total` is 0."""
    notebook = "ipykernel" in sys.modules
    if not total or not (notebook or (sys.stderr and sys.stderr.isatty())):
        return nullcontext(_Silent())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm's advice to install ipywidgets
        from tqdm.auto import tqdm
    return tqdm(total=total, desc=text, unit=unit, unit_scale=unit == "B", delay=0.5, leave=False)
