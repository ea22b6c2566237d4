"""Safe HTML of notebook cells: a student's text, pictures and tables without anything that could run or load."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from html import escape
from typing import Any

import bleach
import nbformat
from bleach.css_sanitizer import CSSSanitizer
from nbconvert.filters.ansi import ansi2html
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_output
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

SAFE = ("text/plain", "text/html", "image/png", "image/jpeg")
MAX_OUTPUT = 20_000  # characters of one cell's text
MAX_HTML = 100_000
MAX_PICTURE = 2_000_000  # base64 characters
MAX_SOURCE = 50_000
MAX_PAGE = 8_000_000
MAX_DEPTH = 100
MAX_MARKED = 20_000  # characters of code that are coloured
ACTIVE = re.compile(r"(?is)<(script|style|svg|iframe|object|embed|template|noscript)\b.*?(</\1\s*>|\Z)")
TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
EMPTY = {"br", "hr", "img", "col", "wbr", "input", "link", "meta"}
PICTURES = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff"}
TAGS = {
    *(
        [
            "a",
            "abbr",
            "b",
            "blockquote",
            "br",
            "caption",
            "code",
            "col",
            "colgroup",
            "dd",
            "del",
            "details",
            "div",
            "dl",
            "dt",
            "em",
            "figcaption",
            "figure",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "hr",
        ]
    ),
    *(
        [
            "i",
            "kbd",
            "li",
            "ol",
            "p",
            "pre",
            "s",
            "small",
            "span",
            "strong",
            "sub",
            "summary",
            "sup",
            "table",
            "tbody",
            "td",
            "tfoot",
            "th",
            "thead",
            "tr",
            "u",
            "ul",
        ]
    ),
}
ATTRIBUTES = {
    "*": ["class", "title", "style"],
    "a": ["href"],
    "td": ["colspan", "rowspan"],
    "th": ["colspan", "rowspan"],
}
STYLES = CSSSanitizer(
    allowed_css_properties=[
        "color", "background-color", "font-weight", "font-style", "text-align", "vertical-align", "text-decoration",
        "padding", "white-space", "border", "border-left", "border-bottom", "opacity", "line-height",
    ]
)  # fmt: skip
ANCHOR = re.compile(r'<a class="anchor-link" href="#[^"]*">¶</a>')
CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
CODE_STYLE = HtmlFormatter(style="default").get_style_defs(".code")


def clean(html: str) -> str:
    """HTML without scripts, event handlers, frames, forms, SVG, remote pictures or odd links."""
    html = ACTIVE.sub("", html[:MAX_HTML])
    if _depth(html) > MAX_DEPTH:  # parsing takes time with the square of the depth
        return f"<pre>{escape(_cut(html, MAX_OUTPUT))}</pre>"
    return bleach.clean(
        html, tags=TAGS, attributes=ATTRIBUTES, protocols=["http", "https", "mailto"], css_sanitizer=STYLES, strip=True
    )


def _depth(html: str) -> int:
    """How deep tags are nested at most, if every one but the empty ones is closed by its own end tag."""
    open_tags: Counter[str] = Counter()
    most = 0
    for closing, name in TAG.findall(html.lower()):
        if closing:
            open_tags[name] -= open_tags[name] > 0
        elif name not in EMPTY:
            open_tags[name] += 1
            most = max(most, open_tags.total())
    return most


def markdown(text: str) -> str:
    try:
        return clean(ANCHOR.sub("", markdown2html_mistune(text[:MAX_SOURCE])))
    except Exception:
        return f"<pre>{escape(text[:MAX_SOURCE])}</pre>"


def code(text: str) -> str:
    text = "\n".join(line.rstrip() for line in _cut(text, MAX_SOURCE).splitlines())  # the lexer is slow on blanks
    if len(text) > MAX_MARKED:
        return f'<pre class="code">{escape(text)}</pre>'
    return f'<pre class="code">{highlight(text, PythonLexer(), HtmlFormatter(nowrap=True))}</pre>'


def outputs(entries: list[NotebookNode]) -> str:
    """The outputs of a student's cell; what cannot be shown safely is named."""
    shown, left = [], MAX_OUTPUT
    for entry in entries:
        html, used = _output(entry, left)
        shown.append(html)
        left -= used
        if left <= 0:
            shown.append('<p class="note">… the rest of the output is not shown.</p>')
            break
    return "".join(shown)


def safe_outputs(entries: list[NotebookNode]) -> list[NotebookNode]:
    """The same outputs for a notebook that a teacher opens (formgrader): text, pictures and harmless HTML."""
    safe = []
    for entry in entries:
        if entry.get("output_type") in ("display_data", "execute_result"):
            data = {mime: _text(value) for mime, value in entry.get("data", {}).items() if mime in SAFE}
            if "text/html" in data:
                data["text/html"] = clean(data["text/html"])
            entry = new_output("display_data", data or {"text/plain": "(not shown)"})
        safe.append(nbformat.from_dict(entry))
    return safe


def safe_markdown(text: str) -> str:
    """Markdown of a student without HTML that could run; what looks like no HTML stays as it is."""
    return clean(text) if re.search(r"<[a-zA-Z/!?]", text) else text


def _output(entry: NotebookNode, left: int) -> tuple[str, int]:
    kind = entry.get("output_type")
    if kind == "stream":
        text = _cut(_text(entry.get("text")), left)
        return f'<pre class="{"error" if entry.get("name") == "stderr" else "output"}">{ansi2html(text)}</pre>', len(
            text
        )
    if kind == "error":
        text = _cut(f"{_text(entry.get('ename'))}: {_text(entry.get('evalue'))}", min(left, 2_000))
        return f'<pre class="error">{escape(text)}</pre>', len(text)
    data = entry.get("data", {})
    for mime, start in PICTURES.items():
        if mime in data:
            return _picture(mime, start, _text(data[mime])), 0
    if "text/html" in data:
        html = _text(data["text/html"])
        return f'<div class="output">{clean(html)}</div>', min(len(html), MAX_HTML)
    if "text/plain" in data:
        text = _cut(_text(data["text/plain"]), left)
        return f'<pre class="output">{escape(text)}</pre>', len(text)
    return (
        f'<p class="note">(an output of kind {escape(", ".join(map(str, data))[:80] or "unknown")} is not shown)</p>',
        0,
    )


def _picture(mime: str, start: bytes, text: str) -> str:
    try:
        if len(text) > MAX_PICTURE:
            raise ValueError("too large")
        raw = base64.b64decode("".join(text.split()), validate=True)
        if not raw.startswith(start):
            raise ValueError("another kind")
    except (ValueError, binascii.Error):
        return '<p class="note">(a picture is too large or damaged and is not shown)</p>'
    return f'<img alt="picture" src="data:{mime};base64,{base64.b64encode(raw).decode()}">'


def _text(value: Any) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else str(value if value is not None else "")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: max(limit, 0)]}\n… {len(text) - limit:,} more characters"
