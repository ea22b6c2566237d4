"""Planted mistakes of chunked.3: wrong first kernels, most of them with one place changed."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault

# --- chunked.3, axpy


@fault("chunked.3", caught_by="test_axpy_fresh_blocks", why="axpy: does nothing")
class axpy_nothing:
    axpy = edited(reference.axpy, "if (i < n) out[i] = a * x[i] + y[i];", "")


@fault("chunked.3", caught_by="test_axpy_fresh_blocks", why="axpy: reads x in place of y")
class axpy_x_for_y:
    axpy = edited(reference.axpy, "+ y[i];", "+ x[i];")


@fault("chunked.3", caught_by="test_axpy_fresh_blocks", why="axpy: forgets a")
class axpy_no_factor:
    axpy = edited(reference.axpy, "out[i] = a * x[i] + y[i];", "out[i] = x[i] + y[i];")


@fault("chunked.3", caught_by="test_axpy_fresh_blocks", why="axpy: every block computes the first 128 numbers")
class axpy_first_block:
    axpy = edited(reference.axpy, "blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x")


@fault("chunked.3", caught_by="test_axpy_fresh_blocks", why="axpy: begins one block too late")
class axpy_block_late:
    axpy = edited(reference.axpy, "blockIdx.x * blockDim.x", "(blockIdx.x + 1) * blockDim.x")


@fault("chunked.3", caught_by="test_axpy_fresh_blocks", why="axpy: leaves the last number out")
class axpy_last_number:
    axpy = edited(reference.axpy, "i < n", "i < n - 1")


@fault("chunked.3", caught_by="test_axpy_fresh_blocks", why="axpy: steps by one thread too few")
class axpy_127:
    axpy = edited(reference.axpy, "blockIdx.x * blockDim.x", "blockIdx.x * (blockDim.x - 1)")


@fault("chunked.3", caught_by="test_axpy_fresh_blocks", why="axpy: changes its input x")
class axpy_input:
    axpy = edited(reference.axpy, "out[i] = a * x[i] + y[i];", "{ out[i] = a * x[i] + y[i]; ((float*)x)[i] = 0; }")


@fault("chunked.3", caught_by="test_axpy_fresh_blocks", why="axpy: knows the public sizes only", source="cuda.md 8.4")
class axpy_public:
    axpy = edited(
        reference.axpy, "if (i < n)", "if (i < n && (n == 128 || n == 300 || n == 384 || n == 1 || n == 1024))"
    )


@fault("chunked.3", caught_by="test_axpy_fresh_tails", why="axpy: no bounds check", source="cuda.md 3.2")
class axpy_no_check:
    axpy = edited(reference.axpy, "if (i < n) ", "")


@fault("chunked.3", caught_by="test_axpy_fresh_tails", why="axpy: one number too many")
class axpy_one_more:
    axpy = edited(reference.axpy, "i < n", "i <= n")


@fault("chunked.3", caught_by="test_axpy_fresh_tails", why="axpy: full blocks only")
class axpy_full_blocks:
    axpy = edited(reference.axpy, "i < n", "i < n / 128 * 128")


@fault("chunked.3", caught_by="test_axpy_fresh_sectors", why="axpy: neighbours in the warp are far apart")
class axpy_strided:
    axpy = edited(reference.axpy, "blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x * gridDim.x + blockIdx.x")


@fault("chunked.3", caught_by="test_axpy_fresh_sectors", why="axpy: a grid-stride loop with the stride of one block")
class axpy_stride:
    axpy = edited(
        reference.axpy,
        "if (i < n) out[i] = a * x[i] + y[i];",
        "for (int j = i; j < n; j += blockDim.x) out[j] = a * x[j] + y[j];",
    )


# --- chunked.3, write_kv


@fault("chunked.3", caught_by="test_write_kv_fresh_slots", why="write_kv: does nothing")
class write_nothing:
    write_kv = edited(reference.write_kv, "slot < 0", "true")


@fault("chunked.3", caught_by="test_write_kv_fresh_slots", why="write_kv: takes the token's number for its slot")
class write_token_for_slot:
    write_kv = edited(reference.write_kv, "slot = slot_mapping[blockIdx.x]", "slot = blockIdx.x")


@fault("chunked.3", caught_by="test_write_kv_fresh_slots", why="write_kv: writes the values into the pool of keys")
class write_values_to_keys:
    write_kv = edited(reference.write_kv, "v_pool[to + i]", "k_pool[to + i]")


@fault("chunked.3", caught_by="test_write_kv_fresh_slots", why="write_kv: writes the key for the value")
class write_key_twice:
    write_kv = edited(reference.write_kv, "value[from + i]", "key[from + i]")


@fault("chunked.3", caught_by="test_write_kv_fresh_slots", why="write_kv: the first token's row for every token")
class write_first_row:
    write_kv = edited(reference.write_kv, "from = (long long)blockIdx.x * width", "from = 0")


@fault("chunked.3", caught_by="test_write_kv_fresh_slots", why="write_kv: forgets the values")
class write_keys_only:
    write_kv = edited(reference.write_kv, "v_pool[to + i] = value[from + i];", "")


@fault("chunked.3", caught_by="test_write_kv_fresh_slots", why="write_kv: one number too many")
class write_one_more:
    write_kv = edited(reference.write_kv, "i < width", "i <= width")


@fault("chunked.3", caught_by="test_write_kv_fresh_slots", why="write_kv: knows 8 tokens, as the public tests have")
class write_public:
    write_kv = edited(reference.write_kv, "slot < 0", "slot < 0 || blockIdx.x >= 8")


@fault("chunked.3", caught_by="test_write_kv_fresh_widths", why="write_kv: one number a thread, 128 in all")
class write_no_loop:
    write_kv = edited(reference.write_kv, "i < width; i += blockDim.x", "i < min(width, 128); i += blockDim.x")


@fault("chunked.3", caught_by="test_write_kv_fresh_widths", why="write_kv: no bounds check on the row")
class write_no_check:
    write_kv = edited(
        reference.write_kv, "i < width; i += blockDim.x", "i < (width + 127) / 128 * 128; i += blockDim.x"
    )


@fault("chunked.3", caught_by="test_write_kv_fresh_widths", why="write_kv: rows of 128 numbers in the pool")
class write_rows_of_128:
    write_kv = edited(reference.write_kv, "to = slot * width", "to = slot * 128")


@fault("chunked.3", caught_by="test_write_kv_fresh_padding", why="write_kv: writes padding", source="K11")
class write_padding:
    write_kv = edited(reference.write_kv, "slot < 0", "false")


@fault("chunked.3", caught_by="test_write_kv_fresh_padding", why="write_kv: only -1 is padding")
class write_minus_one:
    write_kv = edited(reference.write_kv, "slot < 0", "slot == -1")


@fault("chunked.3", caught_by="test_write_kv_fresh_padding", why="write_kv: takes slot 0 for padding")
class write_slot_zero:
    write_kv = edited(reference.write_kv, "slot < 0", "slot <= 0")


@fault("chunked.3", caught_by="test_write_kv_fresh_padding", why="write_kv: writes padding to slot 0")
class write_padding_to_zero:
    write_kv = edited(
        edited(reference.write_kv, "if (slot < 0) return;", ""), "to = slot * width", "to = max(slot, 0ll) * width"
    )


@fault("chunked.3", caught_by="test_write_kv_fresh_halves", why="write_kv: takes every number for a float")
class write_floats:
    write_kv = edited(
        edited(reference.write_kv, "k_pool[to + i] = key", "((float*)k_pool)[to + i] = ((const float*)key)"),
        "v_pool[to + i] = value", "((float*)v_pool)[to + i] = ((const float*)value)",
    )  # fmt: skip


@fault("chunked.3", caught_by="test_write_kv_huge_pools", why="write_kv: 32 bits for the index", source="K14")
class write_int:
    write_kv = edited(reference.write_kv, "to = slot * width", "to = (int)slot * width")


@fault("chunked.3", caught_by="test_write_kv_huge_pools", why="write_kv: the index without a sign, 32 bits too")
class write_unsigned:
    write_kv = edited(reference.write_kv, "to = slot * width", "to = (unsigned)slot * (unsigned)width")


@fault("chunked.3", caught_by="test_write_kv_fresh_sectors", why="write_kv: each thread copies a stretch of its own")
class write_stretches:
    write_kv = edited(
        reference.write_kv, "int i = threadIdx.x; i < width; i += blockDim.x",
        "int each = (width + 127) / 128, i = threadIdx.x * each; i < min((int)(threadIdx.x + 1) * each, width); i++",
    )  # fmt: skip


@fault("chunked.3", caught_by="test_write_kv_fresh_sectors", why="write_kv: every thread copies the whole row")
class write_all:
    write_kv = edited(
        reference.write_kv, "int i = threadIdx.x; i < width; i += blockDim.x", "int i = 0; i < width; i++"
    )
