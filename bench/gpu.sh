#!/usr/bin/env bash
# Our kernels on a real GPU, in under 8 minutes: both runs compared, other tools' verdicts beside ours, bandwidth, the engine.
# Needs torch with CUDA, cuda-core and a C++ compiler; compute-sanitizer and ncu are used where they are found.
#   bench/gpu.sh              on a machine with a GPU; writes bench/results/gpu.json
#   bench/gpu.sh --dry-run    everything that a CPU allows; writes bench/results/gpu_dry_run.json
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
python="${PYTHON:-python3}"
# -P: bench/cuda.py must not hide NVIDIA's package cuda.
exec timeout --signal=INT --kill-after=10 470 "$python" -P bench/gpu_run.py "$@"
