"""The GPU's process on a CPU, for tests: words in a kernel's source, or in the environment, make it die or hang."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from autograde import gpu_worker
from kvcourse.check.gpu import Gpu

HANG, DIE, LOSE = "// HANG", "// DIE", "// LOSE"
AT_START = "GPU_STAND_IN"  # "die", "hang" or "lost"


def launch(gpu: Gpu, source: str, *rest: Any) -> list[Any]:
    if HANG in source:
        time.sleep(600)
    if DIE in source:
        os._exit(9)
    if LOSE in source:
        raise gpu_worker.GpuUnavailable("the driver is gone")
    return real(gpu, source, *rest)


if __name__ == "__main__":
    match os.environ.get(AT_START):
        case "die":
            os._exit(3)
        case "hang":
            time.sleep(600)
        case "lost":
            gpu_worker.TRIAL = LOSE
    real, Gpu.launch = Gpu.launch, launch  # type: ignore[method-assign]
    gpu_worker.main(*sys.argv[1:])
