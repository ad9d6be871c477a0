"""Faults that a template could have, each with the nearest test, which must fail with it planted.

`scripts/plant_faults.py` (make mutants-templates) plants them one at a time. Mutation of PTX
(tests/emulator/mutate.cpp) knows synchronisation alone; these are wrong bounds, indices and sums.

Of each: `name`; `file`, in templates/; `old`, a text that it has exactly once, and `new`, what
stands there instead; `caught_by`, a test as pytest's command line names it, or "ctest NAME".
"""

from logit_faults import LOGIT_FAULTS
from moe_faults import MOE_FAULTS
from planted_fault import FOLDER, fault
from serving_faults import SERVING_FAULTS

# Where the tests are whose names the list has.
ATTENTION = f"{FOLDER}/test_attention.py::"
GEMM = f"{FOLDER}/test_gemm.py::"
PEAKS = f"{FOLDER}/test_attention_peaked.py::test_peaks -k f16-d64-causal"
WINDOWS = f"{ATTENTION}test_windows -k window0"
LSE = f"{FOLDER}/test_attention_layouts.py::test_an_lse_with_a_batch_stride"
EVERY_LSE = f"{FOLDER}/test_lse.py::"
SINKS = f"{ATTENTION}test_options -k sinks-f32"
STRIDES = f"{FOLDER}/test_attention_layouts.py::test_layouts_and_strides -k bhsd-plain"
SPLIT_KEYS = f"{FOLDER}/test_attention_split.py::test_shapes -k f16-d64x64-full"
REPEATS = f"{FOLDER}/test_attention_varlen.py::test_repeats_are_bit_identical -k "
DIRTY = f"{FOLDER}/test_attention_varlen.py::test_what_lies_in_the_workspace_does_not_matter -k "
SIZES = f"{GEMM}test_layouts_and_sizes -k bf16-nt"
EPILOGUES = f"{GEMM}test_epilogues -k bf16-relu"
EPILOGUE_VALUES = f"{FOLDER}/test_gemm_epilogues.py::"
TILE = f"{GEMM}test_every_tile_of_the_table_by_config -k bf16-"
SPLIT_K = f"{FOLDER}/test_gemm_split.py::test_splits -k bf16-nn-odd"
RELEASE = "tests/compile/test_fences.py::test_the_residuals_stages_are_released_behind_a_fence"
AFTER_ANOTHER = f"{FOLDER}/test_gemm_pdl.py::test_everything_may_come_from_the_launch_before -k "
TILE_F8 = f"{FOLDER}/test_gemm_f8.py::test_8_bit_floats -k "
BLOCKS = f"{FOLDER}/test_gemm_blocks.py::test_scales_of_blocks -k "
BYTES = f"{FOLDER}/test_gemm_byte_scales.py"
GATED = f"{FOLDER}/test_gemm_gated.py::test_gated -k bf16-swiglu-full"
SM90 = f"{FOLDER}/test_attention_sm90.py::"
SM90_BATCH = f"{SM90}test_edges -k batch"
SM90_TURNS = f"{SM90}test_edges -k several-tiles-a-block"
SM90_NO_KEY = f"{SM90}test_edges -k rows-of-no-key"
SM90_HOLES = f"{SM90}test_tiles_that_some_warpgroups_skip -k 64"
SM90_UNSEEN = f"{SM90}test_values_that_no_query_sees_may_be_nan"
SM90_SPLIT = f"{SM90}test_splits -k split-d64"
SM90_FAR = f"{SM90}test_tiles_that_are_far_apart"
NORM = f"{FOLDER}/test_norm.py::"
NORM_ROWS = f"{NORM}test_more_rows_than_fit_the_device"
NORM_WIDE = f"{NORM}test_few_wide_rows -k layer_norm-bf16"
NORM_CLUSTER = f"{NORM}test_wide_rows_that_clusters_share -k 40008"

OPTIONS = "attention/builtin_variants.cuh"
SM90_FOLDER = "attention/sm90/"
EPILOGUE = "gemm/epilogue.cuh"
SCALES = "gemm/sm90/block_scales.cuh"

