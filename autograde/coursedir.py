"""A teacher's course folder: where things lie, the class seed, and the checks that it is this course's folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcourse.tasks.course import Lesson, UserError, find_lesson, load_course

COURSE_ID = "kvcourse"
CONFIG = """from autograde.nbgrader_config import configure
configure(get_config(), __file__)  # noqa: F821 - given by nbgrader; your own settings go below
"""
IGNORED = """# Secrets and students' work: solutions, the class seed, submissions, grades.
.kvgrade/
gradebook.db*
source/
submitted/
autograded/
feedback/
*.csv
"""
SEED_BYTES = 32


@dataclass(frozen=True)
class Course:
    """The folders of one class; nbgrader's own layout, plus `.kvgrade/` for what nbgrader has no place for."""

    root: Path

    @property
    def state(self) -> Path:
        return self.root / ".kvgrade"

    @property
    def gradebook(self) -> Path:
        return self.root / "gradebook.db"

    @property
    def seed_file(self) -> Path:
        return self.state / "class_seed"

    @property
    def log_file(self) -> Path:
        return self.state / "kvgrade.log"

    @property
    def submissions(self) -> Path:
        return self.root / "submitted"

    def submitted(self, student: str, lesson: Lesson) -> Path:
        return self.submissions / student / lesson.name

    def autograded(self, student: str, lesson: Lesson) -> Path:
        return self.root / "autograded" / student / lesson.name / f"{lesson.notebook}.ipynb"

    def feedback(self, student: str, lesson: Lesson) -> Path:
        return self.root / "feedback" / student / lesson.name / f"{lesson.notebook}.html"

    def release(self, lesson: Lesson) -> Path:
        return self.root / "release" / lesson.name / f"{lesson.notebook}.ipynb"

    def released(self) -> list[Lesson]:
        """The lessons whose release lies in the folder, in the course's order."""
        return [lesson for lesson in load_course() if self.release(lesson).is_file()]

    def seed(self) -> bytes:
        """The class secret that hidden inputs are drawn from; made on first use, never silently replaced."""
        if not self.seed_file.is_file():
            if self._has_grades():
                where = self.seed_file.relative_to(self.root)
                raise UserError(
                    f"{where} is missing although grades exist: put it back from your backup, "
                    "or run `kvgrade release LESSON --new-seed` to draw new inputs and grade everything again."
                )
            self.new_seed()
        if self.seed_file.stat().st_mode & 0o077:
            self.seed_file.chmod(0o600)
        seed = bytes.fromhex(self.seed_file.read_text(encoding="ascii").strip())
        if len(seed) != SEED_BYTES:
            raise UserError(f"{self.seed_file.name} is damaged: put it back from your backup.")
        return seed

    def new_seed(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        fresh = self.seed_file.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secrets.token_hex(SEED_BYTES) + "\n")
        fresh.replace(self.seed_file)

    def _has_grades(self) -> bool:
        if any((self.state / "results").glob("*/*.json")):
            return True
        return self.gradebook.is_file() and bool(_rows(self.gradebook, "SELECT id FROM submitted_assignment LIMIT 1"))


def open_course(root: Path) -> Course:
    """The course folder that `root` is or lies in; UserError for none, and for the gradebook of another course."""
    around = [root.resolve(), *root.resolve().parents]
    course = next((Course(place) for place in around if (place / ".kvgrade" / "course.json").is_file()), None)
    if course is None:
        raise UserError(
            f"{root.resolve()} is not a course folder: go to yours (or name it with --course), "
            "or start one here with `kvgrade release LESSON`."
        )
    config = course.root / "nbgrader_config.py"
    if not config.is_file() or "autograde.nbgrader_config" not in config.read_text(encoding="utf-8"):
        lines = " and ".join(f"`{line.split('  #')[0]}`" for line in CONFIG.splitlines())
        raise UserError(f"nbgrader_config.py in {course.root} does not load kvcourse: add the lines {lines}.")
    check_gradebook(course)
    return course


