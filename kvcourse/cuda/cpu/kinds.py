"""The kinds of faults: what each is called, what a GPU makes of it, and what to try."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    title: str
    on_gpu: str
    tip: str


SILENT = "a wrong result now and then, in silence"
NO_PLACE = "error 700, without a place"
HANGS = "hangs, or undefined values"

KINDS = {
    # memory
    "out-of-bounds": Kind("out of bounds", "uses other data, usually in silence", "guard it: if (i < n)"),
    "array-index": Kind(
        "index outside an array", "uses other data, in silence", "compare the index with the array's size"
    ),
    "unset": Kind("read before written", "whatever was left there", "write it first, every part that is read"),
    "misaligned": Kind(
        "misaligned access", "error 716, without a place", "use an address that is a multiple of the size"
    ),
    "null-pointer": Kind("null pointer", NO_PLACE, "hand a tensor to this parameter"),
    "wild-pointer": Kind("invalid address", NO_PLACE, "check how the address is computed"),
    "foreign-local": Kind("another thread's local variable", "reads something else", "share through __shared__ memory"),
    "read-only": Kind("write to a const input", "changes the input, in silence", "write to an output"),
    "stack-overflow": Kind("stack overflow", "an error, or wrong results", "end the recursion, or shrink local arrays"),
    # order
    "race": Kind("race", SILENT, "put __syncthreads() between, or __syncwarp() within a warp"),
    "same-value-writes": Kind("several threads write the same value", "harmless", "let one thread write it"),
    # barriers and warp functions
    "barrier-diverged": Kind(
        "barrier in a branch", "hangs or goes on too early", "move __syncthreads() out of the branch"
    ),
    "early-return": Kind(
        "barrier after some threads returned", "works on a T4 and newer", "guard the work, not the thread"
    ),
    "warp-diverged": Kind("warp function in a branch", HANGS, "call it outside the branch, with every lane"),
    "warp-waits-forever": Kind(
        "warp function that not every lane reaches", HANGS, "call it with every lane of its mask"
    ),
    "outside-mask": Kind("lane outside the mask", "undefined", "name every calling lane: 0xffffffff for all"),
    "absent-lane": Kind("shuffle from a lane that takes no part", "an undefined value", "let the whole warp take part"),
    # the rest
    "division": Kind("division by zero", "an undefined value, in silence", "check the divisor"),
    "trap": Kind("assert", "stops the whole grid", "find out why the condition does not hold"),
    "time-limit": Kind("time limit", "hangs", "does this loop end? Does it wait for a block that comes later?"),
}
