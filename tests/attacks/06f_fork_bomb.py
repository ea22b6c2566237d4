# ruff: noqa
# Starts processes until it gets no more.
# limits: processes=100
# stops: BlockingIOError

# %%
import os

for _ in range(2000):
    if os.fork() == 0:
        os.setsid()
        os.execv("/bin/sleep", ["sleep", f"98765.{PORT}"])
