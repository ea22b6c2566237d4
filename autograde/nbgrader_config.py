"""Everything a course folder tells nbgrader, in one function that its own two-line nbgrader_config.py calls."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine
from traitlets.config import Config

from autograde.build import assignment_config
from autograde.coursedir import COURSE_ID

PATIENCE_MS = 60_000
EXTRA_FILES = [
    "*.py",
    "*.so",
    "*.sh",
    "*.pth",
    "*.html",
    "*.htm",
    "*.svg",
    "*.js",
    "*.xml",
    "*.exe",
    "*.zip",
    "*.ipynb_*",
]


def configure(config: Config, config_file: str | Path) -> None:
    """Set nbgrader up for the course folder that `config_file` lies in. Settings made after this call win."""
    from nbgrader.preprocessors import AssignLatePenalties, CheckCellMetadata

    from autograde import export, feedback, hooks

    config.merge(assignment_config())
    config.CourseDirectory.root = str(Path(config_file).resolve().parent)
    config.CourseDirectory.course_id = COURSE_ID
    config.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", *EXTRA_FILES]
    config.Autograde.exporter_class = hooks.SubmissionExporter
    config.Autograde.pre_convert_hook = hooks.prepare_submission
    config.Autograde.sanitize_preprocessors = [hooks.Sanitize, CheckCellMetadata]
    config.Autograde.autograde_preprocessors = [
        hooks.TrustedExecute,
        hooks.SaveGrades,
        AssignLatePenalties,
        CheckCellMetadata,
    ]
    config.GenerateFeedback.exporter_class = feedback.FeedbackExporter
    config.GenerateFeedback.preprocessors = [feedback.Grades]
    config.ExportApp.plugin_class = export.NbgraderCsv
    find_own_programs()
    be_patient()


def find_own_programs() -> None:
    """nbgrader starts `alembic` by name: it lies beside our Python, also when that folder is not on the path."""
    own = str(Path(sys.executable).parent)
    if own not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([own, os.environ.get("PATH", "")])


def be_patient() -> None:
    """Let sqlite wait for another writer (formgrader, say) for a minute; nbgrader gives up after 5 seconds."""
    if not event.contains(Engine, "connect", _wait_when_busy):
        event.listen(Engine, "connect", _wait_when_busy)


def _wait_when_busy(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
