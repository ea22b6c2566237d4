"""Limits on memory and processes for a whole group, where this machine lets us make control groups (v1 or v2)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

SWEEP_SECONDS = 5.0


@dataclass
class Cgroup:
    """One group, which may be several folders (v1 has one a controller) or none (nothing is writable here)."""

    folders: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def create(cls, memory: int, processes: int) -> Cgroup:
        """A new group with limits on bytes of memory and number of processes, as far as the machine allows."""
        group, name = cls(), f"kvcourse-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        for controller in ("memory", "pids"):
            for parent in _parents(controller):
                _remove_stale(parent)
                folder = parent / name
                if _limited(folder, controller, memory if controller == "memory" else processes):
                    group.folders[controller] = folder
                    break
        return group

    def add(self, pid: int) -> None:
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def sweep(self) -> bool:
        """Kill what is left in the group and remove it; True when nothing is left."""
        end = time.monotonic() + SWEEP_SECONDS
        while (left := self._pids()) and time.monotonic() < end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        for folder in set(self.folders.values()):
            while folder.is_dir() and time.monotonic() < end:
                try:
                    folder.rmdir()
                except OSError:  # busy until the kernel has cleared up behind the last process
                    time.sleep(0.01)
        return not self._pids()

    def _pids(self) -> set[int]:
        pids: set[int] = set()
        for folder in set(self.folders.values()):
            with contextlib.suppress(OSError):
                pids |= {int(line) for line in (folder / "cgroup.procs").read_text().split()}
        return pids - {0}


def _limited(folder: Path, controller: str, limit: int) -> bool:
    """Make `folder` and set its limit; False, and no folder left behind, where that is not possible."""
    files = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}[controller]
    try:
        folder.mkdir(exist_ok=True)
        if not any((folder / name).exists() for name in files):
            (folder.parent / "cgroup.subtree_control").write_text(f"+{controller}")
        name = next(name for name in files if (folder / name).exists())
        (folder / name).write_text(str(limit))
        assert os.access(folder / "cgroup.procs", os.W_OK)
    except (OSError, StopIteration, AssertionError):
        with contextlib.suppress(OSError):
            folder.rmdir()
        return False
    for swap, value in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", limit)):
        with contextlib.suppress(OSError):
            if (folder / swap).exists():
                (folder / swap).write_text(str(value))
    return True


def _parents(controller: str) -> list[Path]:
    """Folders under which a group for `controller` may be made: our own group first, then its parent."""
    places: list[Path] = []
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    for _, controllers, path in own:
        for _, point, kind, options, *_ in mounts:
            v1 = kind == "cgroup" and controller in controllers.split(",") and controller in options.split(",")
            v2 = kind == "cgroup2" and controllers == ""
            if v1 or v2:
                inside = Path(point) / path.lstrip("/")
                places += [inside, inside.parent] if inside != Path(point) else [inside]
                places += [Path(point)] if v1 else []
    return [place for place in dict.fromkeys(places) if place.is_dir()]


def _remove_stale(parent: Path) -> None:
    """Empty groups of graders that are gone."""
    for folder in parent.glob("kvcourse-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
