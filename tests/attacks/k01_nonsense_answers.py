# ruff: noqa
# Answers with frames of nonsense: depth, size, wrong tags, wrong sizes, endless numbers.

# %%
DEEP = []
for _ in range(100_000):
    DEEP = [DEEP]


# %% small.1
def double(x):
    return DEEP if x % 2 else 10**20_000


# %% small.2
def fill(array, value):
    return [range(10**15)]


# %% small.3
class Counter:
    def add(self, word):
        return "w" * 40_000_000

    def most(self):
        return 1
