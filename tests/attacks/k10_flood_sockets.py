# ruff: noqa
# Floods the grader's sockets with large and broken messages.
# slow

# %%
kernel = get_ipython().kernel
parent = kernel.get_parent("shell")
ident = kernel._parent_ident["shell"]
idents = ident if isinstance(ident, list) else [ident]
parts = [b"<IDS|MSG>", b"", b"{}", b"{}", b"{}"]
for _ in range(60):
    kernel.iopub_socket.send_multipart([b"stream", *parts, b"x" * (30 * 2**20)])
    kernel.shell_stream.socket.send_multipart([*idents, *parts, b"x" * (3 * 2**20)])
kernel.session.send(kernel.iopub_socket, "stream", {"name": 5, "text": [1]}, parent)
kernel.session.send(kernel.iopub_socket, "error", {"ename": 1, "evalue": {}, "traceback": 3}, parent)
kernel.session.send(kernel.iopub_socket, "display_data", {"data": {"text/html": 5, "x": "y"}}, parent)


async def odd(*a, **k):
    return {"status": [1], "ename": {}, "evalue": 3, "traceback": 5, "execution_count": 1, "payload": []}


kernel.do_execute = odd

# %%
print("not run")
