# ruff: noqa
# Kills or stops the process that forks for the tests.
# honest: small.2, small.3
# limits: cell_seconds=1.0, call_seconds=0.5, task_seconds=3.0, answer_seconds=2.0
# slow

# %% small.1
import os, signal


def double(x):
    os.kill(os.getppid(), signal.SIGKILL if x == 2 else signal.SIGSTOP)
