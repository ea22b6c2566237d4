"""Names for students: safe for folders and for nbgrader's patterns, stable from zip to zip, never shared by two."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass

from autograde.coursedir import Course, read_json, write_atomically

UNSAFE = str.maketrans({"[": "(", "]": ")", "*": "_", "?": "_", "/": "_", "\\": "_", ":": "_", "+": "_", "|": "_"})
MAX_LENGTH = 100


@dataclass(frozen=True)
class Owner:
    """Who a file of an LMS export belongs to. `kind` is the LMS, `key` what it tells students apart by."""

    kind: str  # "name", "moodle" or "canvas"
    key: str
    name: str
    file: str
    scope: str = ""  # Moodle's numbers are per assignment
    late: bool = False

    @property
    def origin(self) -> str:
        return ":".join(filter(None, (self.kind, self.scope, self.key)))


def safe_name(name: str) -> str:
    """`name` without characters that folders or nbgrader's patterns stumble on; composed Unicode, no outer blanks."""
    name = unicodedata.normalize("NFC", name).translate(UNSAFE)
    name = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in name)).strip().lstrip(".")
    name = name.encode("utf-8")[:MAX_LENGTH].decode("utf-8", "ignore")
    return name or "unnamed"


class Names:
    """The class's memory of which origin got which id, kept in `.kvgrade/students.json`."""

    def __init__(self, course: Course) -> None:
        self.path = course.state / "students.json"
        self.ids: dict[str, str] = read_json(self.path) or {}

    def of(self, owner: Owner) -> str:
        """The id of an owner; a number is added when another student of the same kind has the name already."""
        if owner.origin not in self.ids:
            wanted = safe_name(owner.name)
            tries = [wanted, *([safe_name(f"{owner.name} ({owner.key})")] if owner.kind == "moodle" else [])]
            tries += [f"{wanted} ({number})" for number in range(2, 10_000)]
            self.ids[owner.origin] = next(name for name in tries if not self._taken(name, owner))
            write_atomically(self.path, json.dumps(self.ids, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        return self.ids[owner.origin]

    def _taken(self, name: str, owner: Owner) -> bool:
        """By somebody else: another origin of the same kind (and, for Moodle, of the same assignment)."""
        prefix = ":".join(filter(None, (owner.kind, owner.scope))) + ":"
        return any(i.casefold() == name.casefold() and o.startswith(prefix) for o, i in self.ids.items())
