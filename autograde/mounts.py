"""What the sandbox shows of this machine, read-only: the system, Python and its packages, not the course's files."""

from __future__ import annotations

import site
import sys
from collections.abc import Mapping
from pathlib import Path

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "fonts")
SECRET = ("autograde", "kvcourse", "solutions", "tests")  # a copy of kvcourse is mounted elsewhere, without some parts


def mounts(
    own: Mapping[str, tuple[str, ...]], project: Path | None = None, work: Path | None = None, *, python: bool = True
) -> list[str]:
    """Options of bubblewrap, outer folders first, so that an inner entry wins over the folder it lies in.

    `own` are the sandbox's own places. `project` (where the package `autograde` lies) and `work` (the current folder)
    are hidden where something else would show them. Without `python` only the system is shown.
    """
    project = project or Path(__file__).resolve().parents[1]
    work = work or Path.cwd()
    entries: dict[Path, tuple[str, ...]] = {Path(place): option for place, option in own.items()}
    for name in SYSTEM:
        path = Path(name)
        if path.is_symlink():
            entries[path] = ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            entries[path] = ("--ro-bind", name, name)
    for name in ETC:
        entries[Path("/etc") / name] = ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    roots = python_folders() if python else []
    for root in roots:
        entries.setdefault(root, ("--ro-bind", str(root), str(root)))
    shown = [path for path, entry in entries.items() if entry[0] == "--ro-bind"]
    for hidden in _hidden(project, work, roots):
        if any(hidden.is_relative_to(root) for root in shown) and hidden not in entries:
            entries[hidden] = ("--tmpfs", str(hidden))
    ordered = sorted(entries.items(), key=lambda item: len(item[0].parts))
    return [word for _, entry in ordered for word in entry]


def python_folders() -> list[Path]:
    """The interpreter, the environment it runs in, and package folders that lie elsewhere."""
    found = [Path(sys.base_prefix), Path(sys.prefix), Path(sys.executable).resolve().parent.parent]
    found += [Path(folder) for folder in package_folders()]
    folders = [folder for folder in dict.fromkeys(found) if folder.is_dir() and not folder.is_relative_to("/usr")]
    return [f for f in folders if not any(f != other and f.is_relative_to(other) for other in folders)]


def package_folders() -> list[str]:
    """Where installed packages lie."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [folder for folder in [*site.getsitepackages(), *user] if Path(folder).is_dir()]


def _hidden(project: Path, work: Path, roots: list[Path]) -> list[Path]:
    packages = package_folders()
    inside = [Path(folder) / name for folder in packages for name in SECRET if (Path(folder) / name).is_dir()]
    whole = [path.resolve() for path in (project, work)]
    return inside + [path for path in whole if path not in roots and str(path) not in packages and path.is_dir()]
