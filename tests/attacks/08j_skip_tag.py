# ruff: noqa
# Asks to skip every cell by tag.
# tags: skip-execution, remove-cell, raises-exception

# %%
print("ran")
