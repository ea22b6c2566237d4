"""Planted mistakes of chunked.5: wrong masks, tiles and softmaxes."""
# ruff: noqa: F821 - the names are those of the solution

from __future__ import annotations

from autograde.faults import fault

# --- chunked.5: which keys a query sees


@fault("chunked.5", caught_by="test_prompts_of_8", why="no mask: sees the keys behind its own", source="K1")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "start + lane > cached + i ||", "start + lane >= end ||")


@fault("chunked.5", caught_by="test_prompts_of_8", why="mask one too far: sees the next key", source="K1")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "start + lane > cached + i", "start + lane > cached + i + 1")


@fault("chunked.5", caught_by="test_prompts_of_8", why="mask one too short: does not see its own key", source="K1, K9")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "start + lane > cached + i", "start + lane >= cached + i")


@fault("chunked.5", caught_by="test_prompts_of_8", why="mask the wrong way round", source="K1")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "start + lane > cached + i", "start + lane < cached + i")


@fault("chunked.5", caught_by="test_behind_cached_keys", why="causal offset forgotten: top-left mask", source="K1")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "start + lane > cached + i", "start + lane > i")


@fault("chunked.5", caught_by="test_behind_cached_keys", why="looks at the keys of the chunk only", source="K1, K3")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "int start = 0; start < end", "int start = cached; start < end")


@fault("chunked.5", caught_by="test_behind_cached_keys", why="counts the keys from the chunk's beginning", source="K3")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill, "end = cached + min(first + ROWS, count)", "end = min(first + ROWS, count)"
    )


@fault("chunked.5", caught_by="test_behind_cached_keys", why="cached keys rounded down to whole tiles of 8")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill, "start + lane > cached + i", "start + lane > cached / 8 * 8 + i"
    )


@fault("chunked.5", caught_by="test_ends_inside_a_block", why="keys to the end of the last block", source="K2, K11")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "end = cached + min(first + ROWS, count);",
        "end = (cached + min(first + ROWS, count) + block_size - 1) / block_size * block_size;",
    )


@fault("chunked.5", caught_by="test_ends_inside_a_block", why="keys for 8 queries where fewer are left", source="K2")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill, "end = cached + min(first + ROWS, count)", "end = cached + first + ROWS"
    )


@fault("chunked.5", caught_by="test_chunks_agree", why="a chunk of one token does not see itself", source="K13")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "start + lane > cached + i",
        "start + lane > cached + i - (count == 1 && cached > 0)",
    )


# --- chunked.5: queries and blocks of threads


@fault("chunked.5", caught_by="test_many_queries", why="only the first 8 queries", source="cuda 8.3")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "first = blockIdx.y * ROWS", "first = 0")


@fault("chunked.5", caught_by="test_many_queries", why="blocks of threads begin one query apart")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "first = blockIdx.y * ROWS", "first = blockIdx.y")


@fault(
    "chunked.5", caught_by="test_ends_inside_a_block", why="writes for queries that are not there", source="cuda 3.2"
)
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "if (live && d < D)", "if (d < D)")


@fault("chunked.5", caught_by="test_ends_inside_a_block", why="reads queries that are not there", source="cuda 3.2")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "live ? (float)query[((long long)i * heads + head) * D + d] * scale : 0.0f",
        "(float)query[((long long)i * heads + head) * D + d] * scale",
    )


@fault("chunked.5", caught_by="test_ends_inside_a_block", why="warps without a query leave before the barrier")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill, "const bool live = i < count;", "const bool live = i < count;\n  if (!live) return;"
    )


@fault("chunked.5", caught_by="test_prompts_of_8", why="all warps take the first query of the block")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "i = first + row;", "i = first;")


# --- chunked.5: where a key lies


@fault("chunked.5", caught_by="test_prompts_of_8", why="block table ignored", source="cuda 3.2")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "(long long)block_table[position / block_size] * block_size + position % block_size",
        "(long long)position",
    )


@fault("chunked.5", caught_by="test_small_blocks", why="block number by t / (block_size + 1)", source="cuda 3.2")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "position / block_size", "position / (block_size + 1)")


@fault("chunked.5", caught_by="test_small_blocks", why="blocks behind the first taken for its neighbours")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "block_table[position / block_size] * block_size + position % block_size",
        "block_table[0] * block_size + position",
    )


@fault("chunked.5", caught_by="test_small_blocks", why="takes 8 for the block size")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "block_table[position / block_size] * block_size + position % block_size",
        "block_table[position / 8] * 8 + position % 8",
    )


