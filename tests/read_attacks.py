"""Reads the hostile notebooks of `attacks/`: what a student could write to get points without the work, or to do harm.

Each is a text of cells. `# %%` begins a cell that runs before the solutions, `# %% small.1` a false solution (the other
tasks are stubs), `# %% file name` a file of the submission. Lines at the top: `honest` (tasks that are solved beside it
and keep their points), `limits`, `tags` of all cells, `stops` (the error its cells end in), `slow`. The cells may use
COURSE and PROJECT (folders they would like to reach) and PORT (a listener). They only ever run in the sandbox.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "attacks"
CELL = re.compile(r"^# %%[ ]*(.*)$", re.MULTILINE)
SETTING = re.compile(r"^# (\w+): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Attack:
    """One hostile notebook; only the tasks of `honest` may earn points."""

    name: str
    what: str
    cells: tuple[str, ...]
    code: dict[str, str]
    files: dict[str, str]
    honest: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)
    stops: str = ""
    slow: bool = False


def read_attacks() -> list[Attack]:
    return [read_attack(path) for path in sorted(FOLDER.glob("*.py"))]


def read_attack(path: Path) -> Attack:
    head, *parts = CELL.split(path.read_text(encoding="utf-8"))
    pairs = [(title.strip(), text.strip()) for title, text in zip(parts[::2], parts[1::2], strict=True)]
    settings = dict(SETTING.findall(head))
    limits = dict(pair.split("=") for pair in _words(settings.get("limits", "")))
    return Attack(
        name=path.stem,
        what=head.splitlines()[1].removeprefix("# "),
        cells=tuple(text for title, text in pairs if not title),
        code={title: text for title, text in pairs if title and not title.startswith("file ")},
        files={title.removeprefix("file "): text for title, text in pairs if title.startswith("file ")},
        honest=_words(settings.get("honest", "")),
        tags=_words(settings.get("tags", "")),
        limits={name: float(value) if "." in value else int(value) for name, value in limits.items()},
        stops=settings.get("stops", ""),
        slow="# slow" in head.splitlines(),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(", ") if word)
