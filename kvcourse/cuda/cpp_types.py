"""C++ types that cross from Python: numbers, and pointers to what torch tensors hold."""

from __future__ import annotations

# Type -> struct format of one value. `long` has 8 bytes, as on Linux.
SCALARS = {
    "bool": "?", "char": "b", "signed char": "b", "unsigned char": "B", "short": "h", "unsigned short": "H",
    "int": "i", "unsigned int": "I", "long": "q", "unsigned long": "Q", "long long": "q", "unsigned long long": "Q",
    "size_t": "Q", "float": "f", "double": "d", "__half": "e",
}  # fmt: skip
# Pointed-to type -> torch dtypes it reads. Unsigned types take the signed dtype of their size too: torch has few more.
ELEMENTS = {
    "bool": ("bool",), "char": ("int8", "uint8"), "signed char": ("int8",), "unsigned char": ("uint8", "bool"),
    "short": ("int16",), "unsigned short": ("uint16", "int16"), "int": ("int32",), "unsigned int": ("uint32", "int32"),
    "long": ("int64",), "unsigned long": ("uint64", "int64"), "long long": ("int64",),
    "unsigned long long": ("uint64", "int64"), "size_t": ("uint64", "int64"), "float": ("float32",),
    "double": ("float64",), "__half": ("float16",), "__nv_bfloat16": ("bfloat16",),
}  # fmt: skip
_SHORT = {
    "char": "signed char", "uchar": "unsigned char", "short": "short", "ushort": "unsigned short", "int": "int",
    "uint": "unsigned int", "longlong": "long long", "ulonglong": "unsigned long long", "float": "float",
    "double": "double",
}  # fmt: skip
# Vector type -> type and number of its elements.
VECTORS = {f"{short}{n}": (full, n) for short, full in _SHORT.items() for n in (1, 2, 3, 4)} | {
    "__half2": ("__half", 2),
    "__nv_bfloat162": ("__nv_bfloat16", 2),
}
_SAME = {"half": "__half", "half2": "__half2", "nv_bfloat16": "__nv_bfloat16", "nv_bfloat162": "__nv_bfloat162"}
_INTEGER_WORDS = {"signed", "unsigned", "char", "short", "int", "long"}


def canonical(words: list[str], types: dict[str, str]) -> str:
    """One spelling for each type: `unsigned long long int` -> "unsigned long long"; names in `types` are looked up."""
    if words and set(words) <= _INTEGER_WORDS:
        unsigned = "unsigned " if "unsigned" in words else ""
        if "char" in words:
            return "signed char" if "signed" in words else f"{unsigned}char"
        if "short" in words:
            return f"{unsigned}short"
        return unsigned + ("long long" if words.count("long") == 2 else "long" if "long" in words else "int")
    name = " ".join(words)
    if name in types:
        return canonical(types[name].split(), {key: value for key, value in types.items() if key != name})
    return _SAME.get(name, name)


def can_be_number(name: str) -> bool:
    return name in SCALARS


def can_be_pointed_to(name: str) -> bool:
    return name in ELEMENTS or name in VECTORS or name == "void"
