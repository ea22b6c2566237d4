"""What crosses between a test and the learner's code: plain values exactly, and no trust on the way back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kvcourse.check.values import BadValue, Record, pack, unpack

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
KEYS = st.integers() | st.text() | st.booleans()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner) | st.sets(KEYS),
    max_leaves=20,
)


def travel(value, **kwargs):
    """Pack, through real JSON text, and back."""
    data, buffers = pack(value)
    return unpack(json.loads(json.dumps(data)), buffers, **kwargs)


def same(a, b) -> bool:
    if isinstance(a, float):
        return type(b) is float and (a == b or (a != a and b != b))
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return type(b) is dict and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(PLAIN)
def test_plain_values_arrive_as_they_left(value):
    assert same(value, travel(value))


@given(
    hnp.arrays(
        st.sampled_from(["int64", "float32", "float16", "bool", "uint8"]), hnp.array_shapes(min_dims=0, min_side=0)
    )
)
def test_arrays_keep_dtype_shape_and_bits(array):
    got = travel(array)
    assert got.dtype == array.dtype and got.shape == array.shape and got.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_tensors_keep_dtype_shape_and_bits(dtype, shape):
    tensor = torch.randint(0, 2, shape).to(getattr(torch, dtype))
    got = travel(tensor)
    assert got.dtype == tensor.dtype and got.shape == tensor.shape and torch.equal(got, tensor)


def test_a_transposed_tensor_arrives_in_its_own_order():
    tensor = torch.arange(6).reshape(2, 3).T
    assert torch.equal(travel(tensor), tensor)


class Pair(NamedTuple):
    left: int
    right: int | None


@dataclass
class Box:
    width: int


def test_records_give_fields_and_items():
    pair, box = travel(Pair(1, None)), travel([Box(3)])[0]
    assert (pair.left, pair.right, list(pair), pair == (1, None), box.width) == (1, None, [1, None], True, 3)
    assert repr(pair) == "Pair(left=1, right=None)"
    with pytest.raises(AttributeError, match="it has left, right"):
        _ = pair.middle


def test_subclasses_arrive_as_their_plain_content():
    """An int that claims to equal everything is an ordinary int on the other side."""

    class Liar(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    assert travel(Liar(3)) != 4 and type(travel(Liar(3))) is int
    assert type(travel(np.int32(5))) is int and type(travel(np.float32(0.5))) is float


def test_other_objects_do_not_cross():
    with pytest.raises(BadValue, match="object is no plain value"):
        pack(object())
    data, buffers = pack([object()], keep=lambda value: [7, type(value).__name__])
    assert unpack(data, buffers, handle=tuple) == [(7, "object")]


def test_configs_are_rebuilt_on_the_learner_side_only():
    from transformers import FalconConfig, GPT2Config

    config = travel(FalconConfig(num_hidden_layers=3), rebuild=True)
    assert type(config) is FalconConfig and config.num_hidden_layers == 3
    assert travel(GPT2Config(), rebuild=True).num_hidden_layers == 12  # the attribute map came along
    assert isinstance(travel(GPT2Config()), Record)


@pytest.mark.parametrize(
    "data",
    [
        {"evil": 1},
        {"list": 3},
        {"array": ["object", [1], 0]},
        {"array": ["float32", [-1], 0]},
        {"array": ["float32", [5], 0]},
        {"tensor": ["float32", [10**12], 0]},
        {"bytes": 9},
        {"handle": [0, "x", False]},
        {"a": 1, "b": 2},
        [1],
        {"set": [{"list": []}]},
    ],
)
def test_nonsense_is_refused(data):
    with pytest.raises(BadValue):
        unpack(data, [b"1234"])


def test_deep_nesting_is_refused_both_ways():
    deep: list = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(BadValue, match="deep"):
        pack(deep)
    data = None
    for _ in range(100):
        data = {"list": [data]}
    with pytest.raises(BadValue, match="deep"):
        unpack(data, [])
