"""The process in which NVRTC compiles: a line of JSON in, a line of JSON out. Started by nvrtc.py, under its limits.

Source can keep a compiler busy for ever or make it crash, so it never runs in the process that asks.
"""

from __future__ import annotations

import base64
import io
import json
import os
import sys
from typing import Any

# NVRTC leaves these to headers that it does not have; keywords.h has the same three for the CPU.
MACROS = [
    ("INFINITY", "__int_as_float(0x7f800000)"),
    ("NAN", "__int_as_float(0x7fffffff)"),
    ("FLT_MAX", "3.402823466e+38f"),
]
BUNDLED_HEADERS = (13, 3)  # the first version that brings cuda_fp16.h and its kind itself


def compile_one(source: str, instance: str, arch: str) -> dict[str, Any]:
    """The machine code of `instance`, its mangled name and the assembler's log; or an "error"."""
    from cuda import core

    log = io.StringIO()
    try:
        headers = _headers() if "include" in source else {}
        options = core.ProgramOptions(
            arch=arch, std="c++17", name="kernel.cu", define_macro=MACROS, ptxas_options=["-v"], **headers
        )
        code = core.Program(source, "c++", options).compile("cubin", name_expressions=(instance,), logs=log)
    except Exception as error:
        return {"error": str(error)}
    name = code.symbol_mapping[instance]
    data = base64.b64encode(bytes(code.code)).decode()
    return {
        "code": data,
        "name": name.decode() if isinstance(name, bytes) else name,
        "log": log.getvalue().rstrip("\0"),
    }


def what_is_missing() -> str:
    """Why NVRTC cannot be used here, in one line; empty when it can."""
    try:
        from cuda import core  # noqa: F401

        _version()
    except Exception as error:  # the packages, or the library that they load
        return str(error).split("\n")[0]
    return ""


def _version() -> tuple[int, int]:
    from cuda.bindings import nvrtc

    result, major, minor = nvrtc.nvrtcVersion()
    assert int(result) == 0, "nvrtcVersion failed"
    return major, minor


def _headers() -> dict[str, Any]:
    """Where NVRTC finds cuda_fp16.h and its kind."""
    version = _version()
    if version >= BUNDLED_HEADERS:
        return {"use_bundled_headers": True}
    from cuda import pathfinder

    folder = pathfinder.find_nvidia_header_directory("cudart")
    if folder is None:
        package = "nvidia-cuda-runtime-cu12" if version[0] == 12 else "nvidia-cuda-runtime"
        raise RuntimeError(f"The CUDA headers are not there: run `pip install {package}`.")
    return {"include_path": [folder]}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing but answers goes to the pipe
    print(json.dumps({"missing": what_is_missing()}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(compile_one(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
