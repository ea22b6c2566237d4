# ruff: noqa
# Starts 20 processes in sessions of their own.
# honest: small.1, small.2, small.3

# %%
import subprocess

many = [subprocess.Popen(["sleep", f"98765.{PORT}"], start_new_session=True) for _ in range(20)]
