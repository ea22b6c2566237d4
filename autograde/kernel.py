"""A Jupyter kernel inside a sandbox: start it, run cells with limits, kill it.

The kernel is reached by zmq over unix sockets in its run folder. That folder lies in memory inside the sandbox; the
kernel's own process opens it before any student code runs and hands it out over a socket it inherited. The sockets in
it are opened at once, too: zmq connects again when a connection is lost, and by then a name may stand for another
socket. Over the inherited socket the grader later opens the sessions of the tests (see agent.py).
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Any

import zmq
from jupyter_client.session import Session

from autograde.limits import InfrastructureFault, Limits
from autograde.outputs import Outputs, clean
from autograde.sandbox import Sandbox

PORTS = {"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5}
OPTIONS = ["--HistoryManager.enabled=False", "--InteractiveShell.colors=nocolor"]
MAX_OUTPUT = 64 * 2**20  # bytes of one message; zmq drops the connection of a kernel that sends more at once
MAX_ANSWER = MAX_PARSED = 4 * 2**20
MAX_WAITING = 16  # messages in memory before they are read
FLOOD = 10  # times the limit on messages: then the cell is stopped
GRACE_SECONDS = 3.0  # a cell's time to react to its interrupt
QUIET_SECONDS = 2.0  # to wait for the last outputs of a cell that has answered
SYNTAX_PLACE = re.compile(r"\([^()]*\.py, line (\d{1,6})\)$")
CELL_LINE = re.compile(r"Cell In\s?\[\d+\], line (\d{1,6})")
MAX_TRACE = 20_000  # characters
KINDS = ("stream", "display_data", "execute_result", "error", "clear_output")
BOOT = """
import json, os, resource, shutil, socket, sys
control = socket.socket(fileno=int(sys.argv[1]))
told = json.loads(control.makefile().readline())
for name, value in told["limits"].items():
    kind, most = getattr(resource, name), resource.getrlimit(getattr(resource, name))[1]
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(kind, (value, value))
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)  # die with the grader
shutil.copytree(told["data"], ".", dirs_exist_ok=True)
path = os.path.join(told["run"], "kernel.json")
with open(path, "w") as file:
    json.dump(told["connection"], file)
folder = os.open(told["run"], os.O_RDONLY)
socket.send_fds(control, [b"d"], [folder])
os.close(folder)
control.detach()
sys.argv = ["kernel", "-f", path, *told["options"]]
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""


@dataclass(frozen=True)
class CellEnd:
    """How a cell ended: "ok", "error", "slow" or "loud" (interrupted), "stuck" or "died" (the kernel is lost)."""

    status: str
    kind: str = ""  # of its error
    message: str = ""
    line: int | None = None
    seconds: float = 0.0

    @property
    def lost(self) -> bool:
        return self.status in ("stuck", "died")


