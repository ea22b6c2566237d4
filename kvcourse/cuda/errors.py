"""What can go wrong with a kernel, each as a sentence for the person who wrote it."""

from __future__ import annotations

from kvcourse.tasks.course import UserError


class CompileError(UserError):
    """The source is no kernel for a T4 (sm_75), or has an error in it; the message names the lines."""


class NoCompilerError(CompileError):
    """NVIDIA's compiler is not installed, or too old for the GPU; says nothing about the source."""


class LaunchError(UserError, ValueError):
    """A launch that CUDA would refuse: a wrong argument, too big a block. Nothing ran."""


class KernelError(UserError):
    """The kernel was stopped while it ran: a bad address, an endless loop, too much memory."""
