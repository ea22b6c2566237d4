# ruff: noqa
# Ends the interpreter politely, in a cell and in a function.
# honest: small.2, small.3
# stops: SystemExit

# %%
import sys

sys.exit(0)

# %% small.1
import sys


def double(x):
    sys.exit(0)
