"""What kernels need on this machine's GPU: said in a sentence, and on Colab, where sessions start bare, installed."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys

NEEDED = ("cuda.core", "cuda.bindings.nvrtc")  # launches, and the compiler's Python side; torch brings the compiler


def prepare_gpu() -> None:
    """Bring or name what is missing; nothing is said where there is no GPU, or where nothing is missing."""
    packages = missing_packages()
    if not packages:
        return
    if "google.colab" in sys.modules:
        command = [sys.executable, "-m", "pip", "install", "--quiet", *packages]
        if subprocess.run(command, check=False).returncode == 0:
            importlib.invalidate_caches()
            print("Kernels run on the GPU of this machine.")
            return
    wanted = " ".join(f'"{package}"' for package in packages)
    print(f"This machine has a GPU. For kernels to run on it: %pip install {wanted}, then restart the kernel.")
    print("Until then they run on the CPU, where every check and all points are.")


def missing_packages() -> list[str]:
    """What pip must bring for the CUDA that torch has; empty without a GPU."""
    import torch

    if not torch.cuda.is_available() or all(map(_is_there, NEEDED)):
        return []
    return ["cuda-core>=1.0,<2", f"cuda-bindings=={str(torch.version.cuda).split('.')[0]}.*"]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False
