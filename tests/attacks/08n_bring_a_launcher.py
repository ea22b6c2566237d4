# ruff: noqa
# Brings files named like the kernel's launcher and its settings along.

# %% small.1
pass

# %% file ipykernel_launcher.py
raise SystemExit(0)

# %% file ipykernel/__init__.py
raise SystemExit(0)

# %% file ipykernel/kernelapp.py
raise SystemExit(0)

# %% file ipython_kernel_config.json
{"IPKernelApp": {"exec_lines": ["double = lambda x: 2 * x"]}}

# %% file .ipython/profile_default/ipython_config.json
{"InteractiveShellApp": {"exec_lines": ["x = 1/0"]}}
