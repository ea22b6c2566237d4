# ruff: noqa
# Writes a score into the gradebook.
# stops: OperationalError

# %%
import sqlite3

book = sqlite3.connect(COURSE + "/gradebook.db")
book.execute("update grade set score = 350")
book.commit()
