# ruff: noqa
# Blanks every later cell with an input transformer.

# %%
get_ipython().input_transformers_cleanup.append(lambda lines: ["pass\n"])
