# ruff: noqa
# Prints 50 MB in one line.
# honest: small.1, small.2, small.3

# %%
print("x" * 50_000_000)
