"""Where student code runs: namespaces of its own (L2), else a plain process with limits (L1), else not at all (L0).

L2 is bubblewrap: new user, pid, network, ipc and host-name namespaces, no capabilities, a file tree that holds Python,
the package `kvcourse` and a scratch folder, and nothing of the course. L1 is for machines that forbid namespaces: its
code can read what the grader can read, so final grades need L2.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import kvcourse
from autograde.cgroup import Cgroup
from autograde.limits import InfrastructureFault, Limits
from autograde.mounts import mounts

SCRATCH, RUN, DATA, COURSE = "/scratch", "/run/kernel", "/data", "/course"  # as the student's code sees them at L2
FOLDERS = ("run", "data", "scratch", "course", "tmp")
PARTS_HIDDEN = ("engine", "workload", "cluster", "cuda/kernels")
TASKS_SHOWN = ("__init__", "api", "course", "show")
FIRST_UID, UIDS = 61_184, 4_000  # a range that systems keep free for users made on the fly
GATE = ("/bin/sh", "-c", 'read -r go && exec "$0" "$@"')  # waits until the process is in its control group
TRIAL_SECONDS = 30.0
WORKS = "bubblewrap works: own namespaces, no network, no course files."
PLAIN_USER = ("--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--die-with-parent", "--new-session")
NAMESPACES = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
)


@dataclass(frozen=True)
class Protection:
    """What this machine can do: the level, one sentence that says why, and how."""

    level: str
    why: str
    own_uid: bool = False
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.level}: {self.why}"


def protection_level(level: str | None = None) -> Protection:
    """The best level here, by a real trial; or `level` itself, InfrastructureFault where it does not work."""
    best = _protection(shutil.which("bwrap"), shutil.which("sh") is not None)
    if level is None or level == best.level:
        return best
    if level == "L1" and best.level == "L2":
        return _plain("asked for")
    raise InfrastructureFault(f"Level {level} was asked for, and this machine gives {best}")


@functools.cache
def _protection(bwrap: str | None, unix: bool) -> Protection:
    if not unix or not hasattr(os, "fork"):
        return Protection("L0", "student code cannot be run here: grading needs Linux or macOS.")
    if bwrap is None:
        return _plain("bubblewrap is not installed")
    known = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False).stdout
    options = (bwrap, *NAMESPACES, *PLAIN_USER, *(["--disable-userns"] if "--disable-userns" in known else []))
    problem = ""
    for own_uid in (True, False) if os.geteuid() == 0 else (False,):
        found = Protection("L2", WORKS, own_uid, options)
        problem = _trial(found)
        if not problem:
            return found
    return _plain(f"bubblewrap is installed but does not work here ({problem})")


@functools.cache
def _plain(reason: str) -> Protection:
    if os.geteuid() == 0 and not _trial(Protection("L1", "", own_uid=True)):
        return Protection("L1", f"{reason}: a plain process with its own user id and limits.", own_uid=True)
    return Protection("L1", f"{reason}: a plain process with limits, as the user who grades.")


def _trial(protection: Protection) -> str:
    """Run one small program at this level; "" when it worked, else what went wrong."""
    try:
        with Sandbox(protection, Limits()) as sandbox:
            process = sandbox.start([sys.executable, "-P", "-c", "import ipykernel; print('works')"], {})
            try:
                code = process.wait(TRIAL_SECONDS)
            finally:
                sandbox.end(process)
            return "" if code == 0 else sandbox.last_words() or f"exit status {code}"
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)


@dataclass
class Sandbox:
    """The folders and processes of one submission's code; `with` removes and kills all of it."""

    protection: Protection
    limits: Limits
    folder: Path = field(init=False)
    group: Cgroup = field(default_factory=Cgroup)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __enter__(self) -> Sandbox:
        place = tempfile.gettempdir()
        self.folder = Path(tempfile.mkdtemp(prefix=f"kvgrade-{os.getpid()}-", dir=place if len(place) < 40 else "/tmp"))
        for name in FOLDERS:
            (self.folder / name).mkdir()
        (self.folder / "passwd").write_text("student:x:1000:1000::/scratch:/bin/sh\n")
        if self.protection.level == "L1":
            (self.folder / "course" / "kvcourse").symlink_to(Path(kvcourse.__file__).parent)
        if self.protection.own_uid:
            self.folder.chmod(0o711)
            for name in ("run", "scratch", "tmp"):
                os.chown(self.folder / name, self.uid, self.uid)
        return self

    def __exit__(self, *_: object) -> None:
        self.group.sweep()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def uid(self) -> int:
        return FIRST_UID + os.getpid() % UIDS

    @property
    def inside(self) -> Mapping[str, str]:
        """The folders as the student's code sees them."""
        if self.protection.level == "L2":
            return {"run": RUN, "data": DATA, "scratch": SCRATCH, "course": COURSE, "tmp": "/tmp"}
        return {name: str(self.folder / name) for name in FOLDERS}

    def others(self) -> int:
        """Threads that this user runs already: the kernel counts processes by user."""
        if os.geteuid() == 0:
            return 0
        count = 0
        for entry in Path("/proc").glob("[0-9]*/task"):
            with contextlib.suppress(OSError):
                count += len(list(entry.iterdir())) if entry.stat().st_uid == os.geteuid() else 0
        return count

    def start(self, command: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int] = ()) -> subprocess.Popen:
        """Start `command` inside; its own words go to a log that `last_words` reads."""
        self.group = Cgroup.create(self.limits.memory, self.limits.processes)
        inner = [*self._bubblewrap(), *command] if self.protection.level == "L2" else list(command)
        user = {"user": self.uid, "group": self.uid, "extra_groups": []} if self.protection.own_uid else {}
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                [*GATE, *inner], stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._environment(env),
                cwd=self.folder / "scratch", start_new_session=True, pass_fds=pass_fds, **user,
            )  # fmt: skip
        assert process.stdin is not None
        try:
            self.group.add(process.pid)
        except OSError:
            self.end(process)
            raise
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(b"go\n")
        return process

    def end(self, process: subprocess.Popen) -> None:
        """Kill `process` and everything it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        self.group.sweep()
        if self.protection.level != "L2" and not self.group.folders:
            _kill_marked(self.mark)

    def last_words(self) -> str:
        """The last line of the log."""
        with contextlib.suppress(OSError):
            lines = (self.folder / "log").read_text(errors="replace")[-2000:].split("\n")
            return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
        return ""

    def _bubblewrap(self) -> list[str]:
        package = str(Path(kvcourse.__file__).parent)
        shown = {
            "/proc": ("--proc", "/proc"),
            "/dev": ("--dev", "/dev"),
            DATA: ("--ro-bind", str(self.folder / "data"), DATA),
            f"{COURSE}/kvcourse": ("--ro-bind", package, f"{COURSE}/kvcourse"),
            "/etc/passwd": ("--ro-bind", str(self.folder / "passwd"), "/etc/passwd"),
        }
        for part in PARTS_HIDDEN:  # empty there: a part that the learner builds must not be imported ready-made
            if (Path(package) / part).is_dir():
                shown[f"{COURSE}/kvcourse/{part}"] = ("--tmpfs", f"{COURSE}/kvcourse/{part}")
        for test in Path(package, "tasks").glob("*.py"):
            if test.stem not in TASKS_SHOWN:  # public tests come with helpers that know the answers
                shown[f"{COURSE}/kvcourse/tasks/{test.name}"] = (
                    "--ro-bind",
                    "/dev/null",
                    f"{COURSE}/kvcourse/tasks/{test.name}",
                )
        for place in (RUN, SCRATCH, "/tmp", "/dev/shm"):  # in memory, so nothing on this machine's disk can be written
            shown[place] = ("--size", str(self.limits.scratch), "--tmpfs", place)
        for device in self.limits.devices:
            shown[device] = ("--dev-bind", device, device)
        closed = (
            "--remount-ro",
            "/proc",
            "--remount-ro",
            "/dev",
            "--remount-ro",
            "/",
        )  # /proc/sys is the machine's own
        return [*self.protection.options, *mounts(shown), *closed, "--chdir", SCRATCH, "--"]

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """A cleared environment: nothing of the grader's own crosses."""
        at = self.inside
        single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        offline = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")
        folders = {"IPYTHONDIR": "ipython", "JUPYTER_CONFIG_DIR": "jupyter", "MPLCONFIGDIR": "matplotlib"}
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": at["scratch"],
            "USER": "student", "LOGNAME": "student", "LANG": "C.UTF-8", "TMPDIR": at["tmp"],
            "PYTHONPATH": at["course"], "PYTHONDONTWRITEBYTECODE": "1",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline", "TOKENIZERS_PARALLELISM": "false",
            "KVCOURSE_SANDBOX": self.mark, "KVCOURSE_CUDA_TEXT_ONLY": "1", **single, **offline,
            **{name: f"{at['tmp']}/{folder}" for name, folder in folders.items()}, **extra,
        }  # fmt: skip


def _kill_marked(mark: str) -> None:
    """Where there is no control group: kill what still carries this sandbox's mark in its environment."""
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)
