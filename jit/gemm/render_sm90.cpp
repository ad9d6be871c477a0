#include <utility>

#include "jit/gemm/render.h"
#include "jit/gemm/rows.h"
#include "jit/op/checks.h"
#include "jit/op/source_text.h"
#include "jit/op/wgmma_source.h"

namespace kiln {
namespace {

const char* major_name(Major major) {
  return major == Major::k ? "kiln::Major::k" : "kiln::Major::mn";
}

// Of a promoted product, whose accumulators come beside those of the sums.
int promoted_columns(int block_columns) {
  return block_columns <= 192 ? block_columns : block_columns / 2;
}

}  // namespace

std::string render_gemm_sm90(const Specialization& spec, const UserTexts& texts) {
  const auto traits = spec.traits_as<GemmTraits>();
  const GemmSm90Config& config = gemm_sm90_config(spec.row());
  // The kernel's rows and columns are those of the product that wgmma computes.
  Major rows = traits.major_a, columns = traits.major_b;
  DType rows_dtype = traits.input, columns_dtype = traits.dtype_b();
  int block_rows = config.block_m, block_columns = config.block_n;
  if (config.swapped) {
    std::swap(rows, columns);
    std::swap(rows_dtype, columns_dtype);
    std::swap(block_rows, block_columns);
  }
  const bool promoted = is_promoted(traits);
  const int product_columns = promoted ? promoted_columns(block_columns) : block_columns;
  SourceText text;
  text << "#include \"/kiln/gemm/sm90/gemm.cuh\"\n\n"
       << render_wgmma({rows_dtype, columns_dtype, product_columns, rows, columns})
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Output = " << device_type(traits.output) << ";\n"
       << "  using Bias = " << type_or(traits.bias, absent_type(traits)) << ";\n"
       << "  using Residual = " << type_or(traits.residual, absent_type(traits)) << ";\n"
       << "  using Products = ::Products;\n"
       << "  static constexpr kiln::Major kMajorRows = " << major_name(rows) << ";\n"
       << "  static constexpr kiln::Major kMajorColumns = " << major_name(columns) << ";\n"
       << "  static constexpr int kBlockM = " << block_rows << ", kBlockN = " << block_columns
       << ", kStages = " << config.stages << ";\n"
       << "  static constexpr int kGroups = " << config.groups << ", kCluster = " << config.cluster
       << ", kRasterRows = " << config.raster_rows << ", kResidents = " << config.residents << ";\n"
       << "  static constexpr bool kPingPong = " << boolean(config.ping_pong)
       << ", kSplits = " << boolean(config.splits) << ", kApart = " << boolean(config.apart)
       << ", kSwapped = " << boolean(config.swapped) << ", kPromoted = " << boolean(promoted)
       << ";\n"
       << "  static constexpr kiln::Access kStores = kiln::Access::"
       << name_of(kAccessNames, traits.stores) << ";\n"
       << "  static constexpr bool kResidualBoxes = " << boolean(has_residual_boxes(traits, config))
       << ";\n"
       << epilogue_constants(traits)
       << (traits.block_scaled() ? std::string("  static constexpr bool kHasBias = ") +
                                       boolean(traits.bias != DType::none) + ";\n"
                                 : "")
       << (traits.scale_dtype == DType::f8_e8m0 ? "  static constexpr bool kByteScales = true;\n"
                                                : "")
       << "};\n"
       << gemm_epilogue(traits, texts) << "\n"
       << "extern \"C\" __global__ void __launch_bounds__((Config::kGroups + 1) * 128, "
       << config.residents << ")\n"
       << kEntryName << "(const __grid_constant__ "
       << gemm_arguments("kiln::GemmSm90Params<kiln::TensorMap>", traits, texts) << " args) {\n"
       << "  kiln::gemm_sm90<Config, Epilogue>(args);\n}\n";
  return text.str();
}

}  // namespace kiln
