"""Compiles a kernel's source for the CPU with the machine's own C++ compiler, cached by content.

The compiler sees only source that passed the language rules, our headers, and no system header. What comes out may call
nothing but our runtime and the maths library: every name it leaves undefined is looked up in a list.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from kvcourse.cuda.cpu.compilers import Compiler, find_compiler
from kvcourse.cuda.cpu.elf import KERNEL_FILE, Elf, Symbol
from kvcourse.cuda.cpu.limits import Limits, start
from kvcourse.cuda.errors import CompileError
from kvcourse.cuda.language import INCLUDE_FOLDER

Mode = Literal["fast", "check"]
RUNTIME_FOLDER = Path(__file__).parent / "runtime"
KEEP = 300  # compiled kernels in the cache
MOST_MESSAGES = 5
MOST_OUTPUT = 1 << 20  # bytes read of what the compiler prints
LONGEST_MESSAGE = 1000  # characters of one line

COMMON = ["-std=c++17", "-fPIC", "-g1", "-gdwarf-4", "-gz=none", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing",
          "-fno-threadsafe-statics", "-fvisibility=hidden", "-fno-stack-protector", "-Werror=vla",
          "-Wno-narrowing"]  # fmt: skip
FAST = ["-O2", "-ffp-contract=fast", "-fno-finite-loops"]  # a GPU fuses a * b + c too; an endless loop stays one
# Not optimised, so that what is counted and checked is what the source says, whatever the compiler.
CHECK = ["-O0", "-ffp-contract=off", "-DKVCUDA_CHECK", "-fsanitize=thread", "-fsanitize=bounds,integer-divide-by-zero"]
GCC = ["-fno-gnu-unique", "-fmax-errors=20"]
# Without elision structs are copied by functions, whose accesses g++ does report.
GCC_CHECK = ["--param", "tsan-distinguish-volatile=1", "-fno-elide-constructors"]
CLANG = ["-ferror-limit=20", "-Wno-c++11-narrowing", "-fno-color-diagnostics"]
CLANG_CHECK = ["-mllvm", "-tsan-distinguish-volatile=1", "-mllvm", "-tsan-instrument-read-before-write=1"]


@dataclass(frozen=True)
class Program:
    """A compiled kernel: `command` runs launches of it (see run.py)."""

    runtime: Path
    library: Path
    mode: Mode
    compile_seconds: float

    @property
    def command(self) -> list[str]:
        return [str(self.runtime), str(self.library)]

    @cached_property
    def binary(self) -> Elf:
        return Elf(self.library)

    @cached_property
    def anchor(self) -> int:
        """The address in the file of kvcuda_anchor, whose address in memory tells where the file was loaded."""
        return next(s.address for s in self.binary.symbols if s.name == "kvcuda_anchor")

    @cached_property
    def variables(self) -> list[Symbol]:
        """The kernel's own variables outside its stack, without those of a library that the linker added."""
        own = {
            s.name
            for s in Elf(self.library.with_suffix(".o")).symbols
            if s.variable and s.defined and "kvcuda" not in s.name
        }
        return [s for s in self.binary.symbols if s.name in own and s.size]


def compile_kernel(text: str, instance: str, mode: Mode, limits: Limits, first_line: int = 1) -> Program:
    """Compile `instance`, a kernel's name with its template arguments; CompileError names the lines that are wrong.

    `text` is the source after `prepare`. `first_line` is the number its first line has in messages.
    """
    began = time.perf_counter()
    compiler = find_compiler()
    flags = _flags(compiler, mode)
    wrapper = f'#include "kvcuda/device.h"\n#include "{KERNEL_FILE}"\nKVCUDA_ENTRY({instance})\n'
    source = "\n" * (first_line - 1) + text + "\n"
    key = _key(source, wrapper, *flags, *compiler.command, compiler.version, _headers_text())
    folder = cache_folder() / key
    runtime = _runtime(compiler, limits)
    library = folder / "kernel.so"
    if not library.exists():
        with _workspace() as work, limits.charged() as limits:
            (work / KERNEL_FILE).write_text(source, encoding="utf-8")
            (work / "kernel.cpp").write_text(wrapper, encoding="utf-8")
            _compile(
                compiler,
                [*flags, "-isystem", str(INCLUDE_FOLDER), "-c", "kernel.cpp", "-o", "kernel.o"],
                work,
                limits,
                source,
            )
            _check_names(Elf(work / "kernel.o"))
            _compile(compiler, [*_link_flags(compiler), "kernel.o", "-o", "kernel.so", "-lm"], work, limits, source)
            _publish(work / "kernel.o", folder / "kernel.o")
            _publish(work / "kernel.so", library)
        _prune()
    else:
        with contextlib.suppress(OSError):
            os.utime(library)  # used again: the cache forgets it later
    return Program(runtime, library, mode, time.perf_counter() - began)


def cache_folder() -> Path:
    """`cuda` in `$KVCOURSE_CACHE`, by default `kvcourse` in the user's cache folder."""
    home = os.environ.get("KVCOURSE_CACHE")
    root = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvcourse"
    return root / "cuda"


def _flags(compiler: Compiler, mode: Mode) -> list[str]:
    flags = [*COMMON, *(CHECK if mode == "check" else FAST), *(CLANG if compiler.is_clang else GCC)]
    if mode == "check":
        flags += CLANG_CHECK if compiler.is_clang else GCC_CHECK
    return ["-fno-sanitize=undefined", *flags] if compiler.is_zig else flags


def _link_flags(compiler: Compiler) -> list[str]:
    return [*(["-fno-sanitize=undefined"] if compiler.is_zig else []), "-shared", "-Wl,-Bsymbolic"]


