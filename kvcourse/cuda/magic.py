"""The cell magic `%%cuda name`: CUDA C++ in a cell of a notebook, compiled at once, kept as the variable `name`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import MutableMapping
from typing import Any

from kvcourse.cuda.errors import CompileError
from kvcourse.cuda.kernel import Kernel

USAGE = 'write %%cuda name, or for a template %%cuda name --template "float, 64"'
TEXT_ONLY = "KVCOURSE_CUDA_TEXT_ONLY"  # set where cells run only to collect their text: nothing is compiled then


def register(shell: Any) -> None:
    """Make `%%cuda` known to an IPython shell."""
    shell.register_magic_function(lambda line, cell: define(line, cell, shell.user_ns), "cell", "cuda")


def define(line: str, cell: str, namespace: MutableMapping[str, Any]) -> None:
    """What `%%cuda line` does with its cell: define each named kernel in `namespace`, compile it, say how it went.

    Lines are numbered as in the cell, where the magic itself is line 1. A source that does not compile is kept too, so
    that a check can name what is wrong with it.
    """
    kernels = read_cell(line, cell)
    namespace.update(kernels)
    for name, kernel in {} if os.environ.get(TEXT_ONLY) else kernels.items():
        try:
            kernel.compile()
        except NotImplementedError as stub:
            print(f"{name}: not started ({stub})")
        except CompileError as error:
            print(error, file=sys.stderr)
        else:
            print(f"{name}({', '.join(map(str, kernel.signature.parameters))}) compiles")


def read_cell(line: str, cell: str) -> dict[str, Kernel]:
    """The kernels that `%%cuda line` names, kept as text: nothing is compiled."""
    names, template = _read_line(line)
    return {name: Kernel(cell, name, template, first_line=2) for name in names}


def _read_line(line: str) -> tuple[list[str], str | None]:
    try:
        words = shlex.split(line)
    except ValueError:
        raise CompileError(f"A quotation mark is not closed: {USAGE}.") from None
    template = None
    for option in ("--template", "-t"):
        if option in words:
            at = words.index(option)
            if at + 1 == len(words):
                raise CompileError(f"{option} needs the template arguments: {USAGE}.")
            template = words[at + 1]
            del words[at : at + 2]
    if not words or not all(word.isidentifier() for word in words):
        raise CompileError(f"The cell magic needs the kernel's name: {USAGE}.")
    return words, template
