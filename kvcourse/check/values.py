"""Values between a test and the learner's code: plain data crosses, everything else stays where it is as a handle.

`pack` turns a value into JSON-ready data plus raw byte buffers (arrays and tensors by dtype, shape and bytes; never
pickle), `unpack` turns it back and trusts nothing: unknown tags, wrong sizes and deep nesting raise BadValue.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

MAX_DEPTH = 40
MAX_BYTES = 256 * 2**20
MAX_BITS = 10_000  # of a whole number: Python refuses to print longer ones
MAX_RANGE = 10_000_000  # items, since tests list them
NUMPY_DTYPES = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)} | {
    "bool", "float16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip
TORCH_DTYPES = {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"}


class BadValue(ValueError):
    """A packed value that does not follow the rules."""


class Record:
    """A dataclass or namedtuple instance by value: fields by name, items in field order."""

    __slots__ = ("_fields", "_type")

    def __init__(self, type_name: str, fields: dict[str, Any]) -> None:
        self._type, self._fields = type_name, fields

    def __getattr__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"{self._type} has no field {name!r}; it has {', '.join(self._fields)}") from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fields.values())

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, index: int) -> Any:
        return list(self._fields.values())[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record | tuple) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self._type}({', '.join(f'{key}={value!r}' for key, value in self._fields.items())})"


Keep = Callable[[Any], Any]
"""Stores an object that cannot cross and returns the JSON-ready mark that stands for it."""


def pack(value: Any, keep: Keep | None = None) -> tuple[Any, list[bytes]]:
    """JSON-ready data and buffers of `value`; objects that are no plain data go through `keep` or raise BadValue."""
    buffers: list[bytes] = []
    return _pack(value, buffers, keep, 0), buffers


def unpack(data: Any, buffers: list[bytes], handle: Keep | None = None, *, rebuild: bool = False) -> Any:
    """The value of packed data. `handle` rebuilds what `keep` made; `rebuild=True` (the learner's side only) also
    makes real Transformers configs and namespaces, elsewhere they arrive as records."""
    return _unpack(data, buffers, handle, rebuild, 0)


def _pack(value: Any, buffers: list[bytes], keep: Keep | None, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise BadValue("nested too deeply")

    def inner(item: Any) -> Any:
        return _pack(item, buffers, keep, depth + 1)

    if value is None or type(value) in (bool, str, float):
        return value
    if type(value) is int:
        if value.bit_length() > MAX_BITS:
            raise BadValue(f"a whole number of {value.bit_length():,} bits is too large")
        return value if abs(value) < 2**63 else {"int": hex(value)}
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, bytes | bytearray):
        return {"bytes": _add(buffers, bytes(value))}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {
            "record": [type(value).__name__, [[str(k), inner(v)] for k, v in zip(value._fields, value, strict=True)]]
        }
    for kind in (list, tuple, set, frozenset):
        if type(value) is kind:
            return {kind.__name__.removeprefix("frozen"): [inner(item) for item in value]}
    if type(value) is dict:
        return {"dict": [[inner(k), inner(v)] for k, v in value.items()]}
    if type(value) is range:
        return {"range": [value.start, value.stop, value.step]}
    if type(value) is np.ndarray and value.dtype.name in NUMPY_DTYPES:
        return {"array": [value.dtype.name, list(value.shape), _add(buffers, np.ascontiguousarray(value).tobytes())]}
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and str(value.dtype)[6:] in TORCH_DTYPES:
        flat = value.detach().cpu().contiguous().reshape(-1)
        raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        return {"tensor": [str(value.dtype)[6:], list(value.shape), _add(buffers, raw)]}
    if isinstance(value, Record):
        return {"record": [value._type, [[k, inner(v)] for k, v in value._fields.items()]]}
    if (
        hasattr(value, "to_dict")
        and hasattr(value, "model_type")
        and type(value).__module__.startswith("transformers.")
    ):
        return {"config": [str(value.model_type), inner(_config_dict(value))]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            "record": [
                type(value).__name__,
                [[f.name, inner(getattr(value, f.name))] for f in dataclasses.fields(value)],
            ]
        }
    if type(value) is SimpleNamespace:
        return {"namespace": [[str(k), inner(v)] for k, v in vars(value).items()]}
    for plain in (int, float, str, list, tuple, dict):  # subclasses: their plain content, none of their behaviour
        if isinstance(value, plain):
            return inner(plain(value))
    if keep is None:
        raise BadValue(f"a {type(value).__name__} is no plain value")
    return {"handle": keep(value)}


def _config_dict(config: Any) -> dict[str, Any]:
    """The config's fields as plain data (a dtype becomes its name)."""
    return {key: value if _plain(value) else str(value) for key, value in config.to_dict().items()}


def _plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_plain(v) for v in value.values())
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _add(buffers: list[bytes], raw: bytes) -> int:
    buffers.append(raw)
    return len(buffers) - 1