def _runtime(compiler: Compiler, limits: Limits) -> Path:
    """The program that loads compiled kernels, compiled itself on first use."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(RUNTIME_FOLDER.iterdir()) if file.is_file())
    program = cache_folder() / _key("runtime", text, _headers_text(), *compiler.command, compiler.version) / "runtime"
    if not program.exists():
        with _workspace() as work:
            options = [
                "-O3",
                "-std=c++17",
                "-w",
                "-fno-strict-aliasing",
                "-I",
                str(INCLUDE_FOLDER),
                str(RUNTIME_FOLDER / "runtime.cpp"),
            ]
            # our own code; ziglang builds its C++ library on the way
            patient = replace(limits, compile_seconds=600, budget=None)
            _compile(compiler, [*options, "-o", "runtime", "-rdynamic", "-ldl"], work, patient, "")
            _publish(work / "runtime", program)
    return program


def _compile(compiler: Compiler, options: list[str], work: Path, limits: Limits, source: str) -> None:
    """Run the compiler in `work`; its complaints about the kernel become a CompileError."""
    command = [*limits.compile_prefix, *compiler.command, *options]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = start(command, limits, address_space=not compiler.is_zig, cwd=str(work), **pipes)
    try:
        output = _output(process, limits.compile_seconds)
    except TimeoutError:
        raise CompileError(f"Compiling took more than {limits.compile_seconds:.3g} s and was stopped.") from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    if process.returncode:
        raise CompileError(_messages(output.decode("utf-8", "replace"), source))


def _output(process: subprocess.Popen, seconds: float) -> bytes:
    """What the compiler prints until it ends, the beginning of it: names of types can fill any memory."""
    assert process.stdout is not None
    kept, deadline = bytearray(), time.monotonic() + seconds
    while True:
        if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(process.stdout.fileno(), 1 << 16)
        kept += part[: MOST_OUTPUT - len(kept)]
        if not part:
            break
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    return bytes(kept)


def _messages(output: str, source: str) -> str:
    """The compiler's errors about the kernel's own lines, with the text of each line."""
    lines = source.split("\n")
    found = []
    for match in re.finditer(
        rf"^(?:\./)?{re.escape(KERNEL_FILE)}:(\d+):(\d+): (?:fatal )?error: (.*)$", output, re.MULTILINE
    ):
        number, column = int(match.group(1)), int(match.group(2))
        text = lines[number - 1] if number <= len(lines) else ""
        found.append(f"line {number}: {match.group(3)[:LONGEST_MESSAGE]}\n    {text}\n    {' ' * (column - 1)}^")
    if found:
        more = f"\n... and {len(found) - MOST_MESSAGES} more" if len(found) > MOST_MESSAGES else ""
        return "The kernel does not compile.\n" + "\n".join(found[:MOST_MESSAGES]) + more
    if "out of memory" in output or "Killed" in output or "virtual memory exhausted" in output:
        return "Compiling took too much memory and was stopped."
    lines = output.replace(f"{INCLUDE_FOLDER}/", "").strip().splitlines()
    return "The kernel does not compile.\n" + "\n".join(line[:200] for line in lines[:12])


def _check_names(compiled: Elf) -> None:
    """CompileError when the kernel calls what is neither ours nor maths, or runs code before it is launched."""
    for symbol in compiled.symbols:
        if not symbol.defined and symbol.name and not _may_call(symbol.name):
            raise CompileError(f"The kernel calls {symbol.name}, which CUDA does not offer to a kernel.")
        if re.search(r"static_initialization_and_destruction|cxx_global_var_init", symbol.name):
            raise CompileError(
                "A variable outside the kernel must start with a constant value, not with the result of a call."
            )


def _may_call(name: str) -> bool:
    helper = re.fullmatch(
        r"(kvcuda|__tsan|__ubsan_handle)_\w+|__[a-z]+[sdtx][fi]\d?|_GLOBAL_OFFSET_TABLE_|mem(cpy|set|move)", name
    )
    return bool(helper) or name in _maths_names()


@cache
def _maths_names() -> frozenset[str]:
    text = (INCLUDE_FOLDER / "kvcuda" / "maths.h").read_text(encoding="utf-8")
    both = re.findall(r"KVCUDA_MATHS_[12]\((\w+)\)", text)
    single = re.findall(r"\b(\w+)\(", text[text.index('extern "C" {') : text.index("\n}\n")])
    return frozenset(both) | {f"{name}f" for name in both} | frozenset(single) | {"sincos", "sincosf"}


@cache
def _headers_text() -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(INCLUDE_FOLDER.rglob("*.h")))


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@contextlib.contextmanager
def _workspace():
    """A folder for half-done files beside the finished ones."""
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=root))
    except OSError as error:
        raise CompileError(
            f"Cannot write to {root} ({error.strerror}); $KVCOURSE_CACHE names another folder."
        ) from None
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _publish(file: Path, to: Path) -> None:
    """Move a finished file to its place in one step, so that two processes may compile the same kernel."""
    to.parent.mkdir(exist_ok=True)
    os.replace(file, to)


def _used(file: Path) -> float:
    """When a library was last used; one that another process has just removed counts as new."""
    try:
        return file.stat().st_mtime
    except OSError:
        return float("inf")


def _prune() -> None:
    """Forget the kernels that were used longest ago."""
    libraries = sorted(cache_folder().glob("*/kernel.so"), key=_used)
    for file in libraries[: max(0, len(libraries) - KEEP)]:
        shutil.rmtree(file.parent, ignore_errors=True)
