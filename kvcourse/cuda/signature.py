"""A kernel's name and parameters, read from its source."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from kvcourse.cuda.cpp_types import can_be_number, can_be_pointed_to, canonical
from kvcourse.cuda.declarations import Declaration, declarations, split
from kvcourse.cuda.errors import CompileError
from kvcourse.cuda.lexer import Source, Token, tokens_of

LONGEST_ALIAS = 100  # tokens; a longer one is no type of a parameter
_DECORATION = {"__restrict__", "__restrict", "volatile", "__grid_constant__", "struct"}


@dataclass(frozen=True)
class Parameter:
    """One parameter; `type` without const and pointer ("float"), `writes` for a pointer to what may be written."""

    name: str
    type: str
    pointer: bool
    writes: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def kind(self) -> str:
        """The type as it is written: "const float*", "int"."""
        return f"{'const ' if self.pointer and not self.writes else ''}{self.type}{'*' if self.pointer else ''}"


@dataclass(frozen=True)
class Signature:
    """`instance` is the kernel with its template arguments, as C++ writes it: "paged_decode<__half, 64>"."""

    name: str
    instance: str
    line: int
    parameters: tuple[Parameter, ...]


def read_signature(source: Source, name: str, template: str | None = None) -> Signature:
    """The parameters of kernel `name`; CompileError when it is not there or a type has no Python counterpart."""
    if not source.tokens:
        raise CompileError("There is no code in the source, only comments: write a __global__ function.")
    kernels = kernels_of(source)
    if not kernels:
        raise CompileError("There is no kernel in the source: a kernel is a function marked __global__ void.")
    if name not in kernels:
        near = difflib.get_close_matches(name, kernels, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(kernels)}."
        raise CompileError(f"There is no kernel {name!r} in the source; {hint}")
    kernel = kernels[name]
    if "void" not in kernel.head:
        raise CompileError(f"Line {kernel.line}: a kernel gives back nothing: write __global__ void {name}.")
    arguments = split_template(template) if template else []
    types = _aliases(source) | _template_types(kernel, arguments)
    parameters = tuple(_parameter(part, types) for part in split(kernel.parameters or ()))
    instance = f"{name}<{', '.join(arguments)}>" if kernel.is_template else name
    return Signature(name, instance, kernel.line, parameters)


def kernels_of(source: Source) -> dict[str, Declaration]:
    """All `__global__` functions by name."""
    return {d.name: d for d in declarations(source) if "__global__" in d.head and d.parameters is not None}


def split_template(template: str) -> list[str]:
    """`"<__half, 64>"` or `"__half, 64"` -> ["__half", "64"]; only types, names and whole numbers."""
    tokens = tokens_of(template.strip())
    odd = [t.text for t in tokens if t.kind not in ("name", "number") and t.text not in ("<", ">", ",", "*", "-", "::")]
    if odd:
        raise CompileError(f"Template arguments are types and numbers; {template!r} has a {odd[0]!r}.")
    if tokens and tokens[0].text == "<":
        tokens = tokens[1:-1]
    return [" ".join(t.text for t in part) for part in split(tokens)]


def _template_types(kernel: Declaration, arguments: list[str]) -> dict[str, str]:
    """What each type parameter of the template stands for."""
    wanted = split(kernel.template)
    optional = sum(any(t.text == "=" for t in part) for part in wanted)
    if not kernel.is_template:
        if arguments:
            raise CompileError(f"{kernel.name} is no template: leave template={', '.join(arguments)!r} out.")
        return {}
    if not len(wanted) - optional <= len(arguments) <= len(wanted):
        shown = ", ".join(" ".join(t.text for t in part) for part in wanted)
        raise CompileError(
            f'{kernel.name} is a template <{shown}>: name it with its arguments, such as template="<float, 64>"'
            f" ({len(arguments)} given)."
        )
    types = {}
    for i, part in enumerate(wanted):
        words = [t.text for t in part]
        value = arguments[i] if i < len(arguments) else " ".join(words[words.index("=") + 1 :])
        if words[0] in ("typename", "class") and len(words) > 1:
            types[words[1]] = value
    return types


def _parameter(tokens: Sequence[Token], types: dict[str, str]) -> Parameter:
    line = tokens[0].line
    words = [t.text for t in tokens if t.text not in _DECORATION]
    stars = words.count("*") + words.count("[")
    words = words[: words.index("[")] if "[" in words else words  # float x[] is float* x
    words = words[: words.index("=")] if "=" in words else words
    if len(words) < 2 or words[-1] in ("*", "const"):
        raise CompileError(
            f"Line {line}: every parameter of a kernel needs a type and a name, not just {' '.join(words)}."
        )
    name = words.pop()
    if stars > 1 or "&" in words or "&&" in words:
        raise CompileError(f"Line {line}: {name} must be a number or a simple pointer such as const float*.")
    before_star = words[: words.index("*")] if "*" in words else words
    plain = canonical([w for w in before_star if w != "const"], types)
    constant = "const" in before_star or plain.startswith("const ")
    plain = plain.removeprefix("const ")
    if not (can_be_pointed_to(plain) if stars else can_be_number(plain)):
        raise CompileError(f"Line {line}: {name} has the type {plain}{'*' * stars}, for which Python has no argument.")
    return Parameter(name, plain, bool(stars), bool(stars) and not constant)


def _aliases(source: Source) -> dict[str, str]:
    """`using T = float;`, `typedef float T;` and `#define T float` of the source."""
    found = {name: " ".join(t.text for t in tokens) for name, tokens in source.macros.items() if tokens}
    tokens = source.tokens
    for i, token in enumerate(tokens):
        if token.text == "using" and i + 2 < len(tokens) and tokens[i + 2].text == "=":
            found[tokens[i + 1].text] = " ".join(_until_semicolon(tokens, i + 3))
        words = _until_semicolon(tokens, i + 1) if token.text == "typedef" else []
        if len(words) > 1:
            found[words[-1]] = " ".join(words[:-1])
    return found


def _until_semicolon(tokens: Sequence[Token], start: int) -> list[str]:
    words = []
    for token in islice(tokens, start, start + LONGEST_ALIAS):
        if token.text == ";":
            break
        words.append(token.text)
    return words
