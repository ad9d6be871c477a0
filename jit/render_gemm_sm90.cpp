#include <algorithm>
#include <utility>

#include "jit/argument_errors.h"
#include "jit/render_parts.h"

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

std::string render_gemm_sm90(const GemmTraits& traits, const GemmConfig& config,
                             const UserTexts& texts) {
  const Sm90Form& form = config.sm90;
  // The kernel's rows and columns are those of the product that wgmma computes.
  Major rows = traits.major_a, columns = traits.major_b;
  DType rows_dtype = traits.input, columns_dtype = traits.dtype_b();
  int block_rows = config.block_m, block_columns = config.block_n;
  if (form.swapped) {
    std::swap(rows, columns);
    std::swap(rows_dtype, columns_dtype);
    std::swap(block_rows, block_columns);
  }
  const bool promoted = is_f8(traits.input) && !traits.fast;
  const int product_columns = promoted ? promoted_columns(block_columns) : block_columns;
  SourceText text;
  text << "#include \"/kiln/gemm/sm90/gemm.cuh\"\n\n"
       << render_wgmma({rows_dtype, columns_dtype, product_columns, rows, columns})
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Output = " << device_type(traits.output) << ";\n"
       << "  using Bias = " << type_or(traits.bias, traits.output) << ";\n"
       << "  using Residual = " << type_or(traits.residual, traits.output) << ";\n"
       << "  using Products = ::Products;\n"
       << "  static constexpr kiln::Major kMajorRows = " << major_name(rows) << ";\n"
       << "  static constexpr kiln::Major kMajorColumns = " << major_name(columns) << ";\n"
       << "  static constexpr int kBlockM = " << block_rows << ", kBlockN = " << block_columns
       << ", kStages = " << config.stages << ";\n"
       << "  static constexpr int kGroups = " << form.groups << ", kCluster = " << form.cluster
       << ", kRasterRows = " << form.raster_rows << ", kResidents = " << form.residents << ";\n"
       << "  static constexpr bool kPingPong = " << boolean(form.ping_pong)
       << ", kSplits = " << boolean(form.splits) << ", kSwapped = " << boolean(form.swapped)
       << ", kPromoted = " << boolean(promoted) << ";\n"
       << "  static constexpr kiln::Access kStores = kiln::Access::" << name(traits.stores) << ";\n"
       << "  static constexpr bool kResidualBoxes = " << boolean(has_residual_boxes(traits, config))
       << ";\n"
       << epilogue_constants(traits) << "};\n"
       << gemm_epilogue(traits, texts) << "\n"
       << "extern \"C\" __global__ void __launch_bounds__((Config::kGroups + 1) * 128, "
       << form.residents << ")\n"
       << kEntryName << "(const __grid_constant__ kiln::GemmSm90Params<kiln::TensorMap> args) {\n"
       << "  kiln::gemm_sm90<Config, Epilogue>(args);\n}\n";
  return text.str();
}

}  // namespace kiln
