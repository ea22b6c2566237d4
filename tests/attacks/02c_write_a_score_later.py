# ruff: noqa
# Leaves a process behind that writes a score later.

# %%
import subprocess, sys

subprocess.Popen(
    [
        sys.executable,
        "-c",
        f"""import time, sqlite3
time.sleep(1)
book = sqlite3.connect({COURSE!r} + '/gradebook.db')
book.execute('update grade set score = 350')
book.commit()""",
    ],
    start_new_session=True,
)
