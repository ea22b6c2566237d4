"""The way into a student's kernel: sockets handed to its agent, a new kernel when the old one is lost."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from autograde.agent import HELLO, receive, send
from kvcourse.check.values import BadValue


@dataclass
class Link:
    """Opens sessions over `control`; `again` gives the control of a new kernel after the old one is lost, or None.

    `again` is told how many seconds were lost until that was seen.
    """

    control: socket.socket | None
    alive: Callable[[], bool]
    again: Callable[[float], socket.socket | None]
    seconds: float = 10.0  # to wait for an answer
    warmed: set[str] = field(default_factory=set)
    served: bool = False
    opening: float = 0.0  # seconds until a kernel that answers has answered
    known: list[str] | None = None

    def open(self) -> socket.socket | None:
        """A socket to a fresh child of the student's kernel; None when there is no kernel that answers."""
        began = time.monotonic()
        link = self.fork()
        while link is None and self.served:
            self.served = False
            self.warmed.clear()
            self.control = self.again(time.monotonic() - began)
            began = time.monotonic()
            link = self.fork()
        self.opening += time.monotonic() - began
        return link

    def fork(self) -> socket.socket | None:
        """The same, without a new kernel."""
        return self._try("s")

    def warm(self, args: Any, buffers: list[bytes], seconds: float) -> bool:
        """Let the kernel import what these arguments need, once for all children to come; False when it has."""
        kinds = set(_kinds(args))
        if kinds <= self.warmed:
            return False
        self.warmed |= kinds
        link = self._try("w")
        if link is not None:
            with link, contextlib.suppress(OSError, BadValue):
                link.settimeout(seconds)
                send(link, {"op": "warm", "args": args}, buffers)
                receive(link, time.monotonic() + seconds, limited=True)
        return True

    def _try(self, order: str) -> socket.socket | None:
        if self.control is None:
            return None
        ours, theirs = socket.socketpair()
        seconds = self.seconds if self.served else 3 * self.seconds
        end = time.monotonic() + seconds
        try:
            with theirs:
                self.control.settimeout(seconds)
                socket.send_fds(self.control, [order.encode()], [theirs.fileno()])
            while time.monotonic() < end:
                with contextlib.suppress(TimeoutError):
                    if receive(ours, time.monotonic() + 0.1, limited=True) == (HELLO, []):
                        self.served = True
                        ours.settimeout(None)
                        return ours
                    break
                if not self.alive():
                    break
        except (OSError, BadValue):
            pass
        ours.close()
        return None


def _kinds(packed: Any) -> Iterator[str]:
    """What packed arguments need imported: "tensor", or "config:llama"."""
    if type(packed) is dict:
        [(tag, body)] = packed.items()
        if tag == "tensor":
            yield tag
        elif tag == "config":
            yield f"config:{body[0]}"
        elif tag in ("list", "tuple", "set", "dict", "record", "namespace"):
            yield from _kinds(body)
    elif type(packed) is list:
        for item in packed:
            yield from _kinds(item)
