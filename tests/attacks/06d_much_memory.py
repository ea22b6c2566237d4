# ruff: noqa
# Takes 600 MB of memory, in a cell and in a function.
# honest: small.2, small.3
# limits: memory=524288000
# stops: MemoryError

# %%
big = bytearray(600 * 2**20)
for i in range(0, len(big), 4096):
    big[i] = 1
print("TOOK" + " IT")


# %% small.1
def double(x):
    return bytearray(600 * 2**20)