@fault("chunked.5", caught_by="test_pools_beyond_32_bits", why="index of 32 bits", source="K14")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "const long long at = (slot * kv_heads + kv_head) * D;",
        "const int at = (int)(slot * kv_heads + kv_head) * D;",
    )


@fault("chunked.5", caught_by="test_grouped_queries", why="KV head h % kv_heads", source="K10")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "head / (heads / kv_heads)", "head % kv_heads")


@fault("chunked.5", caught_by="test_grouped_queries", why="KV head h / kv_heads", source="K10")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill, "head / (heads / kv_heads)", "kv_heads == heads ? head : head / kv_heads"
    )


@fault("chunked.5", caught_by="test_grouped_queries", why="a KV head for every head", source="K10")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "kv_head = head / (heads / kv_heads)", "kv_head = head")


@fault("chunked.5", caught_by="test_heads_of_every_size", why="numbers behind the last full 32 left out", source="K14")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "EACH = (D + 31) / 32", "EACH = D / 32")


@fault("chunked.5", caught_by="test_heads_of_every_size", why="two numbers a lane, whatever D is", source="K14")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "EACH = (D + 31) / 32", "EACH = 2")


@fault("chunked.5", caught_by="test_heads_of_every_size", why="scores of the first 64 numbers", source="K14")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "for (int d = 0; d < D; d++) score +=",
        "for (int d = 0; d < 64 && d < D; d++) score +=",
    )


# --- chunked.5: the softmax


@fault("chunked.5", caught_by="test_prompts_of_8", why="scale forgotten")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "* D + d] * scale :", "* D + d] :")


@fault("chunked.5", caught_by="test_prompts_of_8", why="not divided by the total", source="K12")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "(T)(sum[e] / total)", "(T)sum[e]")


@fault("chunked.5", caught_by="test_scores_far_from_zero", why="maximum starts at 0", source="K12, cuda 3.2")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "high = -INFINITY, total", "high = 0.0f, total")


@fault("chunked.5", caught_by="test_scores_far_from_zero", why="no maximum", source="K12")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill, "const bool any = higher > -INFINITY;", "higher = 0.0f;\n    const bool any = true;"
    )


@fault("chunked.5", caught_by="test_scores_that_rise_or_fall", why="maximum of the first tile only", source="K12")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "const bool any = higher > -INFINITY;",
        "if (start > 0) higher = high;\n    const bool any = higher > -INFINITY;",
    )


@fault("chunked.5", caught_by="test_many_keys", why="sum not rescaled when the maximum rises", source="K12, cuda 3.2")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "      sum[e] *= rescale;\n", "")


@fault("chunked.5", caught_by="test_many_keys", why="total not rescaled when the maximum rises", source="K12")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "total = total * rescale + more", "total = total + more")


@fault("chunked.5", caught_by="test_scores_that_rise_or_fall", why="maximum of the latest tile only", source="K12")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "float higher = fmaxf(high, score);", "float higher = score;")


@fault("chunked.5", caught_by="test_sums_are_floats", why="sums in the type of the pool", source="K12, cuda 8.13")
class Wrong:
    chunked_prefill = edited(
        edited(
            edited(
                edited(
                    reference.chunked_prefill,
                    "  float sum[EACH], high = -INFINITY, total = 0.0f;",
                    "  T sum[EACH];\n  float high = -INFINITY, total = 0.0f;",
                ),
                "for (int e = 0; e < EACH; e++) sum[e] = 0.0f;",
                "for (int e = 0; e < EACH; e++) sum[e] = (T)0.0f;",
            ),
            "sum[e] *= rescale;",
            "sum[e] = (T)((float)sum[e] * rescale);",
        ),
        "sum[e] += weights[row][t] * values[t][d];",
        "sum[e] = (T)((float)sum[e] + weights[row][t] * values[t][d]);",
    )
    chunked_prefill = edited(chunked_prefill, "(T)(sum[e] / total)", "(T)((float)sum[e] / total)")


# --- chunked.5: tiles


@fault("chunked.5", caught_by="test_many_keys", why="only the first 32 keys")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "start < end; start += COLUMNS", "start < 1; start += COLUMNS")


@fault("chunked.5", caught_by="test_many_keys", why="leaves out a last tile that is not full")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill, "start < end; start", "start < max(end / COLUMNS * COLUMNS, 1); start"
    )


@fault("chunked.5", caught_by="test_prompts_of_8", why="full tiles only")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "start < end; start", "start + COLUMNS <= end; start")


@fault("chunked.5", caught_by="test_many_keys", why="values of the tile before", source="cuda 3.2")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "values[t][d] = there ? (float)v_pool[at + d] : 0.0f;",
        "if (start == 0) values[t][d] = there ? (float)v_pool[at + d] : 0.0f;",
    )


