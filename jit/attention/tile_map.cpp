#include "jit/attention/tile_map.h"

#include <algorithm>
#include <cstring>

#include "jit/attention/config.h"
#include "jit/attention/family.h"
#include "jit/attention/render.h"
#include "jit/attention/sm90_config.h"
#include "jit/op/source_text.h"
#include "templates/attention/params.h"

namespace kiln {

MappedTile mapped_tile(const Specialization& spec) {
  if (&spec.kernel() == &kFlashAttentionSm90) {
    const AttentionSm90Config& config =
        attention_sm90_configs()[static_cast<std::size_t>(spec.row())];
    return {config.block_q, config.block_kv, /*group=*/64, /*packed=*/false};
  }
  const AttentionConfig& config = attention_config(spec.row());
  const int warp_rows = config.block_q * config.partners * config.teams / config.warps;
  return {config.block_q, config.block_kv, warp_rows, config.splits};
}

std::string render_tile_map(const Specialization& spec, const MappedTile& tile,
                            const UserTexts& texts) {
  const bool portable = &spec.kernel() != &kFlashAttentionSm90;
  SourceText text;
  text << "#include \"/kiln/attention/builtin_variants.cuh\"\n"
       << "#include \"/kiln/attention/tile_map/tile_map.cuh\"\n\n"
       << "struct Config {\n"
       << "  static constexpr int kBlockKv = " << tile.block_kv << ", kGroup = " << tile.group
       << ";\n"
       << "  static constexpr bool kPacked = " << boolean(tile.packed)
       << ", kPortable = " << boolean(portable) << ";\n};\n"
       << variant_source(spec.traits_as<AttentionTraits>(), texts)
       << "extern \"C\" __global__ void __launch_bounds__(32, 1)\n"
       << kEntryName << "(const __grid_constant__ kiln::TileMapArgs<Variant> args) {\n"
       << "  kiln::map_tiles<Config, Variant>(args);\n}\n";
  return text.str();
}

std::vector<TileMapRow> map_rows(const MappedTile& tile, const AttentionProblem& problem) {
  const int sharing = tile.packed ? problem.heads / problem.heads_kv : 1;
  const int all_rows = problem.len_q * sharing;
  std::vector<TileMapRow> rows;
  for (int first = 0; first < all_rows; first += tile.block_q) {
    const int end = std::min(first + tile.block_q, all_rows);
    for (int own = first; own < end; own += tile.group) {
      const int own_end = std::min(own + tile.group, end);
      rows.push_back(
          {first / sharing, (end - 1) / sharing, own / sharing, (own_end - 1) / sharing});
    }
  }
  return rows;
}

CallArguments map_arguments(const TileMapParams& params, const AttentionProblem& problem) {
  CallArguments arguments;
  arguments.set_params(params);
  const CallArguments& call = problem.arguments();
  for (std::size_t at = sizeof(AttentionParams); at < call.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, call.bytes().data() + at, 8);
    arguments.add_word(word);
  }
  return arguments;
}

}  // namespace kiln
