"""What a learner sees after a check: HTML in JupyterLab and Colab, plain text in a terminal, the same words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape

from kvcourse.check.runner import PropertyResult, Status, TaskResult

OPEN_FAILURES = 2  # further failures are folded: the first one is the smallest, and often the cause of the others
SIGNS: dict[Status, str] = {"passed": "✓", "failed": "✗", "not started": "○", "not run": "–"}
COLOURS: dict[Status, str] = {"passed": "#1a7f37", "failed": "#b35900", "not started": "#57606a", "not run": "#57606a"}
LABEL = "text-align:right;vertical-align:top;opacity:.7;padding:1px 8px 1px 0"
DETAILS = (("call", "input"), ("expected", "expected"), ("got", "got"), ("because", "why"), ("tip", "try"))


@dataclass
class Report:
    """A task's result ready to be shown; falsy unless every property holds."""

    result: TaskResult
    title: str
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.result.status == "passed"

    def __repr__(self) -> str:
        return f"<{self.result.task}: {self.result.status}>"

    def _ipython_display_(self) -> None:
        """Already shown by `check`; a cell that ends in it shows nothing twice."""

    @property
    def headline(self) -> str:
        r = self.result
        passed = sum(p.status == "passed" for p in r.properties)
        counts = f": {passed} of {len(r.properties)} properties hold" if r.status == "failed" and not r.problem else ""
        return f"{r.task} {self.title}: {r.status}{counts}"

    @property
    def remarks(self) -> list[str]:
        """Sentences under the headline: what is wrong as a whole, or what to do next."""
        r = self.result
        if r.status == "not started":
            start = (
                f"Replace the line that raises NotImplementedError in the cell of {r.task}, run the cell, check again."
            )
            return [start, *self.notes]
        stuck = [f'Stuck? hint("{r.task}")'] if r.status == "failed" and not r.problem else []
        return [*([r.problem] if r.problem else []), *stuck, *self.notes]

    @property
    def shown(self) -> list[PropertyResult]:
        return [] if self.result.problem else self.result.properties

    @property
    def opened(self) -> list[PropertyResult]:
        """The failures shown with their example at once."""
        return [p for p in self.shown if p.status == "failed"][:OPEN_FAILURES]

    def text(self) -> str:
        lines = [f"{SIGNS[self.result.status]} {self.headline}"]
        for p in self.shown:
            lines.append(f"  {SIGNS[p.status]} {p.title}" + (f" ({p.problem})" if p.problem else ""))
            if p in self.opened:
                shown = ((label, getattr(p, name).replace("\n", "\n" + " " * 16)) for name, label in DETAILS)
                lines += [f"      {label + ':':<10}{value}" for label, value in shown if value]
        return "\n".join(lines + [f"  {remark}" for remark in self.remarks])

    def html(self) -> str:
        status = self.result.status
        rows = "".join(_property_html(p, p in self.opened) for p in self.shown)
        remarks = "".join(f'<div style="margin-top:6px">{_code(remark)}</div>' for remark in self.remarks)
        return (
            f'<div style="border-left:4px solid {COLOURS[status]};padding:6px 12px;margin:4px 0;line-height:1.45">'
            f'<div style="font-weight:600"><span style="color:{COLOURS[status]}">{SIGNS[status]}</span> '
            f"{escape(self.headline)}</div>{rows}{remarks}</div>"
        )


def _property_html(p: PropertyResult, opened: bool) -> str:
    problem = f' <span style="opacity:.7">({escape(p.problem)})</span>' if p.problem else ""
    sign = f'<b style="color:{COLOURS[p.status]}">{SIGNS[p.status]}</b>'
    head = f'<div style="margin-top:4px">{sign} {_inline_code(p.title)}{problem}</div>'
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