def create_course(root: Path, new_seed: bool = False) -> Course:
    """Make `root` a course folder, or complete it; nothing that exists is overwritten, the seed only when asked for."""
    root = root.resolve()
    if (root / "pyproject.toml").exists():
        raise UserError(f"{root} looks like a source folder: make a folder of its own for the class and go there.")
    if set(str(root)) & set("[]*?"):
        raise UserError(
            f"{root} has one of []*? in its path, which nbgrader reads as a pattern: choose another folder."
        )
    config = root / "nbgrader_config.py"
    if config.is_file() and "autograde.nbgrader_config" not in config.read_text(encoding="utf-8"):
        raise UserError(f"{root} already has an nbgrader_config.py of another course: make a folder of its own.")
    course = Course(root)
    check_gradebook(course)
    try:
        for folder in (course.state, course.submissions):
            folder.mkdir(parents=True, exist_ok=True)
        for path, text in (
            (config, CONFIG),
            (root / ".gitignore", IGNORED),
            (course.state / "course.json", json.dumps({"course": COURSE_ID}) + "\n"),
        ):
            if not path.exists():
                path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"The course folder {root} cannot be written: {error.strerror}.") from None
    course.state.chmod(0o700)
    if new_seed:
        course.new_seed()
    course.seed()
    return course


def check_gradebook(course: Course) -> None:
    """UserError when gradebook.db is no gradebook, or holds assignments that this course does not have."""
    if not course.gradebook.is_file() or course.gradebook.stat().st_size == 0:
        return
    try:
        stored = _rows(
            course.gradebook,
            "SELECT a.name, a.course_id, n.name FROM assignment a LEFT JOIN notebook n ON n.assignment_id = a.id",
        )
    except sqlite3.DatabaseError:
        raise UserError(
            "gradebook.db is not an nbgrader gradebook: move it away, or restore it from a backup."
        ) from None
    notebooks = {lesson.name: lesson.notebook for lesson in load_course()}
    for assignment, course_id, notebook in stored:
        same = notebooks.get(assignment) == notebook or (assignment in notebooks and notebook is None)
        if course_id != COURSE_ID or not same:
            raise UserError(
                f"gradebook.db belongs to another course: it holds the assignment {assignment!r} of course "
                f"{course_id!r}, and {COURSE_ID} has {', '.join(notebooks)}. Use a folder of its own for each course."
            )


def max_points(course: Course, lesson: Lesson) -> dict[str, float]:
    """The most points of every graded cell that the gradebook knows for a lesson, by the cell's id."""
    if not course.gradebook.is_file():
        return {}
    query = (
        "SELECT b.name, g.max_score FROM grade_cells g JOIN base_cell b ON b.id = g.id JOIN notebook n "
        "ON n.id = b.notebook_id JOIN assignment a ON a.id = n.assignment_id WHERE a.name = ? AND n.name = ?"
    )
    return dict(_rows(course.gradebook, query, lesson.name, lesson.notebook))


def released_lesson(course: Course, name: str) -> Lesson:
    """The lesson called `name`; UserError when there is none or it is not released in this folder."""
    lesson = find_lesson(name)
    if not course.release(lesson).is_file():
        raise UserError(f"Lesson {name!r} is not released in this folder: run `kvgrade release {name}` first.")
    return lesson


@contextlib.contextmanager
def only_one(course: Course) -> Iterator[None]:
    """Hold the folder's lock: the gradebook has one writer."""
    with open(course.state / "lock", "w") as lock:
        with contextlib.suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError("Another kvgrade is at work in this folder: wait until it has ended.") from None
        yield


def read_json(path: Path) -> Any:
    """The content of a JSON file, or None when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_atomically(path: Path, text: str) -> None:
    """Either the whole new text or the old file, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{hashlib.sha256(path.name.encode()).hexdigest()[:12]}.{os.getpid()}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _rows(database: Path, query: str, *values: str) -> list[tuple]:
    """Read-only, so that looking never creates or changes a gradebook; patient with a writer."""
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute(query, values).fetchall()
