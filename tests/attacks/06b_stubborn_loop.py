# ruff: noqa
# Loops for ever and swallows every interrupt.
# honest: small.2, small.3
# limits: cell_seconds=1.0, call_seconds=0.5, task_seconds=2.0
# slow

# %%
kept = 1

# %%
import time


def stubborn():
    while True:
        try:
            while True:
                time.sleep(0.001)
        except BaseException:
            pass


stubborn()

# %% small.1
import time


def stubborn():
    while True:
        try:
            while True:
                time.sleep(0.001)
        except BaseException:
            pass


def double(x):
    stubborn()
