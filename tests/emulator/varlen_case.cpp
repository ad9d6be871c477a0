// The problems of KernelCase for attention over sequences that have lengths of their own: the first
// has two query tiles, the second one, the third no query. Tiles are cut one by one into pieces of
// their keys; computed whole; or, with hardly any keys, get equal shares of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "jit/attention/config.h"
#include "jit/attention/copy_keys.h"
#include "jit/attention/family.h"
#include "jit/attention/gathered_rows.h"
#include "jit/attention/plan.h"
#include "jit/attention/sm90_config.h"
#include "jit/attention/sm90_rows.h"
#include "jit/attention/varlen.h"
#include "templates/attention/params.h"
#include "tests/emulator/kernel_case.h"
#include "tests/emulator/reference.h"

namespace kiln::testing {
namespace {

constexpr int kHeads = 2, kSequences = 3;

// A row of either table.
struct Tile {
  int block_q, block_kv, stages;
  int rows;  // of a sequence that a query tile of one or, packed, of all heads holds
  bool is_sm90;
  int heads = 1;        // of sm_90a: whose rows a query tile has
  bool shares = false;  // of sm_90a: CTAs may share its keys
};
Tile tile_of(const Specialization& spec) {
  if (&spec.kernel() == &kFlashAttentionSm90) {
    const AttentionSm90Config& config =
        attention_sm90_configs()[static_cast<std::size_t>(spec.row())];
    const int heads = config.grouped ? kHeads : 1;
    return {config.block_q, config.block_kv, config.stages, config.block_q / heads,
            true,           heads,           config.splits};
  }
  const AttentionConfig& config = attention_config(spec.row());
  return {config.block_q, config.block_kv * config.teams, config.stages, config.block_q / kHeads,
          false};
}

std::vector<int> starts_of(const int (&lengths)[kSequences]) {
  std::vector<int> starts{0};
  for (const int length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

std::vector<float> rows_of(const std::vector<float>& values, const std::vector<int>& rows,
                           std::size_t columns) {
  std::vector<float> all;
  for (const int row : rows) {
    const auto begin = values.begin() + row * static_cast<std::ptrdiff_t>(columns);
    all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(columns));
  }
  return all;
}

// The words of a tree's queries: some see no new key, or none at all.
constexpr int kMostWords = 40;
constexpr auto kWords = [] {
  std::array<std::uint64_t, kMostWords> words{};
  std::uint64_t word = 1;
  for (std::uint64_t& one : words) {
    word = word * 6364136223846793005u + 1442695040888963407u;
    one = word % 5 == 0 ? 0 : word;
  }
  return words;
}();

// [heads, len_q, len_kv]: which keys the queries of a sequence see.
std::vector<float> seen_in_tree(const AttentionReference& problem, const std::uint64_t* words) {
  std::vector<float> seen;
  for (int row = 0; row < problem.heads * problem.len_q; ++row) {
    for (int kv = 0; kv < problem.len_kv; ++kv) {
      const int bit = kv - (problem.len_kv - problem.len_q);
      seen.push_back(bit < 0 || (words[row % problem.len_q] >> bit & 1) != 0 ? 1.0f : 0.0f);
    }
  }
  return seen;
}

// Every third run of keys is this device's.
constexpr int kWorld = 3, kRank = 1, kRun = 4;

// Where the keys of a device lie in their sequence.
std::vector<int> spread_positions(int len_kv) {
  std::vector<int> positions;
  for (int i = 0; i < len_kv; ++i) {
    positions.push_back((i / kRun * kWorld + kRank) * kRun + i % kRun);
  }
  return positions;
}
// A length of the whole sequence: its last keys are another device's, unless a run goes on.
int total_of(int len_kv) {
  if (len_kv == 0) return 3;
  return spread_positions(len_kv).back() + (len_kv % kRun == 0 ? 7 : 1);
}

// CTAs draw the six query tiles, or have them dealt. No CTA of two has more of them than the ring
// of steps holds, of which none would then have to be released, where they may share keys, or where
// a tile has rows of all heads, so that there are few: one has all of them in size 1, where the
// copy engine brings boxes, and in size 2.
void fill_sm90(Step& step, const Tile& tile, bool quantized, int page_size, int size) {
  const int box_rows = page_size == 0 ? tile.block_kv : page_size % 8 == 0 ? 8 : 0;
  step.arguments.set_int(offsetof(AttentionVarlenParams, box_rows), box_rows);
  if (box_rows == 0 && !quantized) gather_rows(step, tile.block_kv);
  step.arguments.set_int(offsetof(AttentionVarlenParams, tile_heads), tile.heads);
  step.arguments.set_int(offsetof(AttentionVarlenParams, tile_heads_factor), 65536 / tile.heads);
  step.arguments.set_int(offsetof(AttentionVarlenParams, tile_queries), tile.rows);
  step.blocks = (tile.shares || tile.heads > 1) && size != 0 ? 1 : 2;
  if (size == 1) return;
  step.arguments.want_workspace(offsetof(AttentionParams, workspace), 0, kAttentionDrawBytes,
                                offsetof(AttentionParams, nonce));
}

void fill_portable(Recipe& recipe, const Tile& tile, const AttentionTraits& traits, int tokens,
                   int size) {
  Step& step = recipe.first();
  const int whole = size == 1 ? 1 : 0, few = size == 0 ? 5 : 2;  // there are three tiles
  step.blocks = static_cast<unsigned>(
      whole ? attention_varlen_tiles(kSequences, tokens, kHeads, 1, tile.block_q) : few);
  step.arguments.set_int(offsetof(AttentionVarlenParams, whole_tiles), whole);
  step.arguments.set_int(offsetof(AttentionVarlenParams, few_ctas), few);
  if (whole) return;
  recipe.workspace_bytes = static_cast<std::size_t>(
      attention_varlen_workspace_bytes(few, tile.block_q, traits.head_dim_v));
  step.arguments.want_workspace(offsetof(AttentionParams, workspace), 0, recipe.workspace_bytes,
                                offsetof(AttentionParams, nonce));
}

}  // namespace

KernelCase::Tensor& KernelCase::integers(std::initializer_list<std::int64_t> shape,
                                         const std::vector<int>& values) {
  Tensor& made = tensor(DType::i32, shape);
  std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
  return made;
}

void KernelCase::make_varlen(const Specialization& spec, int size, bool planned,
                             DType copied_from) {
  auto traits = spec.traits_as<AttentionTraits>();
  if (traits.widened_ahead && copied_from == DType::none) copied_from = DType::f8_e4m3;
  const bool is_copied = copied_from != DType::none;
  if (is_copied) {
    traits.widened_ahead = false;
    traits.k = traits.v = copied_from;
    traits.storage = size == 2 ? Storage::ragged : Storage::paged;
  }
  const Tile tile = tile_of(spec);
  const int stride = tile.block_kv;
  // On sm_90a threads gather the second, and of the first the values, while the copy engine copies
  // eight rows of keys at once.
  // No warps gather where others transpose values.
  const int page_size = tile.is_sm90 && (size == 1 || traits.byte_queries) ? 24 : 5;
  // Where a CTA has all tiles, it has more of them than the ring of steps holds.
  const int more = (tile.shares || tile.heads > 1) && size != 0 ? tile.rows : 0;
  const int lens_q[kSequences] = {tile.rows + more + 3, 1, 0};
  // Rows of few keys would be much larger than the others, by whose size errors are judged.
  // On sm_90a the second sequence has a tile for each stage, in which one of the first may have
  // gone unreleased.
  const int tiles = tile.is_sm90 ? tile.stages - 1 : 1;
  int lens_k[kSequences] = {stride * (tile.stages + 2) + 5, stride * tiles + 9, 4};
  if (size == 2) lens_k[0] = 3, lens_k[1] = 0;
  const std::vector<int> starts_q = starts_of(lens_q), starts_k = starts_of(lens_k);
  const int tokens = starts_q.back();
  const bool is_paged = traits.storage == Storage::paged;
  // Sequence b's key i is in the page of column i / page_size. Pages of its first half follow one
  // another, as sm90/gather.cuh copies them at once; the others lie in the opposite order.
  const int width = *std::max_element(lens_k, lens_k + kSequences) / page_size + 1;
  const int rows_k = is_paged ? kSequences * width * page_size : std::max(starts_k.back(), 1);
  std::vector<int> table;
  for (int i = 0; i < kSequences * width; ++i) {
    const int column = i % width, half = width / 2;
    table.push_back(i - column + (column < half ? column : width - 1 - (column - half)));
  }

  AttentionReference problem;
  problem.traits = traits;
  problem.heads = kHeads;
  problem.scale = (size == 1 ? -1 : 1) / std::sqrt(static_cast<double>(traits.head_dim));
  const auto keys = [&](int dim) -> Tensor& {
    return is_paged ? tensor(traits.k, {kSequences * width, page_size, 1, dim})
                    : tensor(traits.k, {rows_k, 1, dim});
  };
  Tensor& q = tensor(traits.byte_queries ? traits.k : traits.q, {tokens, kHeads, traits.head_dim});
  Tensor& k = keys(traits.head_dim);
  Tensor& v = keys(traits.head_dim_v);
  VarlenOptions options;
  options.max_seqlen_q = lens_q[0], options.max_seqlen_k = lens_k[0];
  options.cu_seqlens_q = integers({kSequences + 1}, starts_q).view;
  options.cu_seqlens_k = integers({kSequences + 1}, starts_k).view;
  if (is_paged && size == 1) {  // the table's rows as one list
    options.kv_indptr = integers({kSequences + 1}, {0, width, 2 * width, 3 * width}).view;
    options.kv_indices = integers({kSequences * width}, table).view;
  } else if (is_paged) {
    options.block_table = integers({kSequences, width}, table).view;
  }
  if (traits.has_quantized_cache()) {
    // Its values then are as large as other tensors' are.
    const float scale = traits.k == DType::i8 ? 1.0f / 128 : 0.5f;
    Tensor& scales = tensor(DType::f32, {1});
    std::memcpy(scales.bytes.data(), &scale, sizeof scale);
    options.attention.k_scale = options.attention.v_scale = scales.view;
    for (Tensor* const stored : {&k, &v}) {
      for (float& value : stored->values) value *= scale;
    }
  }
  AttentionOptions& attention = options.attention;
  attention.scale = static_cast<float>(problem.scale);
  attention.causal = traits.mask == Mask::causal;
  if (traits.mask == Mask::window || traits.mask == Mask::causal_each) {
    // As many keys of one device as of all: partial results of few rows too are then joined.
    const int apart = traits.spread ? kWorld : 1;
    // The first keys are copied for nobody.
    const int tiles_seen = is_copied ? 0 : tile.stages;
    attention.window_left = problem.window_left = apart * (70 + stride * tiles_seen);
    attention.window_right = problem.window_right = 10;
  }
  const std::vector<int> flags{size == 0 ? 1 : 0, size == 0 ? 0 : 7, 1};
  if (traits.mask == Mask::causal_each) {
    options.causal_each = integers({kSequences}, flags).view;
    problem.traits.mask = Mask::window;
  }
  if (traits.spread) {
    std::vector<int> totals;
    for (const int len : lens_k) totals.push_back(total_of(len));
    options.context = {kWorld, kRank, kRun, integers({kSequences}, totals).view};
  }
  if (traits.mask == Mask::tree) {
    Tensor& words = tensor(DType::i64, {tokens});
    std::memcpy(words.bytes.data(), kWords.data(), words.bytes.size());
    options.tree_mask = words.view;
    problem.traits.mask = Mask::none;
    problem.traits.attn_mask = DType::boolean;
  }
  if (traits.softcap) attention.softcap = problem.softcap = 5.0f;
  if (traits.alibi) {
    Tensor& slopes = tensor(DType::f32, {kHeads});
    attention.alibi_slopes = slopes.view;
    problem.slopes = slopes.values;
  }
  if (traits.sinks != DType::none) {
    Tensor& sinks = tensor(traits.sinks, {kHeads});
    attention.sinks = sinks.view;
    problem.sinks = sinks.values;
  }
  // Its elements then have digits to lose, and few are subnormal.
  constexpr float kOutScale = 0.0625f;
  if (traits.has_quantized_output()) {
    Tensor& scales = tensor(DType::f32, {1});
    std::memcpy(scales.bytes.data(), &kOutScale, sizeof kOutScale);
    options.out_scale = scales.view;
  }
  Tensor& out = tensor(traits.out, {tokens, kHeads, traits.head_dim_v});
  std::vector<double> expected;
  for (int b = 0; b < kSequences; ++b) {
    std::vector<int> rows_q, rows;
    for (int i = 0; i < lens_q[b]; ++i) rows_q.push_back(starts_q[static_cast<std::size_t>(b)] + i);
    for (int i = 0; i < lens_k[b]; ++i) {
      const int page = is_paged ? table[static_cast<std::size_t>(b * width + i / page_size)] : 0;
      rows.push_back(is_paged ? page * page_size + i % page_size
                              : starts_k[static_cast<std::size_t>(b)] + i);
    }
    problem.len_q = lens_q[b], problem.len_kv = lens_k[b];
    if (traits.spread) {
      problem.positions = spread_positions(lens_k[b]);
      problem.total = total_of(lens_k[b]);
    }
    if (traits.mask == Mask::causal_each) {
      problem.window_right = flags[static_cast<std::size_t>(b)] != 0 ? 0 : 10;
    }
    if (traits.mask == Mask::tree) {
      problem.attn_mask =
          seen_in_tree(problem, kWords.data() + starts_q[static_cast<std::size_t>(b)]);
    }
    problem.q = rows_of(q.values, rows_q, kHeads * std::size_t{traits.head_dim});
    problem.k = rows_of(k.values, rows, traits.head_dim);
    problem.v = rows_of(v.values, rows, traits.head_dim_v);
    const std::vector<double> part = reference(problem);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const auto fill = [&](Recipe& recipe) {
    recipe.first().spec = spec;
    if (!tile.is_sm90) return fill_portable(recipe, tile, traits, tokens, size);
    fill_sm90(recipe.first(), tile, traits.has_quantized_cache(), is_paged ? page_size : 0, size);
    recipe.workspace_bytes = size == 1 ? 0 : kAttentionDrawBytes;
  };
  AttentionProblem call(kVarlenNames);
  check_varlen(q.view, k.view, v.view, out.view, TensorView{}, options, call);
  if (is_copied) {
    CopiedCall copied(call);
    call.recipe.first().spec = spec;
    fill_sm90(call.recipe.first(), tile, false, 0, size);
    call.recipe.workspace_bytes = size == 1 ? 0 : kAttentionDrawBytes;
    copied.set_workspace();
    copied.add_launch(spec.arch());
    recipe_.workspace_bytes = call.recipe.workspace_bytes;
    recipe_.first() = call.recipe.steps()[1];
    recipe_.add() = call.recipe.first();
  } else {
    fill(call.recipe);
    recipe_ = call.recipe;
  }
  if (planned) {
    const int entries = tile.is_sm90 ? kAttentionPlannedPieces : 1;
    Tensor& plan = tensor(
        DType::i32, {static_cast<int>(recipe_.first().blocks) * entries * kAttentionPlanWords});
    // Both launches know the plan by what their calls say.
    options.plan = plan.view;
    AttentionProblem planning(kVarlenNames), attending(kVarlenNames);
    planning.makes_plan = true;
    for (AttentionProblem* const problem_of : {&planning, &attending}) {
      check_varlen(q.view, k.view, v.view, out.view, TensorView{}, options, *problem_of);
      Step& of_step = problem_of->recipe.first();
      fill(problem_of->recipe);
      if (tile.is_sm90) {
        set_plan_sm90(of_step, *problem_of);
      } else {
        set_plan(of_step, attention_config(spec.row()), *problem_of);
      }
    }
    recipe_ = planning.recipe;
    recipe_.workspace_bytes = attending.recipe.workspace_bytes;
    recipe_.first().spec = spec_;
    recipe_.first().arguments.want_workspace(0, 0, 0);
    recipe_.add() = attending.recipe.first();
  }
  double tolerance = 2 * epsilon(traits.q);
  // Weights are rounded to e4m3, each by up to a sixteenth: 0.026 of a result's RMS, and the worst
  // of thousands five times as much.
  if (traits.byte_queries && tile.is_sm90) tolerance += 0.16;
  if (traits.has_quantized_output()) {
    for (double& value : expected) value /= kOutScale;
    tolerance += 0.0625;  // half a step of the 8-bit float
  }
  outputs_.push_back({&out, expected, tolerance});
}

// The attention that reads the copied keys, of one head dim.
void KernelCase::make_copy_keys(int size) {
  const auto copying = spec_.traits_as<AttentionTraits>();
  AttentionTraits traits = copying;
  traits.storage = Storage::ragged;
  traits.head_dim = size == 1 ? 48 : 64, traits.head_dim_v = size == 1 ? 16 : 64;
  const AttentionTraits copied = traits_of_copied(traits);
  const int row = attention_sm90_rows(copied, spec_.arch())[0];
  make_varlen(Specialization(kFlashAttentionSm90, spec_.arch(), row, copied), size, false,
              copying.k);
}

// The attention that reads the plan, which shows whether it is right: every CTA of some of its
// launches has an entry, in others only some have, as tiles are whole or have hardly any keys.
void KernelCase::make_plan(int size) {
  auto traits = spec_.traits_as<AttentionTraits>();
  traits.storage = Storage::ragged;
  traits.head_dim = traits.head_dim_v = 64;
  const int arch = spec_.arch();
  const bool lists_pieces = &spec_.kernel() == &kAttentionSharesPlanner;
  const int row = lists_pieces ? first_sm90_row(traits, arch, {}, {.splits = true})
                               : row_of_kind(RowKind::decode, traits, arch);
  const Template& kernel = lists_pieces ? kFlashAttentionSm90 : kFlashAttentionVarlen;
  make_varlen(Specialization(kernel, arch, row, traits), size, true);
}

}  // namespace kiln::testing
