"""What a cell defines: the names of its functions, classes and variables, also when it does not parse."""

from __future__ import annotations

import ast
import re

DEFINITION = re.compile(r"^(?:async\s+)?(?:def|class)\s+(\w+)", re.MULTILINE)
MAGIC_LINE = re.compile(r"^([ \t]*)[!%?].*$", re.MULTILINE)
CUDA_CELL = re.compile(r"\A\s*%%cuda\b(.*)")
TEMPLATE = re.compile(r"""(?:--template|-t)\s+(?:"[^"]*"|'[^']*'|\S+)""")
DEFINITIONS = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
MAX_PARSED = 1_000_000  # characters; longer cells are only searched


def defined_names(source: str) -> frozenset[str]:
    """Functions, classes and kernels at the top level of a cell; of a `%%cuda` cell, the names in its first line."""
    cuda = CUDA_CELL.match(source)
    if cuda:
        return frozenset(word for word in TEMPLATE.sub(" ", cuda[1]).split() if word.isidentifier())
    body = _parsed(source)
    if body is None:
        return frozenset(DEFINITION.findall(source))
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    kernels = [name for node in body if _makes_kernel(node) for name in _targets(node)]
    return frozenset([*(node.name for node in body if isinstance(node, named)), *kernels])


def added_definitions(source: str, released: str) -> str:
    """Imports and definitions that a student added to a locked cell, without those that the release has itself."""
    mine, theirs = _parsed(source), _parsed(released)
    if mine is None or theirs is None:
        return ""
    names = {name for node in theirs for name in _targets(node)}
    lines, kept = source.splitlines(), []
    for node in mine:
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = [alias for alias in node.names if _bound(alias) not in names]
            kept += [ast.unparse(node)] if node.names else []
        elif isinstance(node, DEFINITIONS) and not names & set(_targets(node)):
            first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])
            kept.append("\n".join(lines[first - 1 : node.end_lineno]))
    return "\n".join(kept)


def _parsed(source: str) -> list[ast.stmt] | None:
    """The statements of a Python cell, magics replaced by `pass`; None when it does not parse."""
    if source.lstrip().startswith("%%") or len(source) > MAX_PARSED:
        return None
    try:
        return ast.parse(MAGIC_LINE.sub(r"\1pass", source)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _makes_kernel(node: ast.stmt) -> bool:
    """`name = Kernel(...)`, or `name = "..."` with the text of a kernel."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    value = node.value
    if isinstance(value, ast.Call):
        return getattr(value.func, "attr", getattr(value.func, "id", "")) == "Kernel"
    return isinstance(value, ast.Constant) and isinstance(value.value, str) and "__global__" in value.value


def _targets(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [_bound(alias) for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _bound(alias: ast.alias) -> str:
    return (alias.asname or alias.name).split(".")[0]
