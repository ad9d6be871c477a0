#include "jit/attention/render.h"

#include <algorithm>

#include "jit/attention/element_bounds.h"
#include "jit/attention/sm90_config.h"
#include "jit/op/source_text.h"
#include "jit/op/wgmma_source.h"
#include "templates/attention/params.h"

namespace kiln {

namespace {

// The types of templates/attention/sm90/storage.cuh.
struct StorageTypes {
  const char* storage;
  const char* args;
};
StorageTypes types_of(Storage storage, const AttentionSm90Config& config) {
  constexpr const char* kVarlen = "kiln::AttentionSm90VarlenArgs";
  switch (storage) {
    case Storage::dense:
      return {"kiln::DenseStorage", "kiln::AttentionSm90Args"};
    case Storage::ragged:
      if (config.splits) return {"kiln::SharedRaggedStorage", kVarlen};
      return {config.grouped ? "kiln::GroupedRaggedStorage" : "kiln::RaggedStorage", kVarlen};
    default:
      if (config.splits) return {"kiln::SharedPagedStorage", kVarlen};
      return {config.grouped ? "kiln::GroupedPagedStorage" : "kiln::PagedStorage", kVarlen};
  }
}

// The operands of the tensor cores.
struct Factors {
  DType queries, keys, weights;
  Major values_major = Major::mn;
};
Factors factors_of(const AttentionSm90Config& config, const AttentionTraits& traits) {
  switch (config.factors) {
    case AttentionFactors::widened:
      return {DType::f16, DType::f16, DType::f16};
    case AttentionFactors::bytes:
      return {traits.k, traits.k, DType::f8_e4m3, Major::k};
    default:
      return {traits.q, traits.q, traits.q};
  }
}

// Whether addresses of the elements that masks read are computed by WideProduct of
// templates/base/table.cuh, and those of tables are read ahead of their conditions.
bool reads_closely(const AttentionTraits& traits, const UserTexts& texts) {
  return texts.variant != nullptr && only_masks_read(traits) &&
         std::ranges::any_of(texts.variant->definitions(),
                             [](const auto& d) { return mask_reads_at_keys(*d); });
}

}  // namespace

std::string render_attention_sm90(const Specialization& spec, const UserTexts& texts) {
  const auto traits = spec.traits_as<AttentionTraits>();
  const AttentionSm90Config& config =
      attention_sm90_configs()[static_cast<std::size_t>(spec.row())];
  const Factors factors = factors_of(config, traits);
  const int step = 32 / size_of(factors.keys);  // of elements of K
  const WgmmaShape scores{.a = factors.queries,
                          .b = factors.keys,
                          .n = config.block_kv,
                          .major_rows = Major::k,
                          .major_columns = Major::k,
                          .name = "Scores",
                          .k_steps = (traits.head_dim + step - 1) / step,
                          .slab_a = config.block_q * 128,
                          .slab_b = config.block_kv * 128,
                          .low_words = true};
  const auto outputs = [&](const char* name, int columns) {
    return WgmmaShape{.a = factors.weights,
                      .b = factors.keys,
                      .n = columns,
                      .major_rows = Major::k,
                      .major_columns = factors.values_major,
                      .name = name,
                      .k_steps = config.block_kv / step,
                      .slab_b = attention_padded_dim(traits.head_dim_v) * 128,
                      .a_in_registers = true,
                      .low_words = true};
  };
  // Two products have a part of the columns each, see templates/attention/sm90/value_products.cuh.
  const bool has_parts = config.factors == AttentionFactors::widened && traits.head_dim_v > 128;
  const int first_columns = has_parts ? 128 : traits.head_dim_v;
  const WgmmaShape tilt{.a = DType::bf16,
                        .b = DType::bf16,
                        .n = config.block_kv,
                        .major_rows = Major::k,
                        .major_columns = Major::k,
                        .name = "Tilts",
                        .k_steps = 1,
                        .low_words = true,
                        .rows_a = RowsInMemory::eight_rows,
                        .rows_b = RowsInMemory::short_rows};
  const StorageTypes types = types_of(traits.storage, config);
  SourceText text;
  text << "#include \"/kiln/attention/sm90/flash_attention.cuh\"\n\n"
       << render_wgmma(scores) << render_wgmma(outputs("Outputs", first_columns))
       << (has_parts ? render_wgmma(outputs("MoreOutputs", traits.head_dim_v - 128)) : "")
       << (tilts(traits) ? render_wgmma(tilt) : "") << "struct Config {\n"
       << "  using Element = " << device_type(traits.q) << ";\n"
       << "  using Scores = ::Scores;\n"
       << "  using Outputs = ::Outputs;\n"
       << (has_parts ? "  using MoreOutputs = ::MoreOutputs;\n" : "")
       << "  using Storage = " << types.storage << ";\n"
       << "  static constexpr int kHeadDim = " << traits.head_dim << ";\n"
       << "  static constexpr int kHeadDimV = " << traits.head_dim_v << ";\n"
       << "  static constexpr int kGroups = " << config.block_q / 64
       << ", kBlockKv = " << config.block_kv << ";\n"
       << "  static constexpr int kStages = " << config.stages << ", kQStages = " << config.q_stages
       << ";\n"
       << "  static constexpr bool kStagedOutput = " << boolean(stages_output(config, traits))
       << ", kTurns = " << boolean(config.turns) << ";\n"
       << "  static constexpr bool kSplits = " << boolean(config.splits) << ";\n"
       << "  static constexpr bool kTilts = " << boolean(tilts(traits)) << ";\n"
       << (tilts(traits) ? "  using Tilts = ::Tilts;\n" : "")
       << "  static constexpr bool kHasScales = " << boolean(traits.has_scales()) << ";\n"
       << quantized_source(traits, spec.arch()) << "};\n"
       << variant_source(traits, texts, reads_closely(traits, texts))
       << "extern \"C\" __global__ void __launch_bounds__(" << thread_count(config) << ", 1)\n"
       << kEntryName << "(const __grid_constant__ " << types.args << "<Variant> args) {\n"
       << "  kiln::flash_attention_sm90<Config>(args);\n}\n";
  return text.str();
}

}  // namespace kiln
