"""Runs the CUDA tasks of the package mlsys-lab (MIT) on our executor: its own checks decide, only the executor is ours.

Its numbers are Python floats, so each launch runs twice: with `float` written as `double`, for the results that its
checks compare, and as it stands, for the counters.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch

from kvcourse.cuda import Kernel

ONE = ("exp", "log", "sqrt", "rsqrt", "fabs", "floor", "ceil", "tanh")
IN_DOUBLE = "".join(f"#define {name}f(x) {name}((double)(x))\n" for name in ONE)
IN_DOUBLE += "".join(f"#define {name}f(x, y) {name}((double)(x), (double)(y))\n" for name in ("fmax", "fmin", "pow"))
IN_DOUBLE += "#define __expf(x) exp((double)(x))\n"
INTEGER_POINTER = re.compile(r"\b(unsigned\s+int|unsigned|int|long\s+long|long|size_t)\s*\*")


@dataclass
class Record:
    """What one launch gave on both executors."""

    same_memory: bool
    same_lines: bool
    same_waves: bool
    faults: list[str] = field(default_factory=list)


class OurProgram:
    """Stands in for the package's CudaProgram; a copy of theirs runs first, for the metrics that are not ours."""

    original: type
    records: ClassVar[list[Record]] = []

    def __init__(self, source: str) -> None:
        self.source, self.theirs = source, type(self).original(source)

    def launch(self, gpu: Any, name: str, grid: Any, block: Any, params: dict[str, Any]) -> dict[str, Any]:
        before = gpu.gmem.copy()
        metrics = dict(self.theirs.launch(gpu, name, grid, block, dict(params)))
        want = gpu.gmem.copy()
        declared = self._parameters(name)
        doubles, _ = self._run_in_double(name, grid, block, params, declared, before)
        counters, faults = self._count(name, grid, block, params, declared, before)
        same = np.array_equal(doubles, want, equal_nan=True)
        lines, waves = metrics["transactions"] == counters["lines"], metrics["smem_waves"] == counters["waves"]
        self.records.append(Record(same, lines, waves, faults))
        gpu.gmem[:] = doubles
        return {**metrics, "result": gpu.gmem, "transactions": counters["lines"], "smem_waves": counters["waves"]}

    def _parameters(self, name: str) -> list[tuple[str, str]]:
        """(declaration, name) of each parameter."""
        plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", self.source, flags=re.DOTALL)
        inside = re.search(rf"__global__\s+void\s+{name}\s*\(([^)]*)\)", plain, re.DOTALL)
        assert inside is not None
        parts = [part.strip() for part in inside.group(1).split(",") if part.strip()]
        return [(part, re.search(r"(\w+)$", part).group(1)) for part in parts]  # type: ignore[union-attr]

    def _run_in_double(self, name, grid, block, params, declared, before):
        source = re.sub(r"\bfloat\b", "double", re.sub(r"\bfloat4\b", "double4", self.source))
        for part, _ in declared:
            source = source.replace(part, INTEGER_POINTER.sub("double*", part))
        memory = torch.from_numpy(before.copy())
        arguments = [memory[int(params[n]) :] if "*" in part else _number(part, params[n]) for part, n in declared]
        report = Kernel(IN_DOUBLE + source, name).check(_dims(grid), _dims(block), *arguments)
        return memory.numpy(), report

    def _count(self, name, grid, block, params, declared, before):
        memory = before.astype(np.float32)
        starts = [*sorted({int(params[n]) for part, n in declared if "*" in part}), len(memory)]
        for part, n in declared:
            if INTEGER_POINTER.search(part):
                start = int(params[n])
                end = next(s for s in starts if s > start)
                memory[start:end] = before[start:end].astype(np.int32).view(np.float32)
        floats = torch.from_numpy(memory)
        arguments = []
        for part, n in declared:
            if "*" not in part:
                arguments.append(_number(part, params[n]))
                continue
            view = floats[int(params[n]) :]
            arguments.append(view.view(torch.int32) if INTEGER_POINTER.search(part) else view)
        report = Kernel(self.source, name).check(_dims(grid), _dims(block), *arguments)
        return report.counters.as_dict(), [str(fault) for fault in (*report.faults, *report.notes)]


def _number(declaration: str, value: Any) -> int | float:
    return float(value) if re.search(r"\b(float|double)\b", declaration) else int(value)


def _dims(size: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in size) if isinstance(size, tuple | list) else (int(size),)


def tasks_folder() -> Path:
    spec = importlib.util.find_spec("mlsys")
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))) / "tasks"


def cuda_tasks() -> list[Path]:
    folders = sorted(folder for folder in tasks_folder().iterdir() if (folder / "meta.json").exists())
    return [folder for folder in folders if json.loads((folder / "meta.json").read_text()).get("native") == "cuda"]


def grade(folder: Path, source: Path | None = None) -> tuple[bool, list[Record], str]:
    """(do the task's own gates pass, what each launch gave, why not)."""
    simulator = importlib.import_module("mlsys.sim")
    if not hasattr(OurProgram, "original"):
        OurProgram.original = simulator.CudaProgram
    OurProgram.records = []
    simulator.CudaProgram = OurProgram
    try:
        check = _load(folder / "check.py")
        check.CudaProgram = OurProgram
        result = check.grade(str(source) if source else "ref.cu")
    except Exception as error:  # the task's check, whatever it does
        return False, OurProgram.records, repr(error)
    finally:
        simulator.CudaProgram = OurProgram.original
    if result.get("error"):
        return False, OurProgram.records, str(result["error"])
    for gate in json.loads((folder / "meta.json").read_text())["gates"]:
        value, limit = result.get(gate["metric"]), gate["threshold"]
        holds = {"<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b, "==": lambda a, b: a == b}[gate["op"]]
        if value is None or not holds(value, limit):
            return False, OurProgram.records, f"{gate['metric']} is {value}, not {gate['op']} {limit}"
    return True, OurProgram.records, ""


def _load(file: Path) -> ModuleType:
    name = "peer_" + re.sub(r"\W", "_", file.parent.name)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
