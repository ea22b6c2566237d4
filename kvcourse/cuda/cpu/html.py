"""A report as HTML, for JupyterLab and Colab: the same words as its text."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kvcourse.cuda.cpu.faults import Fault

if TYPE_CHECKING:
    from kvcourse.cuda.cpu.report import Report

GOOD, BAD = "#1a7f37", "#b35900"
MOST_OUTPUT = 4000  # characters of what the kernel printed


def report_html(report: Report) -> str:
    """Headline, faults with their source lines, notes, and the counters as a table."""
    colour = GOOD if report else BAD
    sign = _tag("span", "✓" if report else "✗", f"color:{colour}")
    parts = [f'<div style="font-weight:600">{sign} {escape(report.headline)}</div>']
    parts += [_fault(fault, report.line_text(fault.line)) for fault in report.faults]
    parts += [_row(_tag("b", "depends on luck: ", f"color:{BAD}") + escape(what)) for what in report.differences]
    parts += [_row("Note: " + escape(str(note))) for note in report.notes]
    parts.append(_table(report.summary()))
    if report.output:
        parts.append(_tag("pre", escape(report.output[:MOST_OUTPUT]), "margin:6px 0 0 0"))
    return _tag("div", "".join(parts), f"border-left:4px solid {colour};padding:6px 12px;margin:4px 0;line-height:1.45")


def _fault(fault: Fault, source: str) -> str:
    who = f"thread {fault.thread} of block {fault.block}"
    head = _tag("b", escape(fault.title), f"color:{BAD}") + f", line {fault.line or '?'}: {who} {escape(fault.message)}"
    advice = f"On a GPU: {escape(fault.on_gpu)}. Try: {escape(fault.tip)}"
    line = _tag("pre", escape(source), "margin:2px 0 2px 18px")
    return _row(head + line + _tag("div", advice, "margin-left:18px;opacity:.8"))


def _table(rows: list[tuple[str, str]]) -> str:
    cell = "text-align:left;padding:1px 8px"
    lines = [_tag("td", escape(name), cell + ";opacity:.7") + _tag("td", escape(value), cell) for name, value in rows]
    return _tag(
        "table", "".join(_tag("tr", line, "background:transparent") for line in lines), "margin:6px 0 0 0;border:none"
    )


def _row(inside: str) -> str:
    return _tag("div", inside, "margin-top:6px")


def _tag(name: str, inside: str, style: str) -> str:
    return f'<{name} style="{style}">{inside}</{name}>'
