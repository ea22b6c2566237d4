"""One language for both runs: what NVRTC refuses for a T4 (sm_75), and what a kernel has no use for, is refused here.

A kernel that passes on a laptop must not fail on a GPU. And since source is compiled where answers are graded, nothing
may reach outside: no files, no host functions, no assembly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice, takewhile
from pathlib import Path

from kvcourse.cuda.declarations import declarations
from kvcourse.cuda.errors import CompileError
from kvcourse.cuda.lexer import Source, Token, tokens_of

INCLUDE_FOLDER = Path(__file__).parent / "cpu" / "include"
HEADERS = ("cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h", "cooperative_groups/reduce.h", "mma.h")
DIRECTIVES = {
    "",
    "define",
    "undef",
    "if",
    "ifdef",
    "ifndef",
    "elif",
    "else",
    "endif",
    "error",
    "warning",
    "include",
    "pragma",
}

_NO_HEADER = {
    "cuda_runtime.h": "is for host code; a kernel does not need it",
    "cuda.h": "is for host code; a kernel does not need it",
    "device_launch_parameters.h": "is for host code; threadIdx and its kind are there without it",
    "math.h": "is not there in NVRTC; the maths functions are there without it",
    "cmath": "is not there in NVRTC; the maths functions are there without it",
    "stdio.h": "is not there in NVRTC; printf is there without it",
    "cstdio": "is not there in NVRTC; printf is there without it",
    "cstdint": "is not there in NVRTC; write unsigned char, int, long long",
    "stdint.h": "is not there in NVRTC; write unsigned char, int, long long",
    "assert.h": "is not there in NVRTC; assert is there without it",
    "cassert": "is not there in NVRTC; assert is there without it",
}
_NO_WORD = {
    "asm": "inline assembly is not part of the course",
    "throw": "a kernel has no exceptions",
    "try": "a kernel has no exceptions",
    "catch": "a kernel has no exceptions",
    "new": "a kernel of the course does not allocate memory; use a local array or shared memory",
    "delete": "a kernel of the course does not allocate memory",
    "virtual": "virtual functions are not part of the course",
    "typeid": "a kernel has no run-time types",
    "dynamic_cast": "a kernel has no run-time types",
    "thread_local": "variables of a thread are local ones, inside the kernel",
    "_Pragma": "write #pragma unroll on a line of its own",
    "cudaMalloc": "that is host code: hand tensors to launch",
    "cudaMemcpy": "that is host code: hand tensors to launch",
    "cudaDeviceSynchronize": "that is host code: launch waits by itself",
}
# Words that are meant only before :: or a bracket; else they are names like any other.
_NO_WORD_BEFORE = {
    ("std", "::"): "NVRTC has no std; use max, min, fmaxf and so on without it",
    ("std", ";"): "NVRTC has no std",
    ("malloc", "("): "a kernel of the course does not allocate memory; use a local array or shared memory",
    ("free", "("): "a kernel of the course does not allocate memory",
}
# A macro of such a name would make the source say something else than it reads.
_KEYWORDS = {
    "alignas", "auto", "bool", "break", "case", "char", "class", "const", "constexpr", "continue", "decltype",
    "default", "do", "double", "else", "enum", "explicit", "extern", "false", "float", "for", "friend", "goto",
    "if", "inline", "int", "long", "mutable", "namespace", "noexcept", "operator", "private", "protected", "public",
    "register", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "const_cast",
    "reinterpret_cast", "struct", "switch", "template", "this", "true", "typedef", "typename", "union", "unsigned",
    "using", "void", "volatile", "while", "size_t", "half", "half2", "blockDim", "blockIdx", "gridDim", "threadIdx",
    "warpSize",
}  # fmt: skip
_ATTRIBUTES = {"maybe_unused", "fallthrough", "likely", "unlikely", "nodiscard"}
_PREDEFINED = {
    "__restrict__",
    "__restrict",
    "__inline__",
    "__LINE__",
    "__FILE__",
    "__func__",
    "__FUNCTION__",
    "__VA_ARGS__",
    "__cplusplus",
}
_OF_THE_COMPILER = re.compile(r"__(builtin_\w+|attribute__|SIZE_TYPE__|clang__|tsan\w*|APPLE__)$")


def check_language(source: Source) -> None:
    """NotImplementedError for the stub of a task; CompileError, one sentence, for what both runs must not differ in."""
    for directive in source.directives:
        stub = re.match(r'"?([a-z]+\.\d+: .*?)"?$', directive.text)
        if directive.name == "error" and stub:
            raise NotImplementedError(stub.group(1))
    for line, problem in _problems(source):
        raise CompileError(f"Line {line}: {problem}.")


def static_locals(source: Source) -> set[str]:
    """The names of `static` variables inside functions that are not `__shared__`: they belong to the whole grid."""
    tokens = source.tokens
    names = set()
    for i, token in enumerate(tokens):
        if token.text == "static" and all(t.text != "__shared__" for t in tokens[i : i + 3]):
            head = takewhile(lambda t: t.text not in ("=", "[", "(", "{", ";", "static"), islice(tokens, i + 1, i + 30))
            names.update([t.text for t in head][-1:])
    return names


def _problems(source: Source) -> Iterator[tuple[int, str]]:
    for directive in source.directives:
        yield from _directive_problems(directive.name, directive.text, directive.line)
    for i, token in enumerate(source.tokens):
        if token.text == "__shared__" and _has_initial_value(islice(source.tokens, i, i + 100)):
            yield token.line, "a __shared__ variable has no initial value: let a thread write it, then __syncthreads()"
        yield from _token_problems(list(source.tokens[max(0, i - 1) : i + 4]), min(i, 1), token)
    for declaration in declarations(source):
        head, name = set(declaration.head), declaration.name
        if declaration.parameters is not None and not head & {"__device__", "__global__"}:
            yield (
                declaration.line,
                f"{name} is a host function, and NVRTC compiles none: write __device__ in front of it",
            )
        if declaration.parameters is None and not declaration.in_class:
            if "extern" in head and "__shared__" not in head:
                yield declaration.line, f"{name} is declared extern, but there is no other file: leave extern out"
            if not head & {"__device__", "__constant__", "__shared__", "const", "constexpr", "__managed__"}:
                yield declaration.line, f"{name} is a host variable: write __device__ or __constant__ in front of it"


def _has_initial_value(declaration: Iterable[Token]) -> bool:
    """Is there an = before the declaration's semicolon?"""
    return any(t.text == "=" for t in takewhile(lambda t: t.text not in (";", "{"), declaration))