FAULTS = [
    *SERVING_FAULTS,
    *MOE_FAULTS,
    *LOGIT_FAULTS,
    # Attention: masks.
    fault("causal-row-misses-its-own-key", OPTIONS,
          "return {0, row.q + 1};", "return {0, row.q};", PEAKS),
    fault("causal-row-sees-one-key-more", OPTIONS,
          "return {0, row.q + 1};", "return {0, row.q + 2};", PEAKS),
    fault("window-starts-one-key-late", OPTIONS,
          "return {row.q - left,", "return {row.q - left + 1,", WINDOWS),
    fault("window-ends-one-key-early", OPTIONS,
          "row.q + right + 1};", "row.q + right};", WINDOWS),
    fault("masked-scores-are-zero", "attention/mask.cuh",
          "scores.at(r, c + i) = -KILN_INFINITY;", "scores.at(r, c + i) = 0.0f;",
          PEAKS),
    fault("last-tile-of-keys-counts-as-whole", "attention/tiles.cuh",
          "first + kBlockKv > range_.end;", "first > range_.end;", LSE),
    # Attention: softmax and what comes of it.
    fault("output-is-not-rescaled", "attention/softmax.cuh",
          "out.at(r, c) *= shrink;", "out.at(r, c) *= 1.0f;", PEAKS),
    fault("sink-of-the-kv-head", OPTIONS,
          "sinks.value + row.h * head_stride.value", "sinks.value + row.h_kv * head_stride.value",
          SINKS),
    fault("lse-without-the-maximum", "attention/store.cuh",
          "(sum.max + log2_approx(sum.sum)) * kLn2", "log2_approx(sum.sum) * kLn2",
          LSE),
    fault("lse-in-base-2", "attention/store.cuh",
          "(sum.max + log2_approx(sum.sum)) * kLn2", "sum.max + log2_approx(sum.sum)",
          f"{EVERY_LSE}test_the_natural_logarithm_of_the_sum -k paged-varlen"),
    fault("lse-counts-the-sink", "attention/combine.cuh",
          "*addressing.lse(row) = lse_of(all.sum);",
          "{ RowSum sum = all.sum; if constexpr (Variant::kFinishesRows) variant.row_finish(sum, "
          "at); *addressing.lse(row) = lse_of(sum); }", f"{EVERY_LSE}test_sinks -k paged-varlen"),
    fault("lse-of-a-dense-batch", "attention/addressing.cuh",
          "p_.lse + b_ * p_.lse_batch", "p_.lse + b_ * p_.heads * p_.lse_head",
          LSE),
    # Attention: which rows and columns.
    fault("heads-of-a-group-lie-apart", "attention/addressing.cuh",
          "h_ = h_kv_ * group_ + column % sharing;",
          "h_ = h_kv_ + column % sharing * p_.heads_kv;", SINKS),
    fault("head-dim-is-read-to-the-padding", "attention/load.cuh",
          "(left > 0 ? kCount : 0)", "kCount",
          STRIDES),
    fault("output-has-the-strides-of-q", "attention/addressing.cuh",
          "at.row * p_.out_row;", "at.row * p_.q_row;", STRIDES),
    # Attention: keys that CTAs share.
    fault("split-counts-without-its-weight", "attention/combine.cuh",
          "sum.sum += weight * part.sum;", "sum.sum += part.sum;", SPLIT_KEYS),
    fault("splits-leave-the-last-keys", "attention/tiles.cuh",
          "ceil_div(ceil_div(range_.end - first, kStep), splits)",
          "(ceil_div(range_.end - first, kStep) / splits)", SPLIT_KEYS),
    # The portable GEMM.
    fault("k-goes-on-for-a-chunk", "gemm/load.cuh",
          "columns_left_ = k_end - k_begin - column;",
          "columns_left_ = k_end - k_begin - column + Tile::kChunkElements;",
          SIZES),
    fault("one-row-too-many-is-read", "gemm/load.cuh",
          "rows_left_ = extent - first - row_;", "rows_left_ = extent - first - row_ + 1;",
          SIZES),
    fault("columns-behind-the-last-are-written", EPILOGUE,
          "row_end_ && columns_left(step) > 0;", "row_end_ && columns_left(step) > -kVector;",
          f"{TILE}128x128x64x3"),
    fault("stage-is-read-a-copy-early", "gemm/main_loop.cuh",
          "wait_copies<kAsync, kStages - 2>();", "wait_copies<kAsync, kStages - 1>();",
          f"{TILE}128x128x64x3"),
    fault("bias-of-the-next-column", EPILOGUE,
          "+ batch * params.bias_batch, column_at(step),",
          "+ batch * params.bias_batch, column_at(step) + 1,", EPILOGUES),
    fault("residual-of-a-lanes-next-rows", EPILOGUE,
          "        }\n      }\n      source += kLaneRows * params_.residual_ld;",
          "        }\n      }\n      source += params_.residual_ld;", EPILOGUES),
    fault("residual-goes-into-the-activation", EPILOGUE,
          "activate<kActivation>(acc + bias) + residual;",
          "activate<kActivation>(acc + bias + residual);", EPILOGUES),
    fault("last-part-of-a-sum-is-lost", "gemm/split.cuh",
          "other < share.parts; ++other", "other < share.parts - 1; ++other",
          SPLIT_K),
    fault("every-cta-is-the-last", "base/ticket.cuh",
          "all = all && raised[i] == nonce;", "all = all && raised[index] == nonce;",
          SPLIT_K),
    # Attention: the counter and the parts of a tile in the workspace.
    fault("what-an-old-launch-left-counts-as-open", "base/ticket.cuh",
          "if (seen - opened_ >= static_cast<u64>(count_))", "if (seen == 0)", f"{DIRTY}127-cut"),
    fault("the-last-but-one-finishes-the-tile", "base/ticket.cuh",
          "static_cast<u64>(count_ - 1);", "static_cast<u64>(count_ - 2);", f"{REPEATS}cut"),
    fault("parts-behind-the-sixteenth-are-lost", "attention/combine.cuh",
          "first < count; first += kMost", "first < min(count, kMost); first += kMost",
          f"{REPEATS}many"),
    fault("parts-behind-the-eighth-are-lost", "attention/combine.cuh",
          "if (are_more) for_each(kHalf, add);", "", f"{REPEATS}many"),
    fault("the-last-row-of-a-team-stays-in-registers", "attention/combine.cuh",
          "OutMap::row(r) >= addressing.rows()", "OutMap::row(r) >= addressing.rows() - 1",
          f"{REPEATS}cut"),
    # The GEMM of sm_90a.
    fault("parity-stays", "sm90/ring.cuh",
          "if (++stage == kStages) stage = 0, parity ^= 1;", "if (++stage == kStages) stage = 0;",
          f"{TILE_F8}128x128x128x5x1"),
    fault("promoted-stage-is-free-after-its-first-part", "gemm/sm90/promote.cuh",
          "if (part == Step::kParts - 1) release_stage", "if (part == 0) release_stage",
          f"{TILE_F8}128x256x128x4x1"),
    fault("fewer-bytes-are-expected", "gemm/sm90/load.cuh",
          "arrive_expecting(ring.full(stage), Shape::kStageBytes);",
          "arrive_expecting(ring.full(stage), Shape::kStageBytes - 16);",
          f"{TILE_F8}128x128x128x5x1"),
    fault("columns-reach-half-of-the-cluster", "gemm/sm90/tile.cuh",
          "(1 << kCtas) - 1);", "(1 << kCtas / 2) - 1);",
          f"{TILE}64x128x64x8x4"),
    fault("transposed-slab-swaps-its-halves", "gemm/sm90/slab.cuh",
          "const int row = lane / 16 * 8 + lane % 8, chunk = warp(thread) * 2 + lane / 8 % 2;",
          "const int row = lane / 8 % 2 * 8 + lane % 8, chunk = warp(thread) * 2 + lane / 16;",
          f"{TILE}16x64x64x16x1"),
    fault("second-row-of-a-pair-has-the-firsts-scale", "gemm/sm90/scales.cuh",
          "row_scale<Config>(params_, row + Config::kSwapped, batch);",
          "row_scale<Config>(params_, row, batch);", f"{TILE_F8}16x64x128x16x1"),
    fault("partner-has-the-bias-of-its-gate", "gemm/sm90/store.cuh",
          "up_bias = bias_of(at, Shape::kBiasCount / 2);", "up_bias = bias_of(at, 0);",
          GATED),
    # Epilogues with values, and outputs of 8 bits.
    fault("table-of-an-epilogue-has-no-first-element", "base/table.cuh",
          "max(min(index, extents[dimension].value - 1), 0)",
          "min(index, extents[dimension].value - 1)",
          f"{EPILOGUE_VALUES}test_an_index_outside_stands_for_the_nearest_one"),
    fault("second-of-a-pair-is-applied-to-the-firsts-place", "gemm/sm90/store.cuh",
          "residual.second, next_row, next_column, at.batch)",
          "residual.second, row, column, at.batch)",
          f"{EPILOGUE_VALUES}test_tensors_of_every_form -k column-50"),
    fault("transposed-bytes-go-to-one-row", "gemm/sm90/slab.cuh",
          "Slab::Rows::offset(at.row + 1, chunk)", "Slab::Rows::offset(at.row, chunk)",
          f"{EPILOGUE_VALUES}test_8_bit_outputs -k int8-50"),
    fault("whole-numbers-are-cut-off", "base/quantize.cuh",
          "min(max(__float2int_rn(low), -128), 127)", "min(max(static_cast<int>(low), -128), 127)",
          f"{EPILOGUE_VALUES}test_8_bit_outputs -k int8-37"),
    fault("slab-is-filled-while-it-is-read", "gemm/sm90/store.cuh",
          "if (leads()) wait_stores_read<1>();", "", f"{TILE}128x256x64x4x1"),
    fault("residual-is-released-without-a-fence", "gemm/sm90/residual.cuh",
          "    fence_async_proxy();\n", "", RELEASE),
    # Programmatic launches.
    fault("operands-are-read-while-an-earlier-launch-runs", "gemm/sm90/load.cuh",
          "  wait_for_launches();\n", "", f"{AFTER_ANOTHER}persistent"),
    fault("epilogue-reads-while-an-earlier-launch-runs", "gemm/sm90/gemm.cuh",
          "    wait_for_launches();  // biases,", "    // Biases,", f"{AFTER_ANOTHER}swapped"),
    fault("weights-are-read-early-without-a-promise", "gemm/sm90/load.cuh",
          "if (gemm.weights_ahead != 0 && ", "if (", f"{AFTER_ANOTHER}shared-k"),
    fault("portable-gemm-does-not-wait-for-earlier-launches", "gemm/gemm.cuh",
          "if constexpr (!kGrouped<Config>) wait_for_launches<Config::kOverlaps>();\n", "",
          f"{AFTER_ANOTHER}portable"),
    fault("weights-that-are-there-are-loaded-again", "gemm/sm90/load.cuh",
          "if (ahead > 0) {", "if (ahead > 1) {",
          f"{FOLDER}/test_gemm_pdl.py::test_the_same_bits -k swapped"),
    fault("last-group-of-rows-counts-as-whole", "gemm/raster.cuh",
          "raster.rows - first >= kGroup;", "raster.rows - first >= 0;",
          f"{TILE}128x256x64x4x1"),
    # Its scales of blocks.
    fault("lower-rows-have-the-upper-ones-scales", SCALES,
          "first_row_ + i / 2 * 64 + i % 2 * 8", "first_row_ + i / 2 * 64",
          f"{BLOCKS}blocks-128x128x128x5"),
    fault("a-part-of-k-begins-with-the-first-scales", SCALES,
          "find(schedule.tile(), k_tiles.begin);", "find(schedule.tile(), 0);",
          f"{BLOCKS}blocks-128x128x128x6x1x3"),
    fault("a-block-begins-with-its-tile", SCALES,
          "own_column / Shape::kColumnRun", "own_column / kGemmScaleBlock",
          f"{BLOCKS}blocks-128x192x128x4"),
    fault("scales-beyond-the-matrix-are-read", SCALES,
          "exists_ >> i & 1 ? 4 : 0", "4", f"{BLOCKS}blocks-layouts"),
    fault("second-column-of-a-pair-has-the-firsts-scale", SCALES,
          "own_column / 4 + index % 2", "own_column / 4", f"{BLOCKS}groups-16x64x128x16"),
    fault("scales-are-waited-for-by-nobody", SCALES,
          "arrive_after_copies(ring.full(position.stage));", "arrive(ring.full(position.stage));",
          f"{BLOCKS}blocks-layouts"),
    fault("four-stages-have-the-bytes-of-the-first", SCALES,
          "      ahead_[i] >>= 8;\n", "", f"{BYTES}::test_the_bits_are_those_of_floats"),
    fault("bytes-are-loaded-ahead-by-the-stages-of-all-of-k", SCALES,
          "(k_tile - k_tiles.begin) % kAhead", "k_tile % kAhead",
          f"{BYTES}::test_the_bits_are_those_of_floats"),
    fault("the-largest-byte-is-infinite", "base/byte_scales.cuh",
          "kNan = 0x7fffffff", "kNan = 0x7f800000", f"{BYTES}::test_every_byte_is_its_number"),
    fault("the-least-byte-is-zero", "base/byte_scales.cuh",
          "kLeast = 0x00400000", "kLeast = 0", f"{BYTES}::test_every_byte_is_its_number"),
    # Attention of sm_90a.
    fault("sm90-zeros-without-a-fence", f"{SM90_FOLDER}load.cuh",
          "  fence_async_proxy();\n  __syncwarp();\n  if (lane == 0) arrive(full);",
          "  __syncwarp();\n  if (lane == 0) arrive(full);", SM90_UNSEEN),
    fault("sm90-parity-of-landed-values-stays", f"{SM90_FOLDER}load.cuh",
          "  landed_parity ^= 1;\n", "", SM90_UNSEEN),
    fault("sm90-partial-tiles-of-the-first-group", f"{SM90_FOLDER}walk.cuh",
          "word(4 + 2 * group_)",
          "word(4)", SM90_NO_KEY),
    fault("sm90-split-sees-the-keys-of-the-next", f"{SM90_FOLDER}walk.cuh",
          "max(first, walk_.range().begin) < walk_.range().end",
          "true", SM90_SPLIT),
    fault("sm90-split-of-no-key-takes-the-last-tile", f"{SM90_FOLDER}walk.cuh",
          "max(first, walk_.range().begin) < walk_.range().end",
          "first < walk_.range().end", f"{SM90}test_splits -k window-past-the-end"),
    fault("sm90-queries-are-released-before-the-last-tile", f"{SM90_FOLDER}walk.cuh",
          "(flags_ & WalkStep::kLast) == 0 || (visit_ & rows_.visit) != 0;",
          "(flags_ & WalkStep::kLast) == 0;", SM90_FAR),
    fault("sm90-queries-are-released-before-the-next-step", f"{SM90_FOLDER}walk.cuh",
          "(flags_ & WalkStep::kLast) == 0 || (visit_ & rows_.visit) != 0;",
          "(visit_ & rows_.visit) != 0;", SM90_FAR),
    fault("sm90-heads-behind-pairs-begin-early", f"{SM90_FOLDER}schedule.cuh",
          "if (place_ < in_last_round_) next_round();", "", SM90_NO_KEY),
    fault("sm90-second-of-a-pair-is-left-out", f"{SM90_FOLDER}schedule.cuh",
          "if (second_of_pair_) pair_ += gridDim.x;",
          "pair_ += gridDim.x;", SM90_NO_KEY),
    fault("sm90-queries-of-unseen-tiles-stay", f"{SM90_FOLDER}main_loop.cuh",
          "    if (needs_q) release_q();\n", "", SM90_FAR),
    fault("sm90-unseen-values-are-not-passed-over", f"{SM90_FOLDER}main_loop.cuh",
          "    release(v_ring.empty(at_.stage));\n    at_.advance();\n",
          "    at_.advance();\n", SM90_HOLES),
    fault("sm90-unseen-values-are-not-waited-for", f"{SM90_FOLDER}main_loop.cuh",
          "    wait(v_ring.full(at_.stage), at_.parity);\n    release(v_ring",
          "    release(v_ring", SM90_FAR),
    fault("sm90-first-tile-gives-a-turn", f"{SM90_FOLDER}main_loop.cuh",
          "if (!is_first_) turns_.give();",
          "turns_.give();", SM90_SPLIT),
    fault("sm90-mask-of-the-first-groups-rows", f"{SM90_FOLDER}main_loop.cuh",
          "    return turns_.group * 64 + threadIdx.x % 128 / 32 * 16;",
          "    return threadIdx.x % 128 / 32 * 16;", SM90_SPLIT),
    fault("sm90-values-are-released-under-their-product", f"{SM90_FOLDER}main_loop.cuh",
          "OutputProducts::template finish<0>(registers_of(out));\n        release",
          "OutputProducts::template finish<1>(registers_of(out));\n        release", SM90_SPLIT),
    fault("sm90-next-tile-has-the-same-stage", f"{SM90_FOLDER}main_loop.cuh",
          "      ahead.advance();\n",
          "", SM90_SPLIT),
    fault("sm90-scale-of-zero-stays", "attention/cache.cuh",
          "fmaxf(size * kLog2e, 1e-30f)", "size * kLog2e", f"{SM90}test_options -k scale-zero"),
    fault("sm90-rows-go-to-the-next-tile", f"{SM90_FOLDER}flash_attention.cuh",
          "store_staged<Config>(args.out, Tile(params, place),",
          "store_staged<Config>(args.out, Tile(params, walk.place()),", SM90_TURNS),
    fault("sm90-rows-start-in-every-split", f"{SM90_FOLDER}flash_attention.cuh",
          "if (!Config::kSplits || tile.split == 0) {",
          "if (true) {", f"{SM90}test_one_split_alone_starts_rows"),
    fault("sm90-queries-of-no-key-stay", f"{SM90_FOLDER}flash_attention.cuh",
          "      release_q();\n      finish(tile);",
          "      finish(tile);", f"{SM90_NO_KEY}-wide"),
    fault("sm90-staged-rows-swap-their-halves", f"{SM90_FOLDER}store.cuh",
          "c % 8 + lane / 16)",
          "c % 8 + (lane / 16 ^ 1))", SM90_BATCH),
    fault("sm90-staged-rows-without-a-fence", f"{SM90_FOLDER}store.cuh",
          "  fence_async_proxy();\n",
          "", SM90_BATCH),
    fault("sm90-rows-are-staged-while-they-are-read", f"{SM90_FOLDER}store.cuh",
          "  if (lane == 0) wait_stores_read<0>();  // of this warp's rows of the tile before\n",
          "", SM90_TURNS),
    fault("sm90-lse-of-rows-past-the-end", f"{SM90_FOLDER}store.cuh",
          "&& Map::leads_row() && tile.has_row(row))",
          "&& Map::leads_row())", SM90_BATCH),
    fault("sm90-factor-of-another-row", f"{SM90_FOLDER}store.cuh",
          "const RowSum sum = softmax.row[r];",
          "const RowSum sum = softmax.row[0];", SM90_BATCH),
    fault("sm90-split-raises-the-first-flag", f"{SM90_FOLDER}combine.cuh",
          "tile.p.nonce, tile.split, tile.p.splits",
          "tile.p.nonce, 0, tile.p.splits", SM90_SPLIT),
    fault("sm90-tiles-of-a-head-share-partial-rows", f"{SM90_FOLDER}combine.cuh",
          " * tiles + tile.first_row / kBlockQ;",
          " * tiles;", f"{SM90}test_splits -k several-tiles"),
    fault("warps-first-lane-alone-counts-flags", "base/ticket.cuh",
          "return __all_sync(~0u, value);", "return value;", SM90_SPLIT),
    # Thin places of the grid, each with a case of its own.
    fault("causal-a-tile-one-key-beyond-the-diagonal-counts-as-full",
          "attention/builtin_variants.cuh",
          'return kv_last <= q_first ? Tile::full : Tile::partial;',
          'return kv_last <= q_first + 1 ? Tile::full : Tile::partial;',
          f"{FOLDER}/test_attention_peaked.py"),
    fault('causal-a-tile-that-only-the-last-row-sees-is-skipped', 'attention/builtin_variants.cuh',
          'if (kv_first > q_last) return Tile::skip;',
          'if (kv_first >= q_last) return Tile::skip;', f"{FOLDER}/test_attention_peaked.py"),
    fault('v-has-k-batch-stride', 'attention/addressing.cuh',
          'opaque(b_) * p_.v_batch',
          'opaque(b_) * p_.k_batch', f"{FOLDER}/test_attention_layouts.py"),
    fault('v-has-k-head-stride', 'attention/addressing.cuh',
          'opaque(h_kv_) * p_.v_head',
          'opaque(h_kv_) * p_.k_head', f"{FOLDER}/test_attention_layouts.py"),
    fault('v-has-k-row-stride', 'attention/addressing.cuh',
          '            p_.v_row};',
          '            p_.k_row};', f"{FOLDER}/test_attention_layouts.py"),
    fault('sm_90a-gemm-a-stage-is-free-before-its-products-are-done', 'gemm/sm90/main_loop.cuh',
          '    wait_products<1>();\n    if (i > 0) release_stage<Config>(previous);\n',
          '    if (i > 0) release_stage<Config>(previous);\n    wait_products<1>();\n',
          f"{FOLDER}/test_gemm.py"),
    fault('a-split-without-keys-sets-the-maximum-of-all', 'attention/combine.cuh',
          'float largest = -KILN_INFINITY;',
          'float largest = -1e4f;', f"{FOLDER}/test_attention_split.py"),
    # Norms.
    fault("norm-stage-stays", "norm/norm.cuh",
          "stage = stage + 1 == kStages ? 0 : stage + 1;", "stage = 0;", NORM_ROWS),
    fault("norm-sets-of-slots-do-not-take-turns", "norm/norm.cuh",
          "finish(values, turn);", "finish(values, 0);", f"{NORM_ROWS} -k rms_norm"),
    fault("norm-last-part-counts-as-whole", "norm/split.cuh",
          "static_cast<float>(rest < Shape::kCtaColumns ? rest : Shape::kCtaColumns);",
          "static_cast<float>(Shape::kCtaColumns);", NORM_WIDE),
    fault("norm-last-turn-of-a-cluster-counts-as-whole", "norm/exchange.cuh",
          "rank == last ? rest : 0);", "rank == last ? kTurn : 0);",
          NORM_CLUSTER),
    fault("norm-parts-without-the-distance-of-their-means", "norm/statistics.cuh",
          "squares += one.squares + one.count * distance * distance;", "squares += one.squares;",
          NORM_WIDE),
    fault("norm-sums-are-rounded-before-they-are-normed", "norm/lane.cuh",
          "vectors[v].set(sums);",
          "Pack<typename Config::Input, Config::kVector> rounded;\n"
          "rounded.set(sums);\n"
          "for (int i = 0; i < Config::kVector; ++i) sums[i] = rounded[i];\n"
          "vectors[v].set(sums);",
          f"{NORM}test_dtypes -k rms_norm-bf16"),
    fault("norm-offset-of-every-result", "norm/lane.cuh",
          "y *= weight[i] + params_.weight_offset;", "y = y * weight[i] + params_.weight_offset;",
          f"{NORM}test_options -k rms_norm"),
    fault("norm-residual-has-the-strides-of-x", "norm/lane.cuh",
          "load(loaded.residual, params_.residual, params_.residual_rows, row);",
          "load(loaded.residual, params_.residual, params_.x_rows, row);",
          f"{NORM}test_strides -k rms_norm"),
    fault("norm-sums-have-the-strides-of-out", "norm/lane.cuh",
          "place<Input>(params_.residual_out, params_.residual_out_rows, row);",
          "place<Input>(params_.residual_out, params_.out_rows, row);",
          f"{NORM}test_strides -k rms_norm"),
]  # fmt: skip
