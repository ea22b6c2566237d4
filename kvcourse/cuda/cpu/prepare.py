"""The one thing in CUDA's grammar that no macro can give to a C++ compiler: `extern __shared__ float name[];`"""

from __future__ import annotations

import re

from kvcourse.cuda.errors import CompileError

_ALIGN = r"(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?"
_DYNAMIC = re.compile(
    rf"\bextern\s+{_ALIGN}__shared__\s+{_ALIGN}(?P<type>[A-Za-z_][\w\s:<>,]{{0,80}}?)\s*\b(?P<name>\w+)\s*\[\s*\]"
    r"(?P<more>(?:\s*\[[^\[\];]*\])*)\s*;"
)


def prepare(text: str) -> str:
    """`text` with dynamic shared memory as a pointer to where it lies; lines keep their numbers."""
    types: dict[str, str] = {}
    for match in _DYNAMIC.finditer(text):
        kind, name = " ".join(match["type"].split()), match["name"]
        if types.setdefault(name, kind) != kind:
            line = text.count("\n", 0, match.start()) + 1
            raise CompileError(
                f"Line {line}: {name} is dynamic shared memory of {types[name]} before: choose another name."
            )
    prepared = _DYNAMIC.sub(_as_pointer, text)
    left = re.search(r"\bextern\s+(?:__align__\s*\(\w+\)\s*)?__shared__\b", prepared)
    if left:
        line = prepared.count("\n", 0, left.start()) + 1
        raise CompileError(f"Line {line}: write dynamic shared memory as extern __shared__ float name[];")
    return prepared


def _as_pointer(match: re.Match) -> str:
    kind, name, more = match["type"], match["name"], match["more"]
    breaks = "\n" * match.group().count("\n")
    if more:  # extern __shared__ float tile[][32]
        return f"{kind} (* const {name}){more} = ({kind} (*){more})kvcuda_dynamic_shared;{breaks}"
    return f"{kind}* const {name} = ({kind}*)kvcuda_dynamic_shared;{breaks}"
