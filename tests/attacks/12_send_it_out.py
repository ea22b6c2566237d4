# ruff: noqa
# Sends the notebook out over the network and over unix sockets.

# %%
import socket

for family, address in [(socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_UNIX, COURSE + "/listen")]:
    try:
        s = socket.socket(family)
        s.settimeout(1)
        s.connect(address)
        s.sendall(b"SECRET")
        print("SENT")
    except OSError as error:
        print("blocked", error)
