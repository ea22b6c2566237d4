# ruff: noqa
# Removes the kernel's sockets and puts links to others in their place.
# honest: small.1, small.2, small.3

# %%
import os

for number in range(1, 6):
    os.remove(f"/run/kernel/k-{number}")
    os.symlink(COURSE + "/listen", f"/run/kernel/k-{number}")
