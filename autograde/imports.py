"""Which of our own files a module is made of: itself and all that it imports, read from the sources."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import kvcourse

PACKAGES = {"kvcourse": Path(kvcourse.__file__).parent, "autograde": Path(__file__).parent}


@functools.cache
def files_behind(*modules: str) -> tuple[Path, ...]:
    """The files of `modules` and, step by step, of every module of ours that they import, sorted."""
    found: set[Path] = set()
    waiting = list(modules)
    while waiting:
        path = _file(waiting.pop())
        if path is not None and path not in found:
            found.add(path)
            waiting += _imported(path)
    return tuple(sorted(found))


def _file(module: str) -> Path | None:
    package, *rest = module.split(".")
    if package not in PACKAGES:
        return None
    place = PACKAGES[package].joinpath(*rest)
    choices = (place.with_suffix(".py"), place / "__init__.py") if rest else (place / "__init__.py",)
    return next((path for path in choices if path.is_file()), None)


def _imported(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names
