"""What is kept of a cell's output while it runs: bounded in bytes, lines and messages, and only plain shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nbformat import NotebookNode

from autograde.limits import Limits

LONG_LINE = 20_000  # characters


@dataclass
class Outputs:
    """The outputs of one cell in nbformat's form; `full` once something was left out."""

    limits: Limits
    kept: list[Any] = field(default_factory=list)
    full: bool = False
    bytes: int = 0
    lines: int = 0
    messages: int = 0

    def add(self, kind: str, content: dict[str, Any]) -> None:
        """Keep one message of the kernel, as far as there is room; messages of a wrong shape are dropped."""
        self.messages += 1
        if self.messages > self.limits.output_messages:
            self.cut()
        elif kind == "stream" and isinstance(content.get("text"), str):
            self._add_text("stderr" if content.get("name") == "stderr" else "stdout", clean(content["text"]))
        elif kind in ("display_data", "execute_result"):
            data = _plain_data(content.get("data"))
            if data and self._room(sum(map(len, data.values()))):
                self.kept.append(_output("display_data", data=data, metadata={}))
        elif kind == "error":
            name, value, trace = (content.get(key) for key in ("ename", "evalue", "traceback"))
            lines = [clean(line) for line in trace if isinstance(line, str)] if isinstance(trace, list) else []
            if isinstance(name, str) and isinstance(value, str) and self._room(sum(map(len, lines)) + len(value)):
                self.kept.append(_output("error", ename=clean(name)[:200], evalue=clean(value)[:2000], traceback=lines))
        elif kind == "clear_output":
            self.kept.clear()

    def cut(self) -> None:
        """Say once that something is missing."""
        if not self.full:
            self.full = True
            limit = f"{self.limits.output_lines:,} lines or {self.limits.output_bytes / 1e6:g} MB"
            self.kept.append(
                _output("stream", name="stderr", text=f"\n[The output was cut here: more than {limit}.]\n")
            )

    def say(self, text: str) -> None:
        """A remark of the grader below the cell."""
        self.kept.append(_output("stream", name="stderr", text=f"\n[{text}]\n"))

    def _add_text(self, name: str, text: str) -> None:
        if self.full:
            return
        lines = text.splitlines(keepends=True)
        fits = "".join(_short(line) for line in lines[: self.limits.output_lines - self.lines])
        fits = fits[: max(self.limits.output_bytes - self.bytes, 0)]
        self.lines, self.bytes = self.lines + len(lines), self.bytes + len(fits)
        if self.kept and self.kept[-1].output_type == "stream" and self.kept[-1].name == name:
            self.kept[-1].text += fits
        elif fits:
            self.kept.append(_output("stream", name=name, text=fits))
        if self.lines > self.limits.output_lines or len(fits) < len(text):
            self.cut()

    def _room(self, size: int) -> bool:
        if not self.full and self.bytes + size <= self.limits.output_bytes:
            self.bytes += size
            return True
        self.cut()
        return False


def _output(kind: str, **fields: Any) -> NotebookNode:
    return NotebookNode(output_type=kind, **fields)


def _short(line: str) -> str:
    return line if len(line) <= LONG_LINE else f"{line[:LONG_LINE]}\n"


def _plain_data(data: object) -> dict[str, str]:
    """Text and pictures by type; anything else is left out."""
    if not isinstance(data, dict):
        return {}
    return {str(kind)[:100]: clean(value) for kind, value in data.items() if isinstance(value, str)}


def clean(text: str) -> str:
    """Text that can be written as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")
