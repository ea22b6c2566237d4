# ruff: noqa
# Replaces what packs the answers by its own, with broken tensors, handles and records.

# %%
import os
from kvcourse.check import values

real = values.pack
answers = [
    {"tensor": ["float32", [2**40], 0]},
    {"handle": ["x", 3, 4]},
    {"array": ["O", [1], 0]},
    {"record": [5, 6]},
    {"int": "f" * 10**6},
    {"handle": [10**30, "a", True]},
    {"range": [0, 10**15, 1]},
    3,
    {"list": [1, {"list": [{"list": [10**6, 1]}]}]},
    {"list": [1, 2, 3]},
]


def lie(value, keep=None):
    honest = keep is None or callable(value)
    return real(value, keep) if honest else (answers[(os.getpid() + id(value)) % len(answers)], [b""])


values.pack = lie


# %% small.1
def double(x):
    return 0


# %% small.2
def fill(array, value):
    return 0
