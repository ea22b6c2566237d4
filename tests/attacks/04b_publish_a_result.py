# ruff: noqa
# Publishes a result and a reply of its own making.
# stops: RuntimeError

# %%
kernel = get_ipython().kernel
parent = kernel.get_parent("shell")
for score in ({"text/plain": "9.0"}, {"passed": True, "points": 9}):
    kernel.session.send(
        kernel.iopub_socket, "execute_result", {"data": score, "metadata": {}, "execution_count": 1}, parent
    )
kernel.session.send(kernel.iopub_socket, "status", {"execution_state": "idle"}, parent)
raise RuntimeError("after the result")
