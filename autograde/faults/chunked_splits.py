"""Planted mistakes of chunked.6: wrong codes and scales, splits and merges."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault

# --- chunked.6: codes and scales


@fault("chunked.6", caught_by="test_split_with_negative_codes", why="codes of the keys without a sign")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "q[e] * k_pool[at + e * 32 + lane]",
        "q[e] * (unsigned char)k_pool[at + e * 32 + lane]",
    )


@fault("chunked.6", caught_by="test_split_with_negative_codes", why="codes of the values without a sign")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "factor * v_pool[at + e * 32 + lane]",
        "factor * (unsigned char)v_pool[at + e * 32 + lane]",
    )


@fault("chunked.6", caught_by="test_split_with_scales_of_channels", why="a key's scale by token", source="5.5")
class Wrong:
    paged_decode_int8 = edited(
        edited(reference.paged_decode_int8, "* scale * k_scale[kv_head * D + d] :", "* scale :"),
        "score = warp_sum(score);",
        "score = warp_sum(score) * k_scale[kv_head * D + t % D];",
    )


@fault("chunked.6", caught_by="test_split_with_scales_of_channels", why="scales of the first KV head's keys for all")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8, "* scale * k_scale[kv_head * D + d]", "* scale * k_scale[d]"
    )


@fault("chunked.6", caught_by="test_split_with_scales_of_channels", why="one scale for all channels", source="5.5")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8, "* scale * k_scale[kv_head * D + d]", "* scale * k_scale[kv_head * D]"
    )


@fault("chunked.6", caught_by="test_split_of_everything", why="scale of the keys forgotten", source="5.5")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "* scale * k_scale[kv_head * D + d] :", "* scale :")


@fault("chunked.6", caught_by="test_split_of_everything", why="scale of the values forgotten", source="5.5")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "weight * v_scale[slot * kv_heads + kv_head]", "weight")


@fault("chunked.6", caught_by="test_split_of_everything", why="scale of the keys applied after the softmax")
class Wrong:
    paged_decode_int8 = edited(
        edited(reference.paged_decode_int8, "* scale * k_scale[kv_head * D + d] :", "* scale :"),
        "weight * v_scale[slot * kv_heads + kv_head]",
        "weight * v_scale[slot * kv_heads + kv_head] * k_scale[kv_head * D]",
    )


@fault("chunked.6", caught_by="test_split_with_scales_of_tokens", why="scale of the first KV head's value")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8, "weight * v_scale[slot * kv_heads + kv_head]", "weight * v_scale[slot * kv_heads]"
    )


@fault("chunked.6", caught_by="test_split_with_scales_of_tokens", why="a value's scale by position, not by slot")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "weight * v_scale[slot * kv_heads + kv_head]",
        "weight * v_scale[t * kv_heads + kv_head]",
    )


@fault(
    "chunked.6", caught_by="test_split_with_scales_of_tokens", why="scale of the value of the sequence's first token"
)
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "weight * v_scale[slot * kv_heads + kv_head]",
        "weight * v_scale[(long long)table[0] * block_size * kv_heads + kv_head]",
    )


# --- chunked.6: where and how far


@fault("chunked.6", caught_by="test_split_of_many_sequences", why="length of the first sequence for all")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "context_lens[sequence]", "context_lens[0]")


@fault("chunked.6", caught_by="test_split_of_many_sequences", why="block table of the first sequence for all")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "block_tables + sequence * max_blocks", "block_tables")


@fault("chunked.6", caught_by="test_split_of_many_sequences", why="query of the first sequence for all")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8, "query[(sequence * heads + head) * D + d]", "query[head * D + d]"
    )


@fault("chunked.6", caught_by="test_split_ends_inside_a_block", why="tokens to the end of the last block", source="K2")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "context_lens[sequence]);",
        "(context_lens[sequence] + block_size - 1) / block_size * block_size);",
    )


@fault("chunked.6", caught_by="test_split_ends_inside_a_block", why="takes 16 for the block size")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "table[t / block_size] * block_size + t % block_size",
        "table[t / 16] * 16 + t % 16",
    )


@fault("chunked.6", caught_by="test_split_of_heads_of_every_size", why="numbers behind the last full 32 left out")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "EACH = (D + 31) / 32", "EACH = D / 32")


@fault("chunked.6", caught_by="test_split_of_grouped_heads", why="KV head h % kv_heads", source="K10")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "head / (heads / kv_heads)", "head % kv_heads")


@fault("chunked.6", caught_by="test_split_of_pools_beyond_32_bits", why="index of 32 bits", source="K14")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "const long long at = (slot * kv_heads + kv_head) * D;",
        "const int at = (int)(slot * kv_heads + kv_head) * D;",
    )


# --- chunked.6: the softmax of a split


@fault("chunked.6", caught_by="test_split_of_everything", why="partial not divided by the total", source="K12")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "below > 0.0f ? above / below", "below > 0.0f ? above")


@fault("chunked.6", caught_by="test_split_of_everything", why="logarithm without the maximum", source="K12")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "top + logf(below)", "logf(below)")


@fault("chunked.6", caught_by="test_split_of_everything", why="logarithm to base 2")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "top + logf(below)", "top * 1.442695f + log2f(below)")


@fault(
    "chunked.6", caught_by="test_split_of_everything", why="the maximum of the first warp for all four", source="K12"
)
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "for (int w = 0; w < WARPS; w++) top = fmaxf(top, highs[w]);",
        "top = highs[0];\n  for (int w = 0; w < WARPS; w++) highs[w] = top;\n  __syncthreads();",
    )


@fault("chunked.6", caught_by="test_split_of_everything", why="no barrier before the warps' sums are put together")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "  __syncthreads();\n", "")


@fault("chunked.6", caught_by="test_split_far_from_zero", why="maximum starts at 0", source="K12, cuda 3.2")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "high = -INFINITY, total", "high = 0.0f, total")


@fault("chunked.6", caught_by="test_split_with_half_queries", why="scaled query kept in half precision", source="K12")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "(float)query[(sequence * heads + head) * D + d] * scale * k_scale[kv_head * D + d]",
        "(float)(T)((float)query[(sequence * heads + head) * D + d] * scale * k_scale[kv_head * D + d])",
    )


@fault("chunked.6", caught_by="test_split_in_any_order", why="other warps do not wait for what the first hands over")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "  float q[EACH],",
        "  __shared__ float handed;\n"
        "  if (threadIdx.x == 0) handed = 0.0f;\n"
        "  __syncthreads();\n"
        "  if (threadIdx.x == 0) atomicExch(&handed, scale);\n"
        "  scale = atomicAdd(&handed, 0.0f);\n"
        "  float q[EACH],",
    )


# --- chunked.6: splits


@fault("chunked.6", caught_by="test_splits_of_any_length", why="splits overlap by a token")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8, "min(begin + split_tokens,", "min(begin + split_tokens + 1,"
    )


@fault("chunked.6", caught_by="test_splits_of_any_length", why="the last token of every split is left out")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8, "min(begin + split_tokens,", "min(begin + split_tokens - 1,"
    )


@fault("chunked.6", caught_by="test_splits_of_any_length", why="splits of equal length, whatever split_tokens is")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "const int begin = blockIdx.z * split_tokens, end = min(begin + split_tokens, context_lens[sequence]);",
        "const int share = (context_lens[sequence] + gridDim.z - 1) / gridDim.z;\n"
        "  const int begin = blockIdx.z * share, end = min(begin + share, context_lens[sequence]);",
    )


@fault("chunked.6", caught_by="test_splits_of_any_length", why="all splits write to the place of the first")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "* gridDim.z + blockIdx.z;", "* gridDim.z;")


@fault("chunked.6", caught_by="test_splits_without_tokens", why="0 / 0 for a split without tokens", source="K9")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "below > 0.0f ? above / below : 0.0f", "above / below")


@fault("chunked.6", caught_by="test_splits_without_tokens", why="a split without tokens writes nothing", source="K9")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "  const int* table",
        "  if (begin >= end) return;\n  const int* table",
    )


@fault("chunked.6", caught_by="test_splits_without_tokens", why="logarithm 0 for a split without tokens", source="K9")
class Wrong:
    paged_decode_int8 = edited(reference.paged_decode_int8, "top + logf(below) : -INFINITY", "top + logf(below) : 0.0f")


# --- chunked.6: what it asks of memory


@fault(
    "chunked.6", caught_by="test_split_reads_bytes", why="scales of the keys read for every token", source="cuda 3.3"
)
class Wrong:
    paged_decode_int8 = edited(
        edited(reference.paged_decode_int8, "* scale * k_scale[kv_head * D + d] :", "* scale :"),
        "q[e] * k_pool[at + e * 32 + lane]",
        "q[e] * k_scale[kv_head * D + e * 32 + lane] * k_pool[at + e * 32 + lane]",
    )


@fault("chunked.6", caught_by="test_split_reads_bytes", why="every lane reads the whole key")
class Wrong:
    paged_decode_int8 = edited(
        reference.paged_decode_int8,
        "    score = warp_sum(score);\n",
        "    for (int d = 0; d < D; d++) score += 0.0f * k_pool[at + (d + lane * 32) % D];\n"
        "    score = warp_sum(score);\n",
    )


@fault("chunked.6", caught_by="test_splits_read_their_own", why="every split reads all tokens and masks the others")
class Wrong:
    paged_decode_int8 = edited(
        edited(
            reference.paged_decode_int8,
            "for (int t = begin + warp; t < end; t += WARPS) {",
            "for (int t = warp; t < context_lens[sequence]; t += WARPS) {",
        ),
        "    const float higher = fmaxf(high, score)",
        "    if (t < begin || t >= end) continue;\n    const float higher = fmaxf(high, score)",
    )


# --- chunked.6: merged


@fault("chunked.6", caught_by="test_merge_two", why="all splits weigh the same", source="K12")
class Wrong:
    merge_splits = edited(
        edited(reference.merge_splits, "below += __expf(lse[which * splits + z] - top);", "below += 1.0f;"),
        "above += __expf(lse[which * splits + z] - top) * partial",
        "above += partial",
    )


@fault("chunked.6", caught_by="test_merge_two", why="weights not divided by their sum")
class Wrong:
    merge_splits = edited(reference.merge_splits, "(T)(above / below)", "(T)above")


@fault("chunked.6", caught_by="test_merge_two", why="last split forgotten")
class Wrong:
    merge_splits = edited(
        reference.merge_splits,
        "    float above = 0.0f;\n    for (int z = 0; z < splits; z++) {",
        "    float above = 0.0f;\n    for (int z = 0; z < splits - 1; z++) {",
    )


@fault("chunked.6", caught_by="test_merge_two", why="logarithms taken for the sums")
class Wrong:
    merge_splits = edited(
        edited(
            reference.merge_splits,
            "below += __expf(lse[which * splits + z] - top);",
            "below += lse[which * splits + z];",
        ),
        "above += __expf(lse[which * splits + z] - top) * partial",
        "above += lse[which * splits + z] * partial",
    )


@fault("chunked.6", caught_by="test_merge_in_any_order", why="merged so far not rescaled when the maximum rises")
class Wrong:
    merge_splits = edited(
        edited(
            reference.merge_splits,
            "for (int z = 0; z < splits; z++) top = fmaxf(top, lse[which * splits + z]);\n",
            "",
        ),
        "  for (int z = 0; z < splits; z++) below += __expf(lse[which * splits + z] - top);\n",
        "  top = lse[which * splits];\n"
        "  for (int z = 0; z < splits; z++) {\n"
        "    top = fmaxf(top, lse[which * splits + z]);\n"
        "    below += __expf(lse[which * splits + z] - top);\n"
        "  }\n",
    )


@fault("chunked.6", caught_by="test_merge_of_any_count", why="two splits, however many there are")
class Wrong:
    merge_splits = edited(
        reference.merge_splits,
        "    float above = 0.0f;\n    for (int z = 0; z < splits; z++) {",
        "    float above = 0.0f;\n    for (int z = 0; z < 2; z++) {",
    )


@fault("chunked.6", caught_by="test_merge_far_from_zero", why="merged without the maximum", source="K12")
class Wrong:
    merge_splits = edited(
        reference.merge_splits,
        "  for (int z = 0; z < splits; z++) top = fmaxf(top, lse[which * splits + z]);\n",
        "  top = 0.0f;\n",
    )


@fault("chunked.6", caught_by="test_merge_far_from_zero", why="largest logarithm starts at 0", source="K12")
class Wrong:
    merge_splits = edited(reference.merge_splits, "float top = -INFINITY", "float top = 0.0f")


@fault("chunked.6", caught_by="test_merge_with_empty_splits", why="takes the last split's logarithm for the largest")
class Wrong:
    merge_splits = edited(
        reference.merge_splits,
        "for (int z = 0; z < splits; z++) top = fmaxf(top, lse[which * splits + z]);",
        "top = lse[which * splits + splits - 1];",
    )


@fault("chunked.6", caught_by="test_merge_of_all_heads", why="logarithms of another head")
class Wrong:
    merge_splits = edited(
        reference.merge_splits,
        "above += __expf(lse[which * splits + z] - top)",
        "above += __expf(lse[blockIdx.y * gridDim.x * splits + z] - top)",
    )


@fault("chunked.6", caught_by="test_merge_of_all_heads", why="the first sequence only")
class Wrong:
    merge_splits = edited(reference.merge_splits, "blockIdx.y * gridDim.x + blockIdx.x", "blockIdx.x")


@fault("chunked.6", caught_by="test_merge_of_heads_of_every_size", why="64 numbers of a head", source="K14")
class Wrong:
    merge_splits = edited(reference.merge_splits, "d < D; d += blockDim.x", "d < D && d < 64; d += blockDim.x")
