"""The learner's record: one readable JSON file that survives kernels and browsers and never breaks a check."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def record_path() -> Path:
    """`$KVCOURSE_HOME/progress.json`, by default in `.kvcourse` of the home folder."""
    home = os.environ.get("KVCOURSE_HOME")
    return (Path(home) if home else Path.home() / ".kvcourse") / "progress.json"


def load_record() -> dict[str, dict[str, Any]]:
    """Entries by task name; an unreadable file counts as empty and is kept beside the new one as `.broken`."""
    path = record_path()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or not all(isinstance(entry, dict) for entry in data.values()):
            raise ValueError("not a record")
        return data
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".broken"))
        return {}


def update_record(task: str, **changes: Any) -> str:
    """Merge `changes` into the entry of `task`; returns "" or one sentence saying why nothing was recorded."""
    try:
        with _locked():
            record = load_record()
            entry = record.setdefault(task, {"hints": 0, "checks": 0})
            entry.update(changes, when=datetime.now(UTC).isoformat(timespec="seconds"))
            _write(record)
        return ""
    except OSError as error:
        return f"Your progress was not recorded ({error.strerror or error}): check that {record_path()} can be written."


def _write(record: dict[str, dict[str, Any]]) -> None:
    path = record_path()
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        fresh.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Two notebooks may check at once: the second waits, so no entry is lost."""
    path = record_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
