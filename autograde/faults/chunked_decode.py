"""Planted mistakes of chunked.4: wrong attention over blocks, most of it with one place changed."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault

# --- chunked.4, attention as such


@fault("chunked.4", caught_by="test_paged_one_full_block", why="does nothing", source="cuda.md 8.3")
class decode_nothing:
    paged_decode = edited(reference.paged_decode, "out[(sequence * heads + head) * D + d] = (T)(above / below);", "")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="forgets the scale")
class decode_no_scale:
    paged_decode = edited(
        reference.paged_decode, "(float)my_query[e * 32 + lane] * scale", "(float)my_query[e * 32 + lane]"
    )


@fault("chunked.4", caught_by="test_paged_one_full_block", why="scales twice")
class decode_scale_twice:
    paged_decode = edited(reference.paged_decode, "? dot : -INFINITY", "? dot * scale : -INFINITY")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="does not divide by the total")
class decode_not_divided:
    paged_decode = edited(reference.paged_decode, "(T)(above / below)", "(T)above")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="one token too few")
class decode_one_less:
    paged_decode = edited(
        reference.paged_decode, "context = context_lens[sequence]", "context = context_lens[sequence] - 1"
    )


@fault("chunked.4", caught_by="test_paged_one_full_block", why="adds up the lanes of half a warp only")
class decode_half_warp:
    paged_decode = edited(reference.paged_decode, "int offset = 16;", "int offset = 8;")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="does not add up the lanes", source="cuda.md 3.2")
class decode_no_reduction:
    paged_decode = edited(reference.paged_decode, "dot = warp_sum(dot);", "")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="the sum of a warp in lane 0 only")
class decode_lane_zero:
    paged_decode = edited(reference.paged_decode, "__shfl_xor_sync", "__shfl_down_sync")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="the mask of the shuffle names half of the lanes")
class decode_mask:
    paged_decode = edited(reference.paged_decode, "0xffffffffu", "0x0000ffffu")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="no barrier before the merge", source="cuda.md 3.2")
class decode_no_barrier:
    paged_decode = edited(reference.paged_decode, "__syncthreads();", "")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="a barrier for the warp in place of the block")
class decode_warp_barrier:
    paged_decode = edited(reference.paged_decode, "__syncthreads();", "__syncwarp();")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="writes the first warp's part only")
class decode_first_warp:
    paged_decode = edited(
        reference.paged_decode, "for (int w = 0; w < WARPS; w++) above +=", "for (int w = 0; w < 1; w++) above +="
    )


@fault("chunked.4", caught_by="test_paged_one_full_block", why="merges the warps without their maxima")
class decode_no_maxima:
    paged_decode = edited(reference.paged_decode, "factor[w] = __expf(highs[w] - top)", "factor[w] = 1.0f")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="the total of each warp is never written")
class decode_unset:
    paged_decode = edited(reference.paged_decode, "totals[warp] = total;", "")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="the mean of the warps' means")
class decode_mean_of_means:
    paged_decode = edited(
        edited(reference.paged_decode, "above += factor[w] * sums[w][d]", "above += sums[w][d] / totals[w]"),
        "(T)(above / below)", "(T)(above / WARPS)",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_one_full_block", why="reads the values where the keys lie")
class decode_keys_for_values:
    paged_decode = edited(reference.paged_decode, "(float)v_pool[at", "(float)k_pool[at")


@fault("chunked.4", caught_by="test_paged_one_full_block", why="heads and sequences of the grid exchanged")
class decode_grid:
    paged_decode = edited(
        reference.paged_decode, "head = blockIdx.x, sequence = blockIdx.y", "head = blockIdx.y, sequence = blockIdx.x"
    )


@fault("chunked.4", caught_by="test_paged_one_full_block", why="block size and KV heads exchanged in the address")
class decode_exchanged:
    paged_decode = edited(
        reference.paged_decode, "const long long at = (slot * kv_heads + kv_head) * D;",
        "const long long at = ((slot / block_size * kv_heads + kv_head) * block_size + slot % block_size) * D;",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_one_full_block", why="ignores the block table", source="cuda.md 3.2")
class decode_no_table:
    paged_decode = edited(
        reference.paged_decode, "(long long)table[t / block_size] * block_size + t % block_size", "(long long)t"
    )


@fault("chunked.4", caught_by="test_paged_one_full_block", why="changes its input, the query", source="cuda.md 8.2")
class decode_input:
    paged_decode = edited(
        reference.paged_decode, "  __syncthreads();", "  __syncthreads();\n  ((T*)my_query)[threadIdx.x % D] = (T)0.0f;"
    )


@fault("chunked.4", caught_by="test_paged_one_full_block", why="knows the public lengths only", source="cuda.md 8.4")
class decode_public:
    paged_decode = edited(
        reference.paged_decode, "context = context_lens[sequence];",
        "context = heads == 1 || heads == 4 || heads == 8 ? context_lens[sequence] : 1;",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_scattered_blocks", why="one block after the other from the first one on")
class decode_consecutive:
    paged_decode = edited(
        reference.paged_decode, "(long long)table[t / block_size]", "(long long)(table[0] + t / block_size)"
    )


@fault("chunked.4", caught_by="test_paged_scattered_blocks", why="one place too many in a block", source="cuda.md 3.2")
class decode_off_by_one_block:
    paged_decode = edited(reference.paged_decode, "table[t / block_size]", "table[t / (block_size + 1)]")


@fault("chunked.4", caught_by="test_paged_scattered_blocks", why="does not scale down what is summed up", source="K12")
class decode_no_rescale:
    paged_decode = edited(reference.paged_decode, "for (int e = 0; e < EACH; e++) sum[e] *= rescale;", "")


@fault("chunked.4", caught_by="test_paged_scattered_blocks", why="does not scale down the total", source="K12")
class decode_no_total_rescale:
    paged_decode = edited(reference.paged_decode, "total *= rescale;", "")


@fault("chunked.4", caught_by="test_paged_scattered_blocks", why="the first round of tokens only")
class decode_one_round:
    paged_decode = edited(reference.paged_decode, "first < context; first +=", "first < min(context, 16); first +=")


@fault("chunked.4", caught_by="test_paged_last_block", why="reads to the end of the last block", source="cuda.md 3.2")
class decode_whole_blocks:
    paged_decode = edited(
        reference.paged_decode, "context = context_lens[sequence];",
        "context = (context_lens[sequence] + block_size - 1) / block_size * block_size;",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_last_block", why="full blocks only")
class decode_full_blocks:
    paged_decode = edited(
        reference.paged_decode, "context = context_lens[sequence];",
        "context = context_lens[sequence] / block_size * block_size;",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_last_block", why="full rounds of 16 tokens, whatever lies there")
class decode_full_rounds:
    paged_decode = edited(
        edited(reference.paged_decode, "const bool there = t < context;", "const bool there = true;"),
        "first + j < context ? dot", "true ? dot",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_several_sequences", why="the block table of sequence 0 for all")
class decode_first_table:
    paged_decode = edited(reference.paged_decode, "block_tables + sequence * max_blocks", "block_tables")


@fault("chunked.4", caught_by="test_paged_several_sequences", why="the length of sequence 0 for all")
class decode_first_length:
    paged_decode = edited(reference.paged_decode, "context_lens[sequence]", "context_lens[0]")


@fault("chunked.4", caught_by="test_paged_several_sequences", why="rows of the block table as long as the sequence")
class decode_tight_rows:
    paged_decode = edited(
        reference.paged_decode, "sequence * max_blocks", "sequence * ((context + block_size - 1) / block_size)"
    )


@fault("chunked.4", caught_by="test_paged_several_sequences", why="answers sequence 0 only")
class decode_first_sequence:
    paged_decode = edited(reference.paged_decode, "sequence = blockIdx.y,", "sequence = 0,")


@fault("chunked.4", caught_by="test_paged_several_sequences", why="queries as [heads, sequences]")
class decode_query_order:
    paged_decode = edited(
        reference.paged_decode, "query + (sequence * heads + head) * D", "query + (head * gridDim.y + sequence) * D"
    )


# --- chunked.4, each difficulty


@fault("chunked.4", caught_by="test_paged_short_sequences", why="a warp without tokens divides by its total")
class decode_idle_warp:
    paged_decode = edited(
        edited(reference.paged_decode, "[e * 32 + lane] = sum[e];", "[e * 32 + lane] = sum[e] / total;"),
        "above += factor[w] * sums[w][d]", "above += factor[w] * totals[w] * sums[w][d]",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_short_sequences", why="warps without tokens leave before the barrier")
class decode_leaves:
    paged_decode = edited(
        reference.paged_decode,
        "  float q[EACH], sum[EACH]",
        "  if (warp * AT_ONCE >= context) return;\n  float q[EACH], sum[EACH]",
    )


@fault("chunked.4", caught_by="test_paged_short_sequences", why="warps without tokens write nothing for the merge")
class decode_idle_unset:
    paged_decode = edited(reference.paged_decode, "if (lane == 0) {", "if (lane == 0 && total > 0.0f) {")


@fault("chunked.4", caught_by="test_paged_grouped_heads", why="the KV head is h % kv_heads", source="K10")
class decode_modulo:
    paged_decode = edited(reference.paged_decode, "head / (heads / kv_heads)", "head % kv_heads")


@fault("chunked.4", caught_by="test_paged_grouped_heads", why="a KV head for every head", source="K10")
class decode_no_groups:
    paged_decode = edited(reference.paged_decode, "head / (heads / kv_heads)", "head")


@fault("chunked.4", caught_by="test_paged_grouped_heads", why="all heads of a group ask the same query")
class decode_one_query:
    paged_decode = edited(
        reference.paged_decode, "query + (sequence * heads + head) * D",
        "query + (sequence * heads + kv_head * (heads / kv_heads)) * D",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_grouped_heads", why="slots as wide as the query heads")
class decode_wide_slots:
    paged_decode = edited(reference.paged_decode, "(slot * kv_heads + kv_head) * D", "(slot * heads + kv_head) * D")


@fault("chunked.4", caught_by="test_paged_head_sizes", why="rounds a head of 80 down to 64", source="K14")
class decode_no_tail:
    paged_decode = edited(reference.paged_decode, "EACH = (D + 31) / 32", "EACH = D / 32")


@fault("chunked.4", caught_by="test_paged_head_sizes", why="heads of 64 only")
class decode_only_64:
    paged_decode = edited(reference.paged_decode, "(slot * kv_heads + kv_head) * D", "(slot * kv_heads + kv_head) * 64")


@fault("chunked.4", caught_by="test_paged_head_sizes", why="rounds a head of 80 up to 96, into the next one")
class decode_into_next:
    paged_decode = edited(
        reference.paged_decode, "const bool mine = there && e * 32 + lane < D;", "const bool mine = there;"
    )


@fault("chunked.4", caught_by="test_paged_block_sizes", why="blocks of 16 only")
class decode_only_16:
    paged_decode = edited(
        reference.paged_decode, "(long long)table[t / block_size] * block_size + t % block_size",
        "(long long)table[t / 16] * 16 + t % 16",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_block_sizes", why="one look-up in the block table for four tokens")
class decode_one_lookup:
    paged_decode = edited(
        reference.paged_decode, "(long long)table[t / block_size] * block_size + t % block_size",
        "(long long)table[first / block_size] * block_size + first % block_size + j",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_block_sizes", why="block sizes that are powers of two")
class decode_powers:
    paged_decode = edited(reference.paged_decode, "t % block_size : 0", "(t & (block_size - 1)) : 0")


@fault("chunked.4", caught_by="test_paged_huge_pools", why="32 bits for the index", source="K14")
class decode_int:
    paged_decode = edited(
        reference.paged_decode, "const long long at = (slot * kv_heads + kv_head) * D;",
        "const int at = ((int)slot * kv_heads + kv_head) * D;",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_huge_pools", why="32 bits for the product, 64 for the result", source="K14")
class decode_late_cast:
    paged_decode = edited(
        reference.paged_decode, "const long long at = (slot * kv_heads + kv_head) * D;",
        "const int narrow = (int)slot;\n      const long long at = (narrow * kv_heads + kv_head) * D;",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_own_scale", why="divides by the root of the head size, whatever the scale")
class decode_root:
    paged_decode = edited(
        reference.paged_decode,
        "(float)my_query[e * 32 + lane] * scale",
        "(float)my_query[e * 32 + lane] * rsqrtf((float)D)",
    )


@fault("chunked.4", caught_by="test_paged_scores_far_above_zero", why="takes no maximum off", source="K12")
class decode_no_maximum:
    paged_decode = edited(
        edited(reference.paged_decode, "higher = fmaxf(higher, score[j]);", ""), "higher = high;", "higher = 0.0f;"
    )


@fault("chunked.4", caught_by="test_paged_scores_far_below_zero", why="the maximum starts at 0", source="cuda.md 3.2")
class decode_from_zero:
    paged_decode = edited(reference.paged_decode, "high = -INFINITY, total", "high = 0.0f, total")


@fault("chunked.4", caught_by="test_paged_scores_far_below_zero", why="the merge takes 0 for the smallest maximum")
class decode_merge_from_zero:
    paged_decode = edited(reference.paged_decode, "float top = -INFINITY, below", "float top = 0.0f, below")


@fault("chunked.4", caught_by="test_paged_scores_far_below_zero", why="the maximum starts at -20")
class decode_from_minus_20:
    paged_decode = edited(reference.paged_decode, "high = -INFINITY, total", "high = -20.0f, total")


@fault("chunked.4", caught_by="test_paged_scores_rise_and_fall", why="the maximum of the first tokens only")
class decode_first_maximum:
    paged_decode = edited(
        reference.paged_decode, "higher = fmaxf(higher, score[j]);",
        "higher = first < WARPS * AT_ONCE ? fmaxf(higher, score[j]) : high;",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_long_context", why="keeps all scores in shared memory, up to 11,000 of them")
class decode_scores_kept:
    paged_decode = edited(
        edited(reference.paged_decode, "highs[WARPS], totals[WARPS];", "highs[WARPS], totals[WARPS], kept[11000];"),
        "score[j] = first + j < context ? dot : -INFINITY;",
        "score[j] = first + j < context ? dot : -INFINITY;\n"
        "      if (lane == 0 && first + j < context) kept[first + j] = score[j];",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_halves", why="takes every number for a float")
class decode_floats:
    paged_decode = edited(
        edited(reference.paged_decode, "(float)k_pool[at", "((const float*)k_pool)[at"),
        "(float)v_pool[at", "((const float*)v_pool)[at",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_sums_in_float", why="adds up the products in half", source="cuda.md 8.13")
class decode_half_dot:
    paged_decode = edited(
        edited(
            edited(reference.paged_decode, "float dot = 0.0f;", "float dot = 0.0f;\n      T in_half = (T)0.0f;"),
            "dot += q[e] * k[j][e];", "in_half = (T)((float)in_half + q[e] * k[j][e]);",
        ),
        "dot = warp_sum(dot);", "dot = warp_sum((float)in_half);",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_sums_in_float", why="rounds each product to half", source="cuda.md 8.13")
class decode_half_products:
    paged_decode = edited(reference.paged_decode, "dot += q[e] * k[j][e];", "dot += (float)(T)(q[e] * k[j][e]);")


@fault("chunked.4", caught_by="test_paged_sums_in_float", why="adds up the values in half", source="cuda.md 8.13")
class decode_half_sums:
    paged_decode = edited(
        reference.paged_decode, "sum[e] += weight * v[j][e];", "sum[e] = (float)(T)(sum[e] + weight * v[j][e]);"
    )


@fault("chunked.4", caught_by="test_paged_sums_in_float", why="counts the total in half", source="cuda.md 8.13")
class decode_half_total:
    paged_decode = edited(reference.paged_decode, "total += weight;", "total = (float)(T)(total + weight);")


@fault("chunked.4", caught_by="test_paged_sectors", why="a thread a token for the scores: it reads a key by itself")
class decode_thread_a_token:
    begin, rest = reference.paged_decode.source.split("  for (int first = warp", 1)
    end = rest.split("\n\n", 1)[1]
    paged_decode = (
        begin
        + """
      for (int first = warp * 32; first < context; first += WARPS * 32) {
        const int t = first + lane;
        float score = -INFINITY;
        if (t < context) {
          const long long slot = (long long)table[t / block_size] * block_size + t % block_size;
          score = 0.0f;
          for (int d = 0; d < D; d++) {
            score += scale * (float)my_query[d] * (float)k_pool[(slot * kv_heads + kv_head) * D + d];
          }
        }
        float higher = fmaxf(high, score);
        for (int offset = 16; offset > 0; offset /= 2) {
          higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, offset));
        }
        const float rescale = __expf(high - higher), weight = __expf(score - higher);
        high = higher;
        total = total * rescale + warp_sum(weight);
        for (int e = 0; e < EACH; e++) sum[e] *= rescale;
        for (int j = 0; j < 32 && first + j < context; j++) {
          const float w = __shfl_sync(0xffffffffu, weight, j);
          const int k = first + j;
          const long long slot = (long long)table[k / block_size] * block_size + k % block_size;
          for (int e = 0; e < EACH; e++) {
            if (e * 32 + lane < D) sum[e] += w * (float)v_pool[(slot * kv_heads + kv_head) * D + e * 32 + lane];
          }
        }
      }

    """
        + end
    )


@fault("chunked.4", caught_by="test_paged_sectors", why="a lane holds neighbouring numbers of a key, not every 32nd")
class decode_blocked_lanes:
    place = "D % 32 ? e * 32 + lane : lane * EACH + e"
    paged_decode = edited(
        edited(reference.paged_decode, "(float)k_pool[at + e * 32 + lane]", f"(float)k_pool[at + ({place})]"),
        "(float)my_query[e * 32 + lane]", f"(float)my_query[{place}]",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_sectors", why="every warp reads all tokens")
class decode_all_warps:
    paged_decode = edited(
        reference.paged_decode, "first = warp * AT_ONCE; first < context; first += WARPS * AT_ONCE",
        "first = 0; first < context; first += AT_ONCE",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_sectors", why="reads the keys twice: for the maximum, then for the weights")
class decode_two_passes:
    paged_decode = edited(
        reference.paged_decode, "  for (int first = warp",
        "  for (int t = warp; t < context; t += WARPS) {\n"
        "    const long long slot = (long long)table[t / block_size] * block_size + t % block_size;\n"
        "    float dot = 0.0f;\n"
        "    for (int e = 0; e < EACH; e++) {\n"
        "      const int d = e * 32 + lane;\n"
        "      if (d < D) dot += q[e] * (float)k_pool[(slot * kv_heads + kv_head) * D + d];\n"
        "    }\n"
        "    high = fmaxf(high, warp_sum(dot));\n"
        "  }\n"
        "  for (int first = warp",
    )  # fmt: skip


@fault("chunked.4", caught_by="test_paged_merge", why="one warp does the work of four")
class decode_one_warp:
    alone = edited(reference.paged_decode, "WARPS = 4", "WARPS = 1")
    alone = edited(alone, "  float q[EACH], sum[EACH]", "  if (warp > 0) return;\n  float q[EACH], sum[EACH]")
    paged_decode = edited(edited(alone, "__syncthreads();", "__syncwarp();"), "d += blockDim.x", "d += 32")


@fault("chunked.4", caught_by="test_paged_merge", why="the whole block works on one token at a time")
class decode_block_a_token:
    begin, rest = reference.paged_decode.source.split("  float q[EACH], sum[EACH]", 1)
    paged_decode = (
        begin
        + """
      const int d = threadIdx.x;
      float high = -INFINITY, total = 0.0f, sum = 0.0f;
      for (int t = 0; t < context; t++) {
        const long long slot = (long long)table[t / block_size] * block_size + t % block_size;
        const long long at = (slot * kv_heads + kv_head) * D + d;
        const float part = warp_sum(d < D ? scale * (float)my_query[d] * (float)k_pool[at] : 0.0f);
        if (lane == 0) highs[warp] = part;
        __syncthreads();
        const float score = highs[0] + highs[1] + highs[2] + highs[3];
        const float higher = fmaxf(high, score), rescale = __expf(high - higher), weight = __expf(score - higher);
        high = higher;
        total = total * rescale + weight;
        if (d < D) sum = sum * rescale + weight * (float)v_pool[at];
        __syncthreads();
      }
      if (d < D) out[(sequence * heads + head) * D + d] = (T)(sum / total);
    }
    """
    )


@fault("chunked.4", caught_by="test_paged_banks", why="the lanes of a warp meet the same banks")
class decode_banks:
    paged_decode = edited(
        edited(
            edited(reference.paged_decode, "sums[WARPS][D], highs", "sums[D][WARPS], highs"),
            "sums[warp][e * 32 + lane] = sum[e]", "sums[e * 32 + lane][warp] = sum[e]",
        ),
        "factor[w] * sums[w][d]", "factor[w] * sums[d][w]",
    )  # fmt: skip
