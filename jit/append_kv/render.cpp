#include "jit/append_kv/render.h"

#include "jit/append_kv/config.h"
#include "jit/op/arch.h"
#include "jit/op/source_text.h"

namespace kiln {

namespace {

// CTAs that a multiprocessor is to hold, with up to 72 registers of each thread: with 64 some
// kernels spill.
constexpr int kResidents = 7;

}  // namespace

std::string render_append_kv(const Specialization& spec, const UserTexts&) {
  const auto traits = spec.traits_as<AppendTraits>();
  const AppendConfig& config = append_configs()[static_cast<std::size_t>(spec.row())];
  // Only 8-bit floats differ by the arch: other kernels have one source, and so one key, for all.
  const bool is_float8 = traits.cache == DType::f8_e4m3 || traits.cache == DType::f8_e5m2;
  const bool hardware =
      is_float8 && arch_table()[static_cast<std::size_t>(spec.arch())].number >= 89;
  SourceText text;
  text << "#include \"/kiln/append_kv/append_kv.cuh\"\n\n"
       << "struct Config {\n"
       << "  using Input = " << device_type(traits.input) << ";\n"
       << "  using Cache = " << device_type(traits.cache) << ";\n"
       << "  using Weight = " << type_or(traits.weight, DType::f32) << ";\n"
       << "  using Table = " << type_or(traits.table, DType::f32) << ";\n"
       << "  static constexpr int kDim = " << static_cast<int>(traits.head_dim)
       << ", kDimV = " << static_cast<int>(traits.head_dim_v)
       << ", kRotary = " << static_cast<int>(traits.rotary) << ";\n"
       << "  static constexpr bool kQuery = " << boolean(traits.query)
       << ", kNorm = " << boolean(traits.weight != DType::none)
       << ", kInterleaved = " << boolean(traits.interleaved)
       << ", kSequences = " << boolean(traits.sequences) << ";\n"
       << "  static constexpr int kVector = " << static_cast<int>(traits.vector)
       << ", kRows = " << config.rows << ", kAhead = " << config.ahead << ";\n"
       << "  static constexpr bool kHardware = " << boolean(hardware) << ";\n"
       << "};\n\n"
       << "extern \"C\" __global__ void __launch_bounds__(kiln::kAppendThreads, " << kResidents
       << ")\n"
       << kEntryName << "(const __grid_constant__ kiln::Append"
       << (traits.sequences ? "Sequences" : "") << "Params args) {\n"
       << "  kiln::append_kv<Config>(args);\n}\n";
  return text.str();
}

}  // namespace kiln
