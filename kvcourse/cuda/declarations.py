"""The functions and variables that a kernel's source declares at file and class level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvcourse.cuda.errors import CompileError
from kvcourse.cuda.lexer import Source, Token

_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_NO_DECLARATION = {"using", "typedef", "static_assert", "friend", "public", "private", "protected"}
_TAKES_BRACKETS = {"__launch_bounds__", "__align__", "alignas", "decltype", "noexcept", "sizeof", "__attribute__"}


@dataclass(frozen=True)
class Declaration:
    """One function or variable: `head` is what stands before its name, `template` between template< and >."""

    name: str
    line: int
    head: tuple[str, ...]
    template: tuple[Token, ...]
    is_template: bool
    parameters: tuple[Token, ...] | None  # None: a variable
    in_class: bool


def declarations(source: Source) -> list[Declaration]:
    """All functions and variables outside function bodies; macros in their heads are spelled out."""
    return list(_scope(list(source.tokens), source.macros, in_class=False))


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Index of the bracket that closes the one at `opening`; CompileError when there is none."""
    depth = 0
    for i in range(opening, len(tokens)):
        if tokens[i].text in _BRACKETS:
            depth += 1
        elif tokens[i].text in _BRACKETS.values():
            depth -= 1
            if depth == 0:
                return i
    raise CompileError(f"Line {tokens[opening].line}: the bracket {tokens[opening].text!r} is never closed.")


def split(tokens: Sequence[Token]) -> list[list[Token]]:
    """The parts between commas that stand in no brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1, ">>": -2}.get(token.text, 0)
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _scope(tokens: list[Token], macros: dict[str, list[Token]], in_class: bool) -> Iterator[Declaration]:
    at = 0
    while at < len(tokens):
        word = tokens[at].text
        if word in (";", "}", ":"):
            at += 1
        elif word in macros and not macros[word] and at + 1 < len(tokens) and tokens[at + 1].text == "(":
            at = closing(tokens, at + 1) + 1  # a macro with parameters: it may stand for anything
        elif word in _NO_DECLARATION:
            at = _end(tokens, at, (";", ":") if word.startswith("p") else (";",)) + 1
        elif word == "enum":
            at = _end(tokens, at, (";",)) + 1
        elif word == "namespace" or (word == "extern" and _texts(tokens, at + 2, 1) == ["{"]):
            body = _end(tokens, at, ("{", ";"))
            at = body + 1  # what stands inside is read as if it stood outside
        else:
            at = yield from _one(tokens, at, macros, in_class)


def _one(tokens: list[Token], at: int, macros: dict[str, list[Token]], in_class: bool) -> Iterator[Declaration]:
    """Reads the declaration that begins at `at`; returns the index after it."""
    template: tuple[Token, ...] = ()
    is_template = False
    while at < len(tokens) and tokens[at].text == "template":
        end = _closing_angle(tokens, at + 1)
        template, is_template, at = tuple(tokens[at + 2 : end]), True, end + 1
    start = at
    head: list[str] = []
    while at < len(tokens):
        word = tokens[at].text
        if word in ("struct", "class", "union") and not head:
            body = _end(tokens, at, ("{", ";"))
            if tokens[body : body + 1] and tokens[body].text == "{":
                end = closing(tokens, body)
                yield from _scope(tokens[body + 1 : end], macros, in_class=True)
                at = end + 1
                continue
            return body + 1
        if word in _TAKES_BRACKETS and _texts(tokens, at + 1, 1) == ["("]:
            at = closing(tokens, at + 1) + 1
        elif word == "<" and head and tokens[at - 1].kind == "name":
            at = _closing_angle(tokens, at) + 1
        elif word == "(" and at > start:
            after = closing(tokens, at) + 1
            end = _after_function(tokens, after)
            if not {"default", "delete"} & {t.text for t in tokens[after : after + 3]}:
                yield _function(tokens, start, at, head, template, is_template, in_class)
            return end
        elif word in ("=", ";", "{", "[", ",", ":"):
            if head and tokens[at - 1].kind == "name" and len(head) > 1:
                yield Declaration(
                    head[-1], tokens[at - 1].line, tuple(head[:-1]), template, is_template, None, in_class
                )
            return _end(tokens, at, (";",)) + 1
        else:
            head += [t.text for t in macros.get(word, [])] or [word]
            at += 1
    return at


def _function(
    tokens: list[Token],
    start: int,
    bracket: int,
    head: list[str],
    template: tuple[Token, ...],
    is_template: bool,
    in_class: bool,
) -> Declaration:
    name = bracket - 1
    while name > start and tokens[name].kind != "name":  # operator+, operator()
        name -= 1
    parameters = tuple(tokens[bracket + 1 : closing(tokens, bracket)])
    text = "".join(t.text for t in tokens[name:bracket])
    return Declaration(text, tokens[name].line, tuple(head[:-1]), template, is_template, parameters, in_class)


def _after_function(tokens: list[Token], at: int) -> int:
    """Past a function's body or semicolon; the initialisers of a constructor come before its body."""
    while at < len(tokens) and tokens[at].text not in ("{", ";"):
        at = closing(tokens, at) + 1 if tokens[at].text in ("(", "[") else at + 1
    return closing(tokens, at) + 1 if at < len(tokens) and tokens[at].text == "{" else at + 1


def _end(tokens: list[Token], at: int, ends: tuple[str, ...]) -> int:
    """Index of the next of `ends` outside brackets, or the number of tokens."""
    while at < len(tokens) and tokens[at].text not in ends:
        at = closing(tokens, at) + 1 if tokens[at].text in _BRACKETS else at + 1
    return at


def _closing_angle(tokens: list[Token], opening: int) -> int:
    depth = 0
    for i in range(opening, len(tokens)):
        depth += {"<": 1, ">": -1, ">>": -2}.get(tokens[i].text, 0)
        if depth <= 0:
            return i
    raise CompileError(f"Line {tokens[min(opening, len(tokens) - 1)].line}: the bracket '<' is never closed.")


def _texts(tokens: list[Token], start: int, count: int) -> list[str]:
    return [t.text for t in tokens[start : start + count]]
