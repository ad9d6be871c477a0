// Options of gemm.
#include "gemm_options.h"

#include "generated/gemm.h"
#include "options.h"

namespace kiln::python {

void set_precision(GemmOptions& options, std::string_view name) {
  options.allow_tf32 = name == "tf32";
  options.fast = name == "fast";
  if (options.allow_tf32 || options.fast) return;
  throw_value(subject_of<GemmSignature>(GemmSignature::kPrecision),
              "must be None, \"tf32\" (for float32 inputs) or \"fast\" (for float8 inputs), got " +
                  quoted(name));
}

Accumulator accumulator_of(DType dtype) {
  if (dtype == DType::f32) return Accumulator::f32;
  if (dtype == DType::f16) return Accumulator::f16;
  throw_value(subject_of<GemmSignature>(GemmSignature::kAccumulator),
              std::string("must be \"float32\" or \"float16\", got ") +
                  (dtype == DType::none ? "None" : name(dtype)));
}

Gate gate_of(std::string_view name) {
  const Gate gate = parse_gate(std::string(name));
  if (gate == Gate::none)
    throw_value(subject_of<GemmSignature>(GemmSignature::kGate), "must be halves or interleaved");
  return gate;
}

Pdl pdl_of(std::string_view name) {
  if (name == "off") return Pdl::off;
  if (name == "on") return Pdl::on;
  if (name == "weights") return Pdl::weights;
  refuse_pdl(quoted(name));
}

void refuse_pdl(const std::string& given) {
  throw_value(subject_of<GemmSignature>(GemmSignature::kPdl),
              "must be False, True or \"weights\", got " + given);
}

GemmTile tile_of(std::span<const std::int64_t, kTileNumbers> values) {
  const auto value = [&](std::size_t i) {
    return as_int(values[i], subject_of<GemmSignature>(GemmSignature::kConfig));
  };
  return {value(0), value(1), value(2), value(3), value(4), value(5)};
}

void refuse_tile(const std::string& given) {
  throw_type(
      subject_of<GemmSignature>(GemmSignature::kConfig),
      "must be a dict or a tuple (block_m, block_n, block_k, stages[, cluster[, splits]]), got " +
          given);
}

}  // namespace kiln::python
