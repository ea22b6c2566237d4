# ruff: noqa
# Prints and displays without end, from a cell and from a thread.
# honest: small.1, small.2, small.3
# limits: cell_seconds=2.0
# stops: KeyboardInterrupt
# slow

# %%
import threading


def babble():
    while True:
        print("y" * 100, flush=True)


threading.Thread(target=babble, daemon=True).start()

# %%
from IPython.display import display

while True:
    display("z" * 1000)
