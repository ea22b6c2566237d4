"""CUDA C++ as tokens: what the language rules and the signature are read from.

Comments and line splices are resolved the way a compiler does it. Anything that could make the two disagree (raw
strings, digraphs, words split over lines, control characters) is refused, so what is checked is what gets compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvcourse.cuda.errors import CompileError

LONGEST_SOURCE = 200_000  # characters
_COMMENTS_AND_TEXTS = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | /\* | (?<![A-Za-z0-9_])(?:u8|u|U|L)?R" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'""",
    re.DOTALL | re.VERBOSE,
)
_TOKEN = re.compile(
    r"""(?P<space>[ \t]+)
      | (?P<string>(?:u8|u|U|L)?"(?:\\.|[^"\\\n])*")
      | (?P<char>(?:u8|u|U|L)?'(?:\\.|[^'\\\n])+')
      | (?P<number>\.?[0-9](?:[eEpP][+-]|[0-9a-zA-Z_.])*)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<digraph>%:|<%|%>|:>|<:(?!:))
      | (?P<sign><<<|>>>|<<=|>>=|->\*|\.\.\.|::|\+\+|--|->|<<|>>|<=|>=|==|!=|&&|\|\||\#\#|[-+*/%&|^]=|[^\s])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Token:
    kind: str  # name, number, string, char, sign
    text: str
    line: int


@dataclass(frozen=True)
class Directive:
    """A preprocessor line, for example name "include" with the text `<cuda_fp16.h>`."""

    name: str
    text: str
    line: int


@dataclass(frozen=True)
class Source:
    """A kernel's text in parts: its tokens without directives, and the directives."""

    tokens: tuple[Token, ...]
    directives: tuple[Directive, ...]

    @property
    def macros(self) -> dict[str, list[Token]]:
        """What each `#define NAME text` stands for; macros with parameters stand for nothing here."""
        found = {}
        for directive in self.directives:
            if directive.name == "define" and (name := re.match(r"\w+", directive.text)):
                rest = directive.text[name.end() :]
                found[name.group()] = [] if rest.startswith("(") else tokens_of(rest, directive.line)
        return found


def read_source(text: str) -> Source:
    """Split CUDA C++ into tokens and directives; CompileError with the line for what no kernel needs."""
    if len(text) > LONGEST_SOURCE:
        raise CompileError(
            f"The source has {len(text):,} characters; a kernel of the course has {LONGEST_SOURCE:,} at most."
        )
    tokens: list[Token] = []
    directives: list[Directive] = []
    for number, line in _logical_lines(_without_comments(text)):
        if line.lstrip().startswith("#"):
            match = re.match(r"\s*#\s*(\w*)\s*(.*)", line)
            assert match is not None
            directives.append(Directive(match.group(1), match.group(2).strip(), number))
        else:
            tokens += tokens_of(line, number)
    return Source(tuple(tokens), tuple(directives))


def tokens_of(text: str, line: int = 1) -> list[Token]:
    """The tokens of one line without comments, such as a template argument list."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CompileError(f"Line {line}: the character {text[at]!r} has no place in a kernel.")
        at, kind, word = match.end(), match.lastgroup or "", match.group()
        if kind == "digraph":
            raise CompileError(f"Line {line}: write [, ], {{, }} or # in place of {word!r}.")
        if kind == "sign" and (word in "\\\"'@`$" or ord(word[0]) > 126):
            raise CompileError(f"Line {line}: the character {word!r} has no place outside a comment or a text.")
        if kind != "space":
            tokens.append(Token(kind, word, line))
    return tokens


def _without_comments(text: str) -> str:
    """Comments become blanks, line breaks stay, so that line numbers hold; NUL marks a spliced line break."""
    _refuse(text, r"[^\t\n\r\x20-\x7e\u00a0-\U0010ffff]", "there is a control character in the source.")
    _refuse(text, r"\?\?[=/'()!<>-]", "two question marks followed by a sign mean something else to some compilers.")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = re.sub(r"\\[ \t]*\n", "\0", text)
    _refuse(text, r"[^\s\0]\0+[^\s\0]", "put a space before the backslash that ends this line.")
    out: list[str] = []
    at = 0
    for match in _COMMENTS_AND_TEXTS.finditer(text):
        found, start = match.group(), match.start()
        if found == "/*":
            raise CompileError(f"Line {_line_at(text, start)}: this comment is never closed.")
        if found.endswith('R"'):
            raise CompileError(f"Line {_line_at(text, start)}: write an ordinary string in place of the raw one.")
        if found[0] == "'" and text[start - 1 : start].isalnum():
            raise CompileError(f"Line {_line_at(text, start)}: write numbers without ' between the digits.")
        comment = found[0] == "/"
        out += [text[at:start], " " + "".join(c for c in found if c in "\n\0") if comment else found]
        at = match.end()
    return "".join(out) + text[at:]


def _refuse(text: str, pattern: str, sentence: str) -> None:
    found = re.search(pattern, text)
    if found:
        raise CompileError(f"Line {_line_at(text, found.start())}: {sentence}")


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + text.count("\0", 0, position) + 1


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """(number of its first physical line, text) of each line, spliced lines joined, without what `#if 0` takes out."""
    lines, number, skipping = [], 1, 0
    for line in text.split("\n"):
        joined = line.replace("\0", "")
        word = (re.match(r"\s*#\s*(\w+\s*\w*)", joined) or re.match("()", "")).group(1)
        if skipping:
            skipping += word.startswith("if") - word.startswith("endif")
            skipping = 0 if skipping == 1 and word.startswith("el") else skipping
        elif re.fullmatch(r"if\s*0", word):
            skipping = 1
        lines.append((number, "" if skipping else joined))
        number += 1 + line.count("\0")
    return lines
