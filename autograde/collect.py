"""Takes notebooks, and nothing else, out of LMS zips into nbgrader's layout, `submitted/STUDENT/LESSON/`."""

from __future__ import annotations

import hashlib
import json
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from autograde.archive import MAX_ENTRIES, MAX_STUDENT, Entry, opened, read_entry, safe_path
from autograde.coursedir import Course, read_json, write_atomically
from autograde.folders import TIMESTAMP, read_notes, replace_old, shown, write_notes
from autograde.intake import Candidate, best, candidate, read_release
from autograde.lms import is_junk, lesson_of, owners
from autograde.reading import MAX_BYTES
from autograde.students import Names, Owner
from kvcourse.tasks.course import Lesson, UserError


@dataclass
class Handed:
    """What one student handed in for one lesson inside an archive."""

    owner: Owner
    lesson: Lesson
    entries: list[Entry] = field(default_factory=list)


def collect_waiting(course: Course, lesson: Lesson | None) -> list[str]:
    """Collect the zips that lie in `submitted/` and were not collected before."""
    seen_file = course.state / "collected.json"
    seen: dict[str, str] = read_json(seen_file) or {}
    said: list[str] = []
    for path in sorted(course.submissions.glob("*.zip")):
        key = hashlib.sha256(path.read_bytes()).hexdigest() if not path.is_symlink() and path.is_file() else ""
        if key and key not in seen:
            said += collect_zip(course, path, lesson)
            seen[key] = path.name
            write_atomically(seen_file, json.dumps(seen, indent=1, ensure_ascii=False) + "\n")
    return said


def collect_zip(course: Course, path: Path, lesson: Lesson | None = None) -> list[str]:
    """Take every student's notebook out of a zip; sentences on what came in and what was left out.

    A later zip replaces a student's earlier submission, which moves to `.kvgrade/replaced/`.
    """
    lessons = [lesson] if lesson else course.released()
    if not lessons:
        raise UserError("No lesson is released in this folder: start with `kvgrade release LESSON`.")
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{path.name} cannot be opened as a zip ({error}).") from None
    refused: list[str] = []
    names, taken = Names(course), 0
    with archive:
        for handed in _by_student(archive, path.stem, lessons, lesson, refused):
            student = names.of(handed.owner)
            _take(course, student, handed, path.name)
            taken += 1
    said = [f"{path.name}: {taken} submission{'s' * (taken != 1)} collected."]
    return said + [f"{path.name}: left out {line}" for line in refused]


def open_own_zips(course: Course, student: str, lesson: Lesson) -> None:
    """A student handed in a zip instead of a notebook: take the notebook out of it."""
    folder = course.submitted(student, lesson)
    zips = [
        p for p in sorted(folder.glob("*.zip")) if p.is_file() and not p.is_symlink() and p.stat().st_size <= MAX_BYTES
    ]
    if not zips or any(folder.glob("*.ipynb")):
        return
    refused: list[str] = []
    entries = [e for path in zips for e in opened(Entry((path.name,), path.read_bytes(), 0.0), refused)]
    found = [candidate(e.path[-1], e.raw, e.modified) for e in entries if e.path[-1].lower().endswith(".ipynb")]
    pick = best(found, lesson, read_release(course, lesson))
    notes = [*read_notes(course, student, lesson), *(f"left out {line}" for line in refused)]
    if pick is not None:
        (folder / f"{lesson.notebook}.ipynb").write_bytes(pick.raw)
        notes.append(f"the notebook was taken out of {', '.join(shown(path.name) for path in zips)}")
    write_notes(course, student, lesson, notes)


def _by_student(
    archive: zipfile.ZipFile, name: str, lessons: list[Lesson], chosen: Lesson | None, refused: list[str]
) -> Iterator[Handed]:
    """The archive's files, student by student, so that one submission at a time is in memory."""
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if len(infos) > MAX_ENTRIES:
        raise UserError(f"{name}.zip holds {len(infos):,} files; at most {MAX_ENTRIES:,} are read: split it.")
    paths, kept = [], []
    for info in infos:
        path = safe_path(info)
        if path is None:
            refused.append(f"{shown(info.filename)}: a path that leaves the folder")
        elif stat.S_ISLNK(info.external_attr >> 16):
            refused.append(f"{shown(info.filename)}: a link")
        elif not is_junk(path):
            paths.append(path)
            kept.append(info)
    groups: dict[tuple[str, str], tuple[Owner, Lesson, list[tuple[zipfile.ZipInfo, tuple[str, ...]]]]] = {}
    for info, path, owner in zip(kept, paths, owners(paths, name, lessons), strict=True):
        lesson = lesson_of(path, lessons, chosen)
        if owner is None and not path[-1].lower().endswith((".ipynb", ".zip")):
            continue  # a file of the export itself
        if owner is None or lesson is None:
            what = "whose it is cannot be told" if owner is None else "name its lesson with --lesson"
            refused.append(f"{shown('/'.join(path))}: {what}")
            continue
        if owner.kind == "moodle":
            owner = replace(owner, scope=lesson.name)
        own_path = tuple(owner.file.split("/")) if owner.file else path[-1:]
        groups.setdefault((owner.origin, lesson.name), (owner, lesson, []))[2].append((info, own_path))
    for owner, lesson, files in groups.values():
        handed, left = Handed(owner, lesson), MAX_STUDENT
        for info, path in files:
            entry = read_entry(archive, info, path, refused, left)
            if entry is not None:
                left -= len(entry.raw)
                handed.entries += opened(entry, refused)
        yield handed


def _take(course: Course, student: str, handed: Handed, archive: str) -> None:
    """Write the best notebook of a submission under nbgrader's name; the notes tell what else there was."""
    lesson, wanted = handed.lesson, f"{handed.lesson.notebook}.ipynb"
    found: list[Candidate] = []
    left: list[str] = []
    for entry in handed.entries:
        name = entry.path[-1]
        if name.lower().endswith(".ipynb"):
            found.append(candidate(name, entry.raw, entry.modified))
        elif name != TIMESTAMP:
            left.append(name)
    pick = best(found, lesson, read_release(course, lesson))
    notes = [f"handed in late, says {archive}"] if handed.owner.late else []
    if left:
        notes.append(f"only the notebook is graded; left out: {', '.join(shown(name) for name in sorted(left)[:5])}")
    if pick is not None and pick.name != wanted:
        notes.append(f"the notebook was handed in as {shown(pick.name)}")
    others = sorted({c.name for c in found if pick is not None and c.raw != pick.raw})
    if others:
        notes.append(f"of several notebooks the one with most work was graded; not {', '.join(map(shown, others[:5]))}")
    folder = course.submitted(student, lesson)
    existing = folder / wanted
    unchanged = pick is not None and existing.is_file() and existing.read_bytes() == pick.raw
    if not unchanged and replace_old(course, student, lesson):
        notes.append("it replaces an earlier submission")
    if unchanged and read_notes(course, student, lesson):
        return  # the very same submission: what was noted about it stands
    folder.mkdir(parents=True, exist_ok=True)
    if pick is not None and not unchanged:
        existing.write_bytes(pick.raw)
    for entry in handed.entries:
        own = entry.path in ((TIMESTAMP,), (lesson.name, TIMESTAMP))
        if own and handed.owner.kind == "name":  # of an nbgrader folder; in other exports a student could write it
            (folder / TIMESTAMP).write_bytes(entry.raw[:100])
    write_notes(course, student, lesson, notes)