def _unpack(data: Any, buffers: list[bytes], handle: Keep | None, rebuild: bool, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise BadValue("nested too deeply")
    if data is None or type(data) in (bool, int, float, str):
        return data
    if type(data) is not dict or len(data) != 1:
        raise BadValue("not a packed value")
    [(tag, body)] = data.items()

    def inner(item: Any) -> Any:
        return _unpack(item, buffers, handle, rebuild, depth + 1)

    try:
        match tag:
            case "int":
                if len(body) > MAX_BITS // 4 + 3:
                    raise BadValue("a whole number is too large")
                return int(body, 16)
            case "bytes":
                return bytes(buffers[body])
            case "list":
                return [inner(item) for item in body]
            case "tuple":
                return tuple(inner(item) for item in body)
            case "set":
                return {inner(item) for item in body}
            case "dict":
                return {inner(key): inner(value) for key, value in body}
            case "range":
                made = range(*body)
                if len(made) > MAX_RANGE:
                    raise BadValue(f"a range of {len(made):,} items is too long")
                return made
            case "array":
                return _array(*body, buffers)
            case "tensor":
                return _tensor(*body, buffers)
            case "record":
                return Record(str(body[0]), {str(key): inner(value) for key, value in body[1]})
            case "namespace":
                fields = {str(key): inner(value) for key, value in body}
                return SimpleNamespace(**fields) if rebuild else Record("SimpleNamespace", fields)
            case "config":
                return _config(str(body[0]), inner(body[1])) if rebuild else Record("Config", inner(body[1]))
            case "handle" if handle is not None:
                return handle(body)
    except BadValue:
        raise
    except (
        TypeError,
        ValueError,
        IndexError,
        KeyError,
        AttributeError,
        OverflowError,
        RuntimeError,
        MemoryError,
    ) as error:
        raise BadValue(f"a broken {tag}: {error}") from None
    raise BadValue(f"unknown tag {tag!r}")


def _array(dtype: str, shape: list[int], index: int, buffers: list[bytes]) -> np.ndarray:
    if dtype not in NUMPY_DTYPES:
        raise BadValue(f"dtype {dtype!r}")
    return np.frombuffer(buffers[index], dtype=dtype).reshape(_shape(shape)).copy()


def _tensor(dtype: str, shape: list[int], index: int, buffers: list[bytes]) -> Any:
    if dtype not in TORCH_DTYPES:
        raise BadValue(f"dtype {dtype!r}")
    import torch

    kind = getattr(torch, dtype)
    if not buffers[index] and 0 in _shape(shape):
        return torch.empty(_shape(shape), dtype=kind)
    return torch.frombuffer(bytearray(buffers[index]), dtype=kind).reshape(_shape(shape))


def _shape(shape: list[int]) -> tuple[int, ...]:
    if not all(type(length) is int and length >= 0 for length in shape):
        raise BadValue("a shape is a list of whole numbers")
    return tuple(shape)


def _config(model_type: str, fields: dict[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING, PretrainedConfig

    known = {key: value for key, value in fields.items() if key != "model_type"}
    if model_type in CONFIG_MAPPING:
        return CONFIG_MAPPING[model_type].from_dict(fields)
    return PretrainedConfig(**known)
