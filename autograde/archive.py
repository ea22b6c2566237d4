"""Reads zips that nobody vouches for: no links, no paths that escape, bounded sizes, one zip inside another."""

from __future__ import annotations

import io
import re
import stat
import zipfile
import zlib
from dataclasses import dataclass
from datetime import datetime

from autograde.folders import TIMESTAMP, shown
from autograde.lms import is_junk
from autograde.reading import MAX_BYTES

MAX_ENTRIES = 20_000
MAX_STUDENT = 4 * MAX_BYTES  # all files of one student together
UNPACK_ERRORS = (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError, ValueError)


@dataclass
class Entry:
    """One file of an archive: its path inside, its bytes, when it was changed."""

    path: tuple[str, ...]
    raw: bytes
    modified: float


def opened(entry: Entry, refused: list[str]) -> list[Entry]:
    """A zip inside the zip is opened once; a zip inside that one is refused."""
    if not entry.path[-1].lower().endswith(".zip"):
        return [entry]
    try:
        inner = zipfile.ZipFile(io.BytesIO(entry.raw))
    except UNPACK_ERRORS:
        refused.append(f"{shown(entry.path[-1])}: a zip that cannot be opened")
        return []
    found: list[Entry] = []
    left = MAX_STUDENT
    with inner:
        for info in inner.infolist()[:MAX_ENTRIES]:
            path = safe_path(info)
            if info.is_dir() or (path is not None and is_junk(path)):
                continue
            if path is None or stat.S_ISLNK(info.external_attr >> 16):
                refused.append(f"{shown(info.filename)} in {shown(entry.path[-1])}: a link, or out of the folder")
            elif path[-1].lower().endswith(".zip"):
                refused.append(f"{shown(path[-1])}: a zip inside a zip inside a zip")
            elif path[-1].lower().endswith(".ipynb"):
                one = read_entry(inner, info, path, refused, left)
                found += [one] if one is not None else []
                left -= len(one.raw) if one is not None else 0
            else:
                found.append(Entry(path, b"", 0.0))
    return found


def read_entry(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: tuple[str, ...], refused: list[str], most: int = MAX_BYTES
) -> Entry | None:
    """The bytes of one file, at most `most`; what it claims about its size is not believed."""
    most = min(most, MAX_BYTES)
    name = path[-1].lower()
    if not (name.endswith((".ipynb", ".zip")) or name == TIMESTAMP):
        return Entry(path, b"", 0.0)
    try:
        if info.file_size > most:
            raise ValueError("too large")
        with archive.open(info) as file:
            raw = file.read(most + 1)
        if len(raw) > most:
            raise ValueError("too large")
    except UNPACK_ERRORS as error:
        why = "too large" if str(error) == "too large" else "damaged or encrypted"
        refused.append(f"{shown('/'.join(path))}: {why}")
        return None
    return Entry(path, raw, _modified(info))


def safe_path(info: zipfile.ZipInfo) -> tuple[str, ...] | None:
    """The parts of a path inside the archive; None when it would lead out of the folder."""
    name = info.filename
    if not info.flag_bits & 0x800:  # not marked as UTF-8, yet most archives are
        try:
            name = name.encode("cp437").decode("utf-8")
        except (UnicodeEncodeError, UnicodeDecodeError):
            name = info.filename
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or re.match("[A-Za-z]:", name) or "\0" in name:
        return None
    return tuple(part for part in parts if part and part != ".") or None


def _modified(info: zipfile.ZipInfo) -> float:
    try:
        return datetime(*info.date_time).timestamp()
    except (ValueError, OverflowError):
        return 0.0
