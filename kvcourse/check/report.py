"""What a learner sees after a check: HTML in JupyterLab and Colab, plain text in a terminal, the same words.

The CPU's verdict and that of a GPU stand apart: the headline is the CPU's, the GPU has a line of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape

from kvcourse.check.runner import PropertyResult, Status, TaskResult

ON_GPU = "on a GPU:"
OPEN_FAILURES = 2  # further failures are folded: the first one is the smallest, and often the cause of the others
SIGNS: dict[Status, str] = {"passed": "✓", "failed": "✗", "not started": "○", "not run": "–"}
COLOURS: dict[Status, str] = {"passed": "#1a7f37", "failed": "#b35900", "not started": "#57606a", "not run": "#57606a"}
LABEL = "text-align:right;vertical-align:top;opacity:.7;padding:1px 8px 1px 0"
DETAILS = (("call", "input"), ("expected", "expected"), ("got", "got"), ("because", "why"), ("tip", "try"))


@dataclass
class Report:
    """A task's result ready to be shown; falsy unless every property holds (a GPU that was not there does no harm)."""

    result: TaskResult
    title: str
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.result.status == "passed" and self.result.gpu != "failed"

    def __repr__(self) -> str:
        gpu = f", on a GPU: {self.result.gpu}" if self.result.gpu else ""
        return f"<{self.result.task}: {self.result.status}{gpu}>"

    def _ipython_display_(self) -> None:
        """Already shown by `check`; a cell that ends in it shows nothing twice."""

    @property
    def headline(self) -> str:
        r = self.result
        return f"{r.task} {self.title}: {r.status}{'' if r.problem else _counts(r.status, r.on_cpu)}"

    @property
    def on_gpu(self) -> str:
        """The GPU's verdict in words; "" for a task that has none, or could not be tested at all."""
        r = self.result
        if r.gpu is None or r.problem:
            return ""
        reason = next((p.problem for p in r.on_gpu if p.problem), "") if r.gpu == "not run" else ""
        return f"{r.gpu}{_counts(r.gpu, r.on_gpu)}" + (f" ({reason})" if reason else "")

    @property
    def remarks(self) -> list[str]:
        """Sentences under the headline: what is wrong as a whole, or what to do next."""
        r = self.result
        if r.status == "not started":
            stub = "the line that raises NotImplementedError" if r.gpu is None else "the line with #error"
            start = f"Replace {stub} in the cell of {r.task}, run the cell, check again."
            return [start, *self.notes]
        stuck = [f'Stuck? hint("{r.task}")'] if r.status == "failed" and not r.problem else []
        return [*([r.problem] if r.problem else []), *stuck, *self.notes]

    @property
    def shown(self) -> list[PropertyResult]:
        return [] if self.result.problem else self.result.on_cpu

    @property
    def shown_on_gpu(self) -> list[PropertyResult]:
        """Its properties one by one, if any of them ran."""
        ran = any(p.status != "not run" for p in self.result.on_gpu)
        return self.result.on_gpu if ran and self.on_gpu else []

    @property
    def opened(self) -> list[PropertyResult]:
        """The failures shown with their example at once."""
        return [p for p in [*self.shown, *self.shown_on_gpu] if p.status == "failed"][:OPEN_FAILURES]

    def text(self) -> str:
        lines = [f"{SIGNS[self.result.status]} {self.headline}"]
        for p in self.shown:
            lines += _property_text(p, p in self.opened)
        if self.result.gpu and self.on_gpu:
            lines.append(f"  {ON_GPU} {SIGNS[self.result.gpu]} {self.on_gpu}")
            for p in self.shown_on_gpu:
                lines += [f"  {line}" for line in _property_text(p, p in self.opened)]
        return "\n".join(lines + [f"  {remark}" for remark in self.remarks])

    def html(self) -> str:
        status = self.result.status
        rows = "".join(_property_html(p, p in self.opened) for p in self.shown)
        if self.result.gpu and self.on_gpu:
            on_gpu = "".join(_property_html(p, p in self.opened) for p in self.shown_on_gpu)
            rows += (
                f'<div style="margin-top:6px">{ON_GPU} {_sign(self.result.gpu)} {_inline_code(self.on_gpu)}</div>'
                f'<div style="margin-left:18px">{on_gpu}</div>'
            )
        remarks = "".join(f'<div style="margin-top:6px">{_code(remark)}</div>' for remark in self.remarks)
        return (
            f'<div style="border-left:4px solid {COLOURS[status]};padding:6px 12px;margin:4px 0;line-height:1.45">'
            f'<div style="font-weight:600"><span style="color:{COLOURS[status]}">{SIGNS[status]}</span> '
            f"{escape(self.headline)}</div>{rows}{remarks}</div>"
        )


def _counts(status: Status, properties: list[PropertyResult]) -> str:
    passed = sum(p.status == "passed" for p in properties)
    return f": {passed} of {len(properties)} properties hold" if status == "failed" else ""


def _property_text(p: PropertyResult, opened: bool) -> list[str]:
    lines = [f"  {SIGNS[p.status]} {p.title}" + (f" ({p.problem})" if p.problem else "")]
    if opened:
        shown = ((label, getattr(p, name).replace("\n", "\n" + " " * 16)) for name, label in DETAILS)
        lines += [f"      {label + ':':<10}{value}" for label, value in shown if value]
    return lines


def _property_html(p: PropertyResult, opened: bool) -> str:
    problem = f' <span style="opacity:.7">({escape(p.problem)})</span>' if p.problem else ""
    head = f'<div style="margin-top:4px">{_sign(p.status)} {_inline_code(p.title)}{problem}</div>'
    if p.status != "failed":
        return head
    rows = "".join(
        f'<tr style="background:transparent"><td style="{LABEL}">{label}</td>'
        f'<td style="text-align:left;padding:1px 0">{_value(name, getattr(p, name))}</td></tr>'
        for name, label in DETAILS
        if getattr(p, name)
    )
    table = f'<table style="margin:2px 0 4px 18px;border:none">{rows}</table>'
    return head + (
        table if opened else f'<details style="margin-left:18px"><summary>example</summary>{table}</details>'
    )


def _sign(status: Status) -> str:
    return f'<b style="color:{COLOURS[status]}">{SIGNS[status]}</b>'


def _value(name: str, text: str) -> str:
    if name in ("because", "tip"):
        return _inline_code(text)
    return f'<code style="white-space:pre-wrap;word-break:break-word">{escape(text)}</code>'


def _inline_code(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _code(remark: str) -> str:
    """A call such as hint("sizing.2") inside a remark in code type."""
    text = escape(remark, quote=False)
    start = text.find('hint("')
    return text if start < 0 else f"{text[:start]}<code>{text[start:]}</code>"


def show_rich(text: str, html: str) -> None:
    """Display in a notebook, print elsewhere."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        print(text)
        return
    if getattr(get_ipython(), "kernel", None) is None:
        print(text)
        return
    display({"text/plain": text, "text/html": html}, raw=True)
