"""What runs in the student's kernel to answer the grader's calls: every property gets a forked child of its own.

The grader sends this file as text, since the sandbox holds nothing of it; so it imports only the standard library and
kvcourse. A hang, a crash or a changed global costs the one property whose child it happened in. Nothing here is
believed by the grader: all of it runs where student code can change it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from typing import Any

from kvcourse.check.student import student_error
from kvcourse.check.values import MAX_BYTES, BadValue, pack, unpack

HEAD = struct.Struct(">I")
MAX_HEAD = 8 * 2**20  # bytes of JSON in an answer
HELLO = "hello"


def send(link: socket.socket, body: Any, buffers: list[bytes] | tuple = ()) -> None:
    """One frame: 4 bytes with the length of the JSON, the JSON with the sizes of the buffers, the buffers."""
    head = json.dumps([body, [len(buffer) for buffer in buffers]]).encode()
    link.sendall(HEAD.pack(len(head)) + head)
    for buffer in buffers:
        link.sendall(buffer)


def receive(link: socket.socket, until: float | None = None, limited: bool = False) -> tuple[Any, list] | None:
    """One frame, or None when the other side has closed; TimeoutError at `until` (monotonic seconds).

    `limited` (the grader's side) refuses frames that are too large: BadValue.
    """
    first = _read(link, HEAD.size, until)
    if first is None:
        return None
    (length,) = HEAD.unpack(first)
    if limited and length > MAX_HEAD:
        raise BadValue(f"it is larger than {MAX_HEAD // 2**20} MB")
    head = _read(link, length, until)
    if head is None:
        return None
    try:
        body, sizes = json.loads(head)
        sound = type(sizes) is list and all(type(size) is int and size >= 0 for size in sizes)
    except (ValueError, TypeError, RecursionError):
        sound = False
    if not sound or (limited and (sum(sizes) > MAX_BYTES or len(sizes) > MAX_HEAD // 16)):
        raise BadValue("it is no answer")
    buffers = [_read(link, size, until) for size in sizes]
    if any(buffer is None for buffer in buffers):
        return None
    return body, buffers


def serve(control: int, names: Mapping[str, Any], may_fork: bool = True) -> None:
    """Answer until the grader goes away. A session arrives as an open socket: "s" for calls, "w" to import ahead."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    orders, child = socket.socket(fileno=os.dup(control)), 0
    while True:
        gc.freeze()  # children need not look through what was there before them
        order, links, *_ = socket.recv_fds(orders, 1, 1)
        if not order:
            return
        child = _end(child)
        link = socket.socket(fileno=links[0])
        if order == b"s" and may_fork and not _cuda_in_use():
            child = os.fork()
            if child == 0:
                orders.close()
                _as_child(link, names)
        else:
            _answer_all(link, names)
        link.close()


def _as_child(link: socket.socket, names: Mapping[str, Any]) -> None:
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _silence()
        _answer_all(link, names)
    finally:
        os._exit(0)


def _end(child: int) -> int:
    if child:
        for kill, target in ((os.killpg, child), (os.kill, child)):
            with contextlib.suppress(ProcessLookupError):
                kill(target, signal.SIGKILL)
        os.waitpid(child, 0)
    return 0


def _silence() -> None:
    """A child has no notebook to print to, and the kernel's sockets are not its own."""
    null = open(os.devnull, "r+")  # noqa: SIM115 - for the rest of the process
    for number in (0, 1, 2):
        os.dup2(null.fileno(), number)
    kernel_stream, sys.stdin, sys.stdout, sys.stderr = type(sys.stdout), null, null, null
    if kernel_stream.__module__.startswith("ipykernel."):
        kernel_stream.write = lambda self, text: len(text)
        kernel_stream.flush = lambda self: None
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shell.display_pub.publish = lambda *args, **kwargs: None
        shell.display_pub.clear_output = lambda *args, **kwargs: None


def _cuda_in_use() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _answer_all(link: socket.socket, names: Mapping[str, Any]) -> None:
    kept: list[Any] = []
    with contextlib.suppress(OSError, BadValue):  # the grader has gone on
        send(link, HELLO)
        while (asked := receive(link)) is not None:
            send(link, *_answer(*asked, names, kept))


def _answer(ask: Any, buffers: list[bytes], names: Mapping[str, Any], kept: list[Any]) -> tuple[Any, list[bytes]]:
    """{"ok": packed} or {"error": [kind, message, line]}; objects that are no plain values stay in `kept`."""

    def keep(value: Any) -> list:
        kept.append(value)
        return [len(kept) - 1, type(value).__name__, callable(value)]

    try:
        if ask["op"] == "names":
            data, out = pack([name for name in list(names) if not name.startswith("_")])
        elif ask["op"] == "warm":
            unpack(ask["args"], buffers, handle=lambda number: None, rebuild=True)
            data, out = None, []
        else:
            target = _find(ask["target"], ask["attribute"], names, kept)
            if ask["op"] == "get":
                data, out = pack(target, keep)
            else:
                args, kwargs = unpack(ask["args"], buffers, handle=lambda number: kept[number], rebuild=True)
                data, out = _call(target, args, kwargs, keep)
        return {"ok": data}, out
    except BaseException as error:
        return {"error": _told(error)}, []


def _call(function: Any, args: list, kwargs: dict, keep: Any) -> tuple[Any, list[bytes]]:
    """The packed result, with the arguments that the function changed in place by their number."""
    before = [pack(arg, keep) if _mutable(arg) else None for arg in args]
    result = function(*args, **kwargs)
    changed = [[i, arg] for i, arg in enumerate(args) if before[i] is not None and pack(arg, keep) != before[i]]
    try:
        return pack([result, changed], keep)
    except (BadValue, RecursionError) as error:
        raise BadValue(f"the result cannot be read: {error}") from None


def _mutable(value: Any) -> bool:
    return type(value) is list or type(value).__name__ in ("ndarray", "Tensor")


def _find(target: str | int, attribute: str | None, names: Mapping[str, Any], kept: list[Any]) -> Any:
    if isinstance(target, str) and target not in names:
        raise NameError(f"{target} is not defined")
    found = names[target] if isinstance(target, str) else kept[target]
    return found if attribute is None else getattr(found, attribute)


def _told(error: BaseException) -> list:
    try:
        told = student_error(error)
        return [told.kind, told.message, told.line]
    except BaseException:
        return [type(error).__name__, "", None]


def _read(link: socket.socket, size: int, until: float | None) -> bytearray | None:
    """Exactly `size` bytes, or None when the other side closed."""
    data, got = bytearray(size), 0
    view = memoryview(data)
    while got < size:
        if until is not None:
            link.settimeout(max(until - time.monotonic(), 1e-3))
        count = link.recv_into(view[got:])
        if count == 0:
            return None
        got += count
    return data
