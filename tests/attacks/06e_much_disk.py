# ruff: noqa
# Writes 200 MB of files.
# honest: small.1, small.2, small.3

# %%
for place in (".", "/tmp", "/dev/shm", "/run/kernel"):
    try:
        for part in range(8):
            with open(f"{place}/big{part}", "wb") as file:
                for _ in range(25):
                    file.write(b"x" * 2**20)
        print("WROTE 200 MB TO", place)
    except OSError as error:
        print("stopped", place, error.strerror)
