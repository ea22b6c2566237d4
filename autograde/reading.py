"""Reads whatever was handed in as a notebook: Jupyter, Colab and old formats, with keys missing; or says why not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import nbformat

MAX_BYTES = 50_000_000
MAX_CELLS = 2_000
OLD_FORMAT = "it was saved in an old notebook format and was converted"
REPAIRED = "parts of the file's structure were missing; what is there was read"


class Unreadable(Exception):
    """Why a file cannot be read as a notebook, in one sentence."""


@dataclass(frozen=True)
class Cell:
    """A submitted cell, only what grading uses. `ids`: the names it may be known by (grade id, cell id, Colab's id)."""

    kind: str  # "code", "markdown" or "raw"
    source: str
    ids: tuple[str, ...] = ()


def read_cells(raw: bytes) -> tuple[list[Cell], list[str]]:
    """The cells of a submitted notebook and notes about repairs; Unreadable with a sentence otherwise."""
    data, notes = _notebook(raw), []
    if "cells" not in data and isinstance(data.get("worksheets"), list):
        data, notes = _converted(data), [OLD_FORMAT]
    entries = data.get("cells")
    if not isinstance(entries, list):
        raise Unreadable("the file holds no list of cells: it is not a notebook")
    if len(entries) > MAX_CELLS:
        raise Unreadable(f"the notebook has {len(entries):,} cells; at most {MAX_CELLS:,} are read")
    cells = [cell for cell in map(_cell, entries) if cell is not None]
    whole = all(isinstance(e, dict) and {"cell_type", "source", "metadata"} <= e.keys() for e in entries)
    if not whole or len(cells) < len(entries):
        notes.append(REPAIRED)
    if not cells:
        raise Unreadable("the notebook has no cells")
    return cells, notes


def _notebook(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_BYTES:
        raise Unreadable(f"the file has {len(raw) / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} MB are read")
    start = raw[:200].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if not start:
        raise Unreadable("the file is empty")
    if start.startswith((b"<!doctype", b"<html")):
        raise Unreadable("the file is a web page: hand in the notebook itself (File > Download, .ipynb)")
    if start.startswith(b"pk\x03\x04"):
        raise Unreadable("the file is a zip archive with the ending of a notebook")
    try:
        data = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Unreadable("the file is not text in UTF-8: it is damaged or not a notebook") from None
    except (ValueError, RecursionError):
        raise Unreadable("the file is not valid JSON: it is damaged or was cut off") from None
    if not isinstance(data, dict):
        raise Unreadable("the file is JSON, but not a notebook")
    version = data.get("nbformat", 4)
    if not isinstance(version, int) or version > nbformat.current_nbformat:
        raise Unreadable(f"the notebook was saved in the unknown format {str(version)[:20]!r}")
    return data


def _converted(data: dict[str, Any]) -> dict[str, Any]:
    try:
        return nbformat.reads(json.dumps(data), as_version=4)
    except Exception:
        raise Unreadable("the notebook was saved in an old format and cannot be converted: save it again") from None


def _cell(entry: Any) -> Cell | None:
    if not isinstance(entry, dict) or entry.get("cell_type") not in ("code", "markdown", "raw"):
        return None
    source = entry.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    if not isinstance(source, str):
        return None
    metadata = entry.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    grading = metadata.get("nbgrader")
    names = ((grading if isinstance(grading, dict) else {}).get("grade_id"), entry.get("id"), metadata.get("id"))
    source = source.replace("\r\n", "\n").encode("utf-8", "replace").decode("utf-8")  # no lone surrogates downstream
    return Cell(entry["cell_type"], source, tuple(name for name in names if isinstance(name, str) and name))
