"""A bar for a run, in a terminal or a notebook."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcourse.engine.engine import Engine


@contextmanager
def progress_bar(engine: Engine) -> Iterator[Callable[[], None]]:
    """Counts ended requests; beside them tokens out, requests running, blocks in use. Call the value after a step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm's advice to install ipywidgets
        from tqdm.auto import tqdm

    ended, first_token = len(engine.finished), engine.metrics.tokens_out
    total = len(engine.batcher.running) + len(engine.batcher.waiting)
    with tqdm(total=total, unit="request") as bar:

        def update() -> None:
            tokens, running = engine.metrics.tokens_out - first_token, len(engine.batcher.running)
            bar.set_postfix(tokens=tokens, running=running, blocks=engine.blocks_in_use, refresh=False)
            bar.update(len(engine.finished) - ended - bar.n)

        yield update
