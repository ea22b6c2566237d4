"""What one submission may use, and the error that says the grader, not the student, has a problem."""

from __future__ import annotations

from dataclasses import dataclass

MiB = 2**20


class InfrastructureFault(Exception):
    """The grader could not do its work: the submission is "not run", which is never a zero."""


@dataclass(frozen=True)
class Limits:
    """Seconds, bytes and counts for one submission."""

    cell_seconds: float = 30.0
    notebook_seconds: float = 120.0  # all cells together; as much again for repeats after a lost kernel
    call_seconds: float = 10.0  # one call of a student's function
    task_seconds: float = 45.0  # all calls of one task together
    kernel_seconds: float = 60.0  # CUDA kernels of one task, compiled and run on the CPU, together
    start_seconds: float = 60.0  # until the kernel is ready for the first cell
    answer_seconds: float = 10.0  # until it has a process ready for a property; three times that for the first
    memory: int = 3072 * MiB
    scratch: int = 128 * MiB  # the work folder, and the largest single file
    data: int = 64 * MiB  # files copied from the submission
    processes: int = 128
    output_bytes: int = 1_000_000  # kept of one cell
    output_lines: int = 1000
    output_messages: int = 2000
    devices: tuple[str, ...] = ()  # device files the code may open, such as /dev/nvidia0
