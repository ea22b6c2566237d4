"""NVRTC, NVIDIA's own compiler: source to machine code for one architecture. It needs no GPU and no driver."""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcourse.cuda.cpu.limits import Limits, start
from kvcourse.cuda.errors import CompileError, LaunchError, NoCompilerError
from kvcourse.cuda.signature import Signature

SERVER = Path(__file__).with_name("nvrtc_server.py")  # by path: it needs nothing else of the course
ARCHITECTURES = ("sm_75", "sm_80", "sm_90")  # T4, A100, H100 and H200: what the course's kernels are compiled for


@dataclass(frozen=True)
class Resources:
    """What one thread, or block, of a compiled kernel takes."""

    registers: int  # of each thread
    shared: int  # bytes of `__shared__` arrays of each block
    spills: int  # bytes that each thread's registers had no room for, stores and loads together


@dataclass(frozen=True)
class Cubin:
    """Machine code of one kernel, the name it has there, and what the assembler said."""

    code: bytes
    name: str
    log: str

    @property
    def resources(self) -> Resources:
        part = self.log.split(f"entry function '{self.name}'", 1)[-1].split("Compiling entry function", 1)[0]

        def number(pattern: str) -> int:
            found = re.search(pattern, part)
            return int(found.group(1)) if found else 0

        spills = number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads")
        return Resources(number(r"Used (\d+) registers"), number(r"(\d+) bytes smem"), spills)


def compile_cubin(text: str, signature: Signature, arch: str, limits: Limits, first_line: int = 1) -> Cubin:
    """Compile for one architecture, such as "sm_75", never to PTX: an older driver would not take it.

    CompileError with the lines of the source, or with what to install.
    """
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise LaunchError(f"{arch!r} is no architecture: write sm_75 (T4), sm_80 (A100) or sm_90 (H100, H200).")
    source = "\n" * (first_line - 1) + text
    answer = _ask({"source": source, "instance": signature.instance, "arch": arch}, limits)
    if "error" in answer:
        if "gpu-architecture" in answer["error"]:
            raise NoCompilerError(f"This version of NVRTC does not know the architecture {arch}.")
        raise CompileError(_message(answer["error"], arch))
    return Cubin(base64.b64decode(answer["code"]), answer["name"], answer["log"])


def _install() -> str:
    """The command that brings what is missing, for the CUDA that torch has."""
    import torch

    if torch.version.cuda is None:
        return "pip install cuda-core cuda-bindings nvidia-cuda-nvrtc"
    return f"pip install cuda-core 'cuda-bindings=={torch.version.cuda.split('.')[0]}.*'"  # torch brought NVRTC itself


def _message(error: str, arch: str) -> str:
    found = re.findall(r"^kernel\.cu\((\d+)\): (?:catastrophic )?error: (.*)$", error, re.MULTILINE)
    lines = [f"line {line}: {problem}" for line, problem in found[:5]]
    return f"The kernel does not compile for {arch}.\n" + "\n".join(lines or error.strip("\0 \n").splitlines()[:12])


START_SECONDS = 60.0  # importing NVIDIA's packages, on a slow disk
_lock = threading.Lock()
_server: subprocess.Popen | None = None


def _ask(request: dict[str, str], limits: Limits) -> dict[str, Any]:
    """One compilation in the server process, which is started when it is first needed and ended when it is too slow."""
    with _lock:
        try:
            server = _started(limits)
            assert server.stdin is not None
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
            return _answer(server, limits.compile_seconds)
        except BaseException:
            stop_server()
            raise


def _started(limits: Limits) -> subprocess.Popen:
    global _server
    if _server is None or _server.poll() is not None:
        command = [*limits.compile_prefix, sys.executable, "-P", str(SERVER)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        _server = start(command, limits, address_space=False, **pipes)
        missing = _answer(_server, START_SECONDS)["missing"]
        if missing:
            raise NoCompilerError(f"NVIDIA's compiler is not there ({missing}): run `{_install()}`.")
    return _server


def _answer(server: subprocess.Popen, seconds: float) -> dict[str, Any]:
    """The next line that the server writes."""
    assert server.stdout is not None
    answer = bytearray()
    deadline = time.monotonic() + seconds
    while not answer.endswith(b"\n"):
        if not select.select([server.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise CompileError(f"NVRTC took more than {seconds:g} s and was stopped.")
        part = os.read(server.stdout.fileno(), 1 << 20)
        if not part:
            raise CompileError("NVRTC crashed on this source, or needed too much memory.")
        answer += part
    return json.loads(answer)


def stop_server() -> None:
    """End the process that compiles."""
    global _server
    server, _server = _server, None
    if server is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    for pipe in (server.stdin, server.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()


atexit.register(stop_server)
