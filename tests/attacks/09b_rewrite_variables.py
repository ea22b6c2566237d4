# ruff: noqa
# Rewrites the variables of whoever calls, from a thread.
# limits: cell_seconds=1.0, call_seconds=0.5, task_seconds=2.0
# slow

# %%
import sys, threading, time, ctypes


def rewrite():
    while True:
        for frame in list(sys._current_frames().values()):
            while frame:
                for name in ("want", "x", "result", "value", "points", "passed"):
                    if name in frame.f_locals:
                        frame.f_locals[name] = True
                        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
                frame = frame.f_back
        time.sleep(0.001)


threading.Thread(target=rewrite, daemon=True).start()


# %% small.1
def double(x):
    return x
