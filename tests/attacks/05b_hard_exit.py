# ruff: noqa
# Ends its process hard: in cells, in a function.
# honest: small.2, small.3
# slow

# %%
import os

os._exit(0)

# %%
import os, signal

os.kill(os.getpid(), signal.SIGKILL)

# %% small.1
import os


def double(x):
    os._exit(0)
