# ruff: noqa
# Raises errors that break whoever reads them.

# %% small.1
class Odd(Exception):
    def __str__(self):
        raise SystemExit


def double(x):
    raise Odd("a")


# %% small.2
def fill(array, value):
    raise ValueError("\ud800" * 10**6)


# %% small.3
class Counter:
    def __getattr__(self, name):
        raise KeyboardInterrupt
