"""Finds the machine's C++ compiler."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from kvcourse.cuda.errors import CompileError

NONE_FOUND = (
    "There is no C++ compiler on this machine. Install one: `sudo apt install g++` (Debian, Ubuntu), "
    "`sudo dnf install gcc-c++` (Fedora), or `pip install ziglang` anywhere."
)


@dataclass(frozen=True)
class Compiler:
    """`command` starts it; `version` is its own first line, a part of every cache key."""

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version.lower()

    @property
    def is_zig(self) -> bool:
        return "ziglang" in self.command or os.path.basename(self.command[0]).startswith("zig")


def find_compiler() -> Compiler:
    """The first of $CXX, g++, clang++ and the package ziglang; if none works a CompileError says how to get one."""
    if sys.platform != "linux":
        raise CompileError(
            "On a CPU kernels need Linux: use WSL 2 on Windows, a Linux container on macOS, or Colab or Codespaces."
        )
    wanted = os.environ.get("CXX", "").strip()
    if wanted:
        compiler = _try(tuple(shlex.split(wanted)))
        if compiler is None:
            raise CompileError(
                f"$CXX is {wanted!r}, which does not run: correct it, or unset it to use g++ or clang++."
            )
        return compiler
    for command in (("g++",), ("clang++",), (sys.executable, "-m", "ziglang", "c++")):
        if command[0] == sys.executable and importlib.util.find_spec("ziglang") is None:
            continue
        compiler = _try(command)
        if compiler is not None:
            return compiler
    raise CompileError(NONE_FOUND)


def _try(command: tuple[str, ...]) -> Compiler | None:
    path = shutil.which(command[0])
    return _version((path, *command[1:])) if path else None


@cache
def _version(command: tuple[str, ...]) -> Compiler | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    first = done.stdout.strip().splitlines()[:1]
    return Compiler(command, first[0]) if done.returncode == 0 and first else None
