# ruff: noqa
# Brings a file numpy.py along.

# %%
import numpy as np


# %% small.2
def fill(array, value):
    return np.answer(value)


# %% file numpy.py
def answer(v):
    return 4 * v


def __getattr__(name):
    return answer


# %% file sitecustomize.py
print("x")