class Kernel:
    """One kernel; `start` returns at once, `wait_ready` when it answers."""

    def __init__(self, sandbox: Sandbox, limits: Limits, env: dict[str, str]) -> None:
        self.sandbox, self.limits = sandbox, limits
        self.session = Session(key=uuid.uuid4().hex.encode(), signature_scheme="hmac-sha256")
        self.control, theirs = socket.socketpair()
        self.control_inside = theirs.fileno()  # its number in the kernel's process
        command = [sys.executable, "-P", "-c", BOOT, str(self.control_inside)]
        self.process = sandbox.start(command, env, pass_fds=[self.control_inside])
        theirs.close()
        self.context = zmq.Context()
        self.sockets: dict[str, Any] = {}
        self.held: list[int] = []  # the run folder and the sockets in it
        self.serving = ""  # the request whose answer means that the agent has ended

    def wait_ready(self) -> None:
        """InfrastructureFault when the kernel does not answer: no student code has run yet."""
        end = time.monotonic() + self.limits.start_seconds
        try:
            self.control.settimeout(self.limits.start_seconds)
            self.control.sendall(json.dumps(self._told()).encode() + b"\n")
            word, folders, *_ = socket.recv_fds(self.control, 1, 1)
            if word != b"d" or len(folders) != 1:
                raise OSError("it ended at once")
            self.held += folders
            self._connect(folders[0], end)
            self._greet(end)
        except OSError as error:
            status = self.process.poll()
            reason = self.sandbox.last_words() or str(error)
            self.close()
            raise InfrastructureFault(f"The student's kernel did not start ({reason}; exit status {status}).") from None

    def run(self, code: str, seconds: float, outputs: Outputs | None = None) -> CellEnd:
        """Run one cell; its outputs are added to `outputs` while it runs."""
        outputs = outputs or Outputs(self.limits)
        began = time.monotonic()
        request = self._send("shell", "execute_request", _execute(code))
        end, received, stopped, idle = began + seconds, 0, "", False
        reply: dict[str, Any] | None = None
        while reply is None or not idle:
            now, flood = time.monotonic(), received > FLOOD * self.limits.output_messages
            if now > end or flood:
                if reply is not None:
                    break
                if stopped:
                    return CellEnd("stuck", seconds=now - began)
                self._send("control", "interrupt_request", {})
                stopped, end, received = "loud" if flood else "slow", now + GRACE_SECONDS, 0
            if not self._wait(min(end - now, 0.1)) and self.process.poll() is not None:
                return CellEnd("died", seconds=now - began)
            for channel, message in self._received():
                received += channel == "iopub"
                if message is None:
                    outputs.cut()
                elif message["parent_header"].get("msg_id") != request:
                    continue
                elif channel == "shell" and message["msg_type"] == "execute_reply":
                    reply, end = message["content"], time.monotonic() + QUIET_SECONDS
                elif channel == "iopub" and message["msg_type"] == "status":
                    idle = idle or message["content"].get("execution_state") == "idle"
                elif channel == "iopub" and message["msg_type"] in KINDS:
                    outputs.add(message["msg_type"], message["content"])
        return _cell_end(reply, stopped, time.monotonic() - began)

    def serve(self, code: str) -> None:
        """Run the agent's cell, which answers on `control` and does not end; outputs are no longer read."""
        self.serving = self._send("shell", "execute_request", _execute(code))
        self.sockets["iopub"].close(linger=0)

    def alive(self) -> bool:
        """Whether the agent's cell still runs."""
        if self.process.poll() is not None:
            return False
        answers = [m for channel, m in self._received() if channel == "shell" and m is not None]
        return not any(m["parent_header"].get("msg_id") == self.serving for m in answers)

    def close(self) -> None:
        """Kill the kernel and all its processes."""
        if self.context.closed:
            return
        self.sandbox.end(self.process)
        self.control.close()
        for channel in self.sockets.values():
            channel.close(linger=0)
        self.context.term()
        while self.held:
            os.close(self.held.pop())

    def _told(self) -> dict[str, Any]:
        limits, at = self.limits, self.sandbox.inside
        connection = {
            "transport": "ipc", "ip": f"{at['run']}/k", "key": self.session.key.decode(), **PORTS,
            "signature_scheme": "hmac-sha256", "kernel_name": "",
        }  # fmt: skip
        rlimits = {"RLIMIT_FSIZE": limits.scratch, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 1024}
        rlimits["RLIMIT_NPROC"] = limits.processes + self.sandbox.others()
        if not limits.devices:  # drivers reserve far more than they use
            rlimits["RLIMIT_DATA"] = limits.memory
        return {"connection": connection, "limits": rlimits, "run": at["run"], "data": at["data"], "options": OPTIONS}

    def _connect(self, folder: int, end: float) -> None:
        inside = self.sandbox.protection.level == "L2"
        self.context.setsockopt(zmq.RECONNECT_IVL, 10)
        self.context.setsockopt(zmq.RCVHWM, MAX_WAITING)
        for name, kind in (("shell", zmq.DEALER), ("iopub", zmq.SUB), ("control", zmq.DEALER)):
            channel = self.context.socket(kind)
            channel.setsockopt(zmq.MAXMSGSIZE, MAX_OUTPUT if kind == zmq.SUB else MAX_ANSWER)
            if kind == zmq.SUB:
                channel.subscribe(b"")
            file = f"k-{PORTS[f'{name}_port']}"
            place = f"/proc/self/fd/{self._hold(folder, file, end)}" if inside else self.sandbox.folder / "run" / file
            channel.connect(f"ipc://{place}")
            self.sockets[name] = channel

    def _hold(self, folder: int, name: str, end: float) -> int:
        """The kernel's own socket of this name, opened as soon as it is there, so that no other can take its place."""
        while self.process.poll() is None and time.monotonic() < end:
            try:
                self.held.append(os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder))
            except FileNotFoundError:
                time.sleep(0.01)
                continue
            if not stat.S_ISSOCK(os.fstat(self.held[-1]).st_mode):
                break
            return self.held[-1]
        raise OSError(f"it opened no socket {name}")

    def _greet(self, end: float) -> None:
        """Until the kernel has answered and its outputs are heard."""
        answered = heard = False
        while not (answered and heard):
            self._send("shell", "kernel_info_request", {})
            self._wait(0.2)
            for channel, _ in self._received():
                answered, heard = answered or channel == "shell", heard or channel == "iopub"
            if self.process.poll() is not None or time.monotonic() > end:
                raise OSError("it gave no answer")

    def _send(self, channel: str, kind: str, content: dict[str, Any]) -> str:
        return self.session.send(self.sockets[channel], kind, content)["header"]["msg_id"]

    def _wait(self, seconds: float) -> bool:
        poller = zmq.Poller()
        for channel in self.sockets.values():
            if not channel.closed:
                poller.register(channel, zmq.POLLIN)
        return bool(poller.poll(max(seconds, 0.0) * 1000))

    def _received(self) -> list[tuple[str, dict[str, Any] | None]]:
        """What has arrived, at most some dozen messages; None stands for one that is too large or broken."""
        messages: list[tuple[str, dict[str, Any] | None]] = []
        for name, channel in self.sockets.items():
            for _ in range(50):
                try:
                    frames = channel.recv_multipart(zmq.NOBLOCK)
                except zmq.ZMQError:
                    break
                messages.append((name, self._read(frames)))
        return messages

    def _read(self, frames: list[bytes]) -> dict[str, Any] | None:
        if sum(map(len, frames)) > MAX_PARSED:
            return None
        try:
            message = self.session.deserialize(self.session.feed_identities(frames)[1])
            assert isinstance(message["parent_header"], dict) and isinstance(message["content"], dict)
            return message
        except Exception:  # the student's process writes these bytes
            return None


def _execute(code: str) -> dict[str, Any]:
    settings = {"silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": False}
    return {"code": clean(code), "user_expressions": {}, **settings}


def _cell_end(reply: dict[str, Any], stopped: str, seconds: float) -> CellEnd:
    kind, message = (clean(str(reply.get(key, ""))[:500]) for key in ("ename", "evalue"))
    status = stopped or ("ok" if reply.get("status") == "ok" else "error")
    place = SYNTAX_PLACE.search(message)
    trace = reply["traceback"] if isinstance(reply.get("traceback"), list) else []
    lines = [place[1]] if place else CELL_LINE.findall("\n".join(map(str, trace))[-MAX_TRACE:])
    return CellEnd(status, kind, SYNTAX_PLACE.sub("", message).strip(), int(lines[-1]) if lines else None, seconds)