def _directive_problems(name: str, text: str, line: int) -> Iterator[tuple[int, str]]:
    if name not in DIRECTIVES:
        yield line, f"#{name} is not part of the course"
    elif name == "include":
        header = re.fullmatch(r'[<"]([^<>"]+)[>"]', text)
        if header is None or header.group(1) not in HEADERS:
            why = _NO_HEADER.get(header.group(1) if header else "", f"is not one of {', '.join(HEADERS)}")
            yield line, f"{text} {why}"
    elif name == "pragma":
        if not re.fullmatch(r"(no)?unroll\s*(\(?\s*\w+\s*\)?)?|once", text):
            yield line, f"#pragma {text} is not known; a kernel may use #pragma unroll"
    elif name in ("define", "undef") and _is_kept(text):
        yield line, f"{text.split()[0].split('(')[0]} keeps its meaning: choose another name for the macro"
    elif name in ("define", "if", "elif", "ifdef", "ifndef", "undef"):
        tokens = tokens_of(text, line)
        for i, token in enumerate(tokens):
            yield from _token_problems(tokens[max(0, i - 1) : i + 4], min(i, 1), token)


def _is_kept(text: str) -> bool:
    """Does `#define text` change a word of the language?"""
    name = re.match(r"\w*", text)
    assert name is not None
    return name.group() in _KEYWORDS or name.group().startswith("__")


def _token_problems(around: list[Token], at: int, token: Token) -> Iterator[tuple[int, str]]:
    text, line = token.text, token.line
    following = [t.text for t in around[at + 1 :]]
    if token.kind == "sign":
        if text in ("<<<", ">>>"):
            yield line, "a launch with <<< >>> is host code: call launch from Python"
        elif text == "##":
            yield line, "write names out in full: ## is not part of the course"
        elif text == "[" and following[:1] == ["["] and following[1:2] and following[1] not in _ATTRIBUTES:
            yield line, f"the attribute [[{following[1]}]] is not part of the course"
        elif text in "{," and following[:1] == ["."] and following[2:3] == ["="]:
            yield line, f"{{.{following[1]} = ...}} is C++20: write the values in order"
        elif text == "(" and following[:1] == ["{"]:
            yield line, "({ }) is no C++: NVRTC does not know it"
    elif token.kind == "name":
        if text in _NO_WORD:
            yield line, f"{text}: {_NO_WORD[text]}"
        elif (text, *following[:1]) in _NO_WORD_BEFORE and (following[0] != ";" or around[at - 1].text == "namespace"):
            yield line, f"{text}: {_NO_WORD_BEFORE[text, following[0]]}"
        elif text.startswith("__reduce_") and text.endswith("_sync"):
            yield line, f"{text} needs a GPU newer than the T4 (sm_80): use shuffles"
        elif text.startswith("__") and text not in _known_names():
            yield line, f"{text} is not a name that CUDA offers here; your own names must not begin with __"
        elif text.lower().startswith("kvcuda"):
            yield line, f"{text}: names that begin with kvcuda are taken"
        elif text == "goto" and following[:1] == ["*"]:
            yield line, "a kernel jumps to names only"
        elif text == "extern" and following[:1] not in (['"C"'], ["__shared__"], ["__device__"], ["__constant__"]):
            yield line, 'extern stands only before __shared__ and "C"'


@cache
def _known_names() -> frozenset[str]:
    """Every name beginning with __ that our headers offer: the headers are the list."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in sorted(INCLUDE_FOLDER.rglob("*.h")))
    conversions = {f"__float2{kind}_{mode}" for kind in ("int", "uint", "ll") for mode in ("rn", "rz", "ru", "rd")}
    found = set(re.findall(r"\b__\w+", text)) | conversions | _PREDEFINED
    return frozenset(name for name in found if not _OF_THE_COMPILER.match(name))
