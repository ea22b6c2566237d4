"""Another project's CUDA tasks as a test of ours: mlsys-lab 0.4.0, for development only, nothing of it is copied.

`pip install mlsys-lab==0.4.0` makes these run; without it they are skipped.
"""

from __future__ import annotations

import importlib.metadata
import re

import cuda_peer
import pytest

PINNED = "0.4.0"
# Tasks whose checks cannot hold on an executor of real CUDA C++, and why.
EXCLUDED = {
    "gpu-counter-based-philox-style-rng-from-scratch": "% on floats is no C++",
    "gpu-deterministic-dropout-under-backward-recompute": "% on floats is no C++",
    "gpu-fix-rng-correlated-across-threads": "counts on integers that never overflow",
    "gpu-prove-geometry-independent-rng-gives-a-reproducible-mask": "counts on integers that never overflow",
    "gpu-cut-registers-to-lift-occupancy-past-a-target": "its check reads the simulator's syntax tree",
    "gpu-fix-over-coarsening-that-spills-registers": "its check reads the simulator's syntax tree",
    "gpu-shared-memory-tiled-matmul-numpy-model": "counts warps that reach over two blocks",
    "gpu-branchless-causal-mask-via-predicated-select": "keeps 1e30f as a double",
    "gpu-count-adds-hillis-steele-vs-blelloch": "its check counts accesses the way the simulator lines them up",
}


@pytest.fixture(scope="module")
def tasks():
    try:
        version = importlib.metadata.version("mlsys-lab")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"mlsys-lab is not installed: pip install mlsys-lab=={PINNED}")
    if version != PINNED:
        pytest.skip(f"mlsys-lab is {version}; this test is pinned to {PINNED}")
    return {folder.name: folder for folder in cuda_peer.cuda_tasks()}


@pytest.mark.slow
def test_its_tasks_pass_on_our_executor(tasks):
    """At least 137 of 146 tasks; the others are the list above, no more and no fewer."""
    results = {name: cuda_peer.grade(folder) for name, folder in tasks.items()}
    failed = {name: why for name, (passed, _, why) in results.items() if not passed}
    records = [record for _, launches, _ in results.values() for record in launches]
    print(
        f"{len(results) - len(failed)} of {len(results)} tasks pass; of {len(records)} launches "
        f"{sum(r.same_memory for r in records)}"
        f" leave the same memory, {sum(r.same_lines for r in records)} the same lines, "
        f"{sum(r.same_waves for r in records)} the same waves"
    )
    assert len(results) == 146
    assert failed.keys() == EXCLUDED.keys(), failed


@pytest.mark.slow
def test_a_removed_barrier_is_found_in_its_reference_kernels(tasks, tmp_path):
    """Each __syncthreads() of each passing task in turn; what goes unnoticed must be a barrier that nothing needs."""
    missed, found, fooled = [], 0, 0
    for name, folder in tasks.items():
        text = re.sub(r"//[^\n]*", "", (folder / "ref.cu").read_text())
        barriers = [match.span() for match in re.finditer(r"__syncthreads\(\);", text)]
        if not barriers or name in EXCLUDED:
            continue
        passed, records, _ = cuda_peer.grade(folder)
        if not passed or any(record.faults for record in records):
            continue
        for number, (start, end) in enumerate(barriers):
            mutant = tmp_path / f"{name[:40]}_{number}.cu"
            mutant.write_text(text[:start] + text[end:])
            passed, records, _ = cuda_peer.grade(folder, mutant)
            if any(record.faults for record in records):
                found += 1
                fooled += passed
            else:
                missed.append((name, number))
    print(
        f"{found} of {found + len(missed)} removed barriers found, {fooled} of them pass the task's "
        f"own check; missed: {missed}"
    )
    assert found >= 63 and len(missed) <= 4
