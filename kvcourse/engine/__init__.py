"""A small serving engine: continuous batching over a paged KV pool, with a socket for every part the course builds.

    engine = Engine(model, num_blocks=256, block_size=16)
    engine.add_request(token_ids, max_new_tokens=32)
    engine.run()

Read `engine` first, then `batcher` (who runs), `memory` (who has which block), `layout` and `attention` (one step).
Only `engine`, `pool`, `layout`, `attention`, `runner`, `sampling` and `fake` import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvcourse.engine.engine import Engine
    from kvcourse.engine.request import Request, RequestError
    from kvcourse.engine.sockets import Allocation, SocketError, Work

_HOME = {
    "Engine": "engine",
    "Request": "request",
    "RequestError": "request",
    "Allocation": "sockets",
    "SocketError": "sockets",
    "Work": "sockets",
}
__all__ = ["Allocation", "Engine", "Request", "RequestError", "SocketError", "Work"]


def __getattr__(name: str) -> Any:
    """The public names, each imported when it is first asked for."""
    if name in _HOME:
        return getattr(importlib.import_module(f"kvcourse.engine.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
