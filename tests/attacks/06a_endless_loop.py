# ruff: noqa
# Loops for ever: in a cell, in a function.
# slow
# honest: small.2, small.3
# limits: cell_seconds=1.0, call_seconds=0.5, task_seconds=2.0
# stops: KeyboardInterrupt

# %%
while True:
    pass


# %% small.1
def double(x):
    while True:
        pass
