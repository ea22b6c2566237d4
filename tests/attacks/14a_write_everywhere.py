# ruff: noqa
# Writes into other submissions, the course and the machine.

# %%
import os

for path in [
    COURSE + "/submitted/bob/small.ipynb",
    COURSE + "/config.py",
    PROJECT + "/kvcourse/__init__.py",
    "/course/kvcourse/__init__.py",
    "/data/x",
    "/etc/passwd",
    "/usr/x",
    "/proc/sys/kernel/core_pattern",
    "/proc/sysrq-trigger",
    "/dev/x",
    "/x",
]:
    try:
        open(path, "a").close()
        print("WROTE", path)
    except OSError as error:
        print("blocked", path, error.strerror)
