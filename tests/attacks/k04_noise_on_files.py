# ruff: noqa
# Writes to every open file of its process, and closes them.
# honest: small.2, small.3
# limits: cell_seconds=1.0, call_seconds=0.5, task_seconds=3.0, answer_seconds=2.0

# %%
import os


def noise():
    for number in range(3, 64):
        try:
            os.write(number, b"\xff" * 4096)
            os.close(number)
        except OSError:
            pass


# %% small.1
def double(x):
    noise()
    return 4