@fault(
    "chunked.5", caught_by="test_prompts_of_8", why="no barrier between loading a tile and using it", source="cuda 3.2"
)
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "    __syncthreads();\n\n    float score", "    float score")


@fault("chunked.5", caught_by="test_many_keys", why="no barrier between using a tile and loading the next one")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill, "    __syncthreads();  // everybody is done with the tile\n", ""
    )


@fault("chunked.5", caught_by="test_prompts_of_8", why="weights read before all lanes have written theirs")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill, "    __syncwarp();  // the weights of this row are complete\n", ""
    )


@fault("chunked.5", caught_by="test_prompts_of_8", why="places behind the last key not cleared", source="cuda 3.2")
class Wrong:
    chunked_prefill = edited(
        edited(
            reference.chunked_prefill,
            "keys[t][d] = there ? (float)k_pool[at + d] : 0.0f;",
            "if (there) keys[t][d] = (float)k_pool[at + d];",
        ),
        "values[t][d] = there ? (float)v_pool[at + d] : 0.0f;",
        "if (there) values[t][d] = (float)v_pool[at + d];",
    )


@fault("chunked.5", caught_by="test_prompts_of_8", why="eight rows of a tile loaded, 32 used")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "t < COLUMNS; t += ROWS", "t < ROWS; t += ROWS")


@fault("chunked.5", caught_by="test_warps_in_any_order", why="other warps do not wait for what the first hands over")
class Wrong:
    chunked_prefill = edited(
        reference.chunked_prefill,
        "  const bool live = i < count;\n",
        "  const bool live = i < count;\n"
        "  __shared__ float handed;\n"
        "  if (row == 0 && lane == 0) handed = 0.0f;\n"
        "  __syncthreads();\n"
        "  if (row == 0 && lane == 0) atomicExch(&handed, scale);\n"
        "  scale = atomicAdd(&handed, 0.0f);\n",
    )


# --- chunked.5: what it asks of memory


@fault("chunked.5", caught_by="test_sectors_are_used", why="neighbours load from different keys", source="cuda 3.3")
class Wrong:
    chunked_prefill = edited(
        edited(
            reference.chunked_prefill,
            "for (int t = row; t < COLUMNS; t += ROWS) {",
            "for (int t = lane; t == lane; t++) {",
        ),
        "      for (int d = lane; d < D; d += 32) {\n        keys",
        "      for (int d = row; d < D; d += ROWS) {\n        keys",
    )


@fault(
    "chunked.5",
    caught_by="test_queries_share_tiles",
    why="every query reads its keys from global memory",
    source="cuda 3.3",
)
class Wrong:
    chunked_prefill = """
    #include <cuda_fp16.h>
    template <typename T, int D>
    __global__ void chunked_prefill(T* out, const T* query, const T* k_pool, const T* v_pool, const int* block_table,
                                    int count, int cached, int heads, int kv_heads, int block_size, float scale) {
      constexpr int EACH = (D + 31) / 32;
      const int head = blockIdx.x, i = blockIdx.y * 8 + threadIdx.y, lane = threadIdx.x;
      const int kv_head = head / (heads / kv_heads);
      if (i >= count) return;
      const long long mine = ((long long)i * heads + head) * D;
      float sum[EACH], high = -INFINITY, total = 0.0f;
      for (int e = 0; e < EACH; e++) sum[e] = 0.0f;
      for (int t = 0; t <= cached + i; t++) {
        const long long slot = (long long)block_table[t / block_size] * block_size + t % block_size;
        const long long at = (slot * kv_heads + kv_head) * D;
        float score = 0.0f;
        for (int d = lane; d < D; d += 32) score += (float)query[mine + d] * scale * (float)k_pool[at + d];
        for (int offset = 16; offset > 0; offset /= 2) score += __shfl_xor_sync(0xffffffffu, score, offset);
        const float higher = fmaxf(high, score), rescale = __expf(high - higher), weight = __expf(score - higher);
        high = higher;
        total = total * rescale + weight;
        for (int e = 0; e < EACH; e++) {
          const int d = e * 32 + lane;
          if (d < D) sum[e] = sum[e] * rescale + weight * (float)v_pool[at + d];
        }
      }
      for (int e = 0; e < EACH; e++) {
        if (e * 32 + lane < D) out[mine + e * 32 + lane] = (T)(sum[e] / total);
      }
    }
    """


@fault("chunked.5", caught_by="test_banks_are_spread", why="rows of the tile not padded", source="cuda 3.3")
class Wrong:
    chunked_prefill = edited(reference.chunked_prefill, "keys[COLUMNS][D + 1]", "keys[COLUMNS][D]")
