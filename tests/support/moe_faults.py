"""Faults of the templates of mixtures of experts, their products and quantising: rows of
template_faults.py."""

from planted_fault import FOLDER, fault

QUANTIZE = f"{FOLDER}/test_quantize.py::"
MOE = f"{FOLDER}/test_moe.py::"
QUANTIZE_FILE = "quantize/quantize.cuh"
GROUPS = f"{FOLDER}/test_gemm_groups.py::"
GROUPS_FILE = "gemm/groups.cuh"
PERMUTE_FILE = "moe_permute/permute.cuh"
ROUTE_FILE = "moe_route/route.cuh"

MOE_FAULTS = [
    fault("quantize-without-the-floor", QUANTIZE_FILE,
          "const float highest = fmaxf(most, kQuantizeFloor);", "const float highest = most;",
          f"{QUANTIZE}test_small_and_large_numbers"),
    fault("quantize-powers-of-two-round-down", QUANTIZE_FILE,
          "(bits + kFraction) & ~kFraction", "bits & ~kFraction",
          f"{QUANTIZE}test_powers_of_two"),
    fault("quantize-columns-of-the-next-group", QUANTIZE_FILE,
          "const int end = min((number.group + 1) * p.group, p.columns);",
          "const int end = p.columns;", f"{QUANTIZE}test_groups -k e4m3"),
    fault("quantize-rows-behind-the-counts", QUANTIZE_FILE,
          "static_cast<int>(inner) < __ldg", "static_cast<int>(inner) <= __ldg",
          f"{QUANTIZE}test_rows_beyond_the_counts_are_left_alone"),
    fault("quantize-gate-and-value-change-places", QUANTIZE_FILE,
          "activate<Config::kGate>(parts[v][i]) * values[v][i]",
          "activate<Config::kGate>(values[v][i]) * parts[v][i]",
          f"{QUANTIZE}test_gates -k swiglu"),
    fault("quantize-the-first-turn-alone-has-a-maximum", QUANTIZE_FILE,
          "most = values[i].most(most);", "", f"{QUANTIZE}test_a_scale_for_each_row -k 17000"),
    fault("route-ties-to-the-higher-number", ROUTE_FILE,
          "index = __reduce_min_sync(~0u, order_of_lane == order ? index_of_lane : ~0u);",
          "index = __reduce_max_sync(~0u, order_of_lane == order ? index_of_lane : 0u);",
          f"{MOE}test_ties_go_to_the_lower_number"),
    fault("route-bias-in-the-weights", ROUTE_FILE,
          "at = i, score = scores[i];", "at = i, score = choices[i];",
          f"{MOE}test_dtypes_of_logits_and_bias -k f32"),
    fault("route-groups-by-their-best-alone", ROUTE_FILE,
          "Config::kBias && size > 1 ? best + second : best", "best",
          f"{MOE}test_groups -k sigmoid"),
    fault("route-nan-is-the-least", ROUTE_FILE,
          "return x == x ? order : 0xffffffffu;", "return x == x ? order : 1u;",
          f"{MOE}test_what_is_not_a_number"),
    fault("permute-rows-of-a-pass-in-any-order-of-warps", PERMUTE_FILE,
          "memory.of_warps[i][threadIdx.x] = static_cast<u16>(sum);",
          "memory.of_warps[i][threadIdx.x] = static_cast<u16>(0);",
          f"{MOE}test_passes_of_several_warps"),
    fault("permute-the-next-pass-begins-again", PERMUTE_FILE,
          "next += sum;", "", f"{MOE}test_passes_of_several_warps"),
    fault("permute-pairs-of-other-ctas-are-not-before", PERMUTE_FILE,
          "before += cta < blockIdx.x ? count : 0;", "",
          f"{MOE}test_many_pairs_are_counted_first -k 2100"),
    fault("permute-experts-of-32-bits", PERMUTE_FILE,
          "const i64 expert = __ldg", "const int expert = __ldg",
          f"{MOE}test_numbers_beyond_32_bits_are_no_experts"),
    fault("unpermute-rows-that-do-not-exist-count", "moe_permute/unpermute.cuh",
          "exists[j] = row >= 0 && row < p.rows;", "exists[j] = row >= 0;",
          f"{MOE}test_rows_that_count_for_nothing"),
    fault("groups-rows-of-the-next-are-overwritten", "gemm/sm90/store.cuh",
          "if (row + Slab::kBoxRows > row_end) return", "if (row > row_end) return",
          f"{GROUPS}test_groups_of_rows -k offsets-sizes"),
    fault("groups-the-last-row-of-a-part-is-left-out", "gemm/sm90/store.cuh",
          "if (row + i >= row_end) return;", "if (row + i + 1 >= row_end) return;",
          f"{GROUPS}test_groups_of_rows -k counts-sizes"),
    fault("groups-portable-rows-of-the-next-are-overwritten", GROUPS_FILE,
          "return kGrouping == Grouping::none ? params.m : at.row_end;", "return params.m;",
          f"{GROUPS}test_groups_of_rows -k counts-odd"),
    fault("groups-the-first-32-alone", GROUPS_FILE,
          "tiles_before_ = __shfl_sync(~0u, through, 31);", "",
          f"{GROUPS}test_groups_of_rows -k offsets-sizes"),
    fault("groups-offsets-are-not-clamped", GROUPS_FILE,
          "return row < least ? least : row > params.m ? params.m : row;", "return row;",
          f"{GROUPS}test_offsets_and_counts_that_lie_outside_are_clamped"),
    fault("groups-results-of-offsets-by-batch", "gemm/sm90/store.cuh",
          "gemm.out_batch == 0 ? 0 : at.batch", "at.batch",
          f"{GROUPS}test_groups_of_rows -k offsets-sizes"),
]  # fmt: skip
