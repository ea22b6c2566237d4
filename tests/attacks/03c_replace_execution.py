# ruff: noqa
# Replaces the kernel's execution by a success.

# %%
kernel = get_ipython().kernel


async def done(*a, **k):
    return {"status": "ok", "execution_count": 1, "payload": [], "user_expressions": {}}


kernel.do_execute = done
