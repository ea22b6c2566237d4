# ruff: noqa
# Prints 50 MB in lines.
# honest: small.1, small.2, small.3
# slow

# %%
line = "x" * 999
for _ in range(50_000):
    print(line)
