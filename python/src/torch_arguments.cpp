// Options of the operators torch.ops.kiln.*.
#include "torch_arguments.h"

#include <array>
#include <charconv>

#include "dtypes.h"
#include "options.h"

namespace kiln::python {
namespace {

// As Python shows it.
std::string repr_of(const TorchList& list) {
  std::string text;
  for (std::size_t i = 0; i < size_of(list); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(item_of(list, i));
  }
  return "[" + text + "]";
}

std::string repr_of(double value) {
  std::array<char, 32> text{};
  char* const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  const std::string digits(text.data(), static_cast<std::size_t>(end - text.data()));
  return digits.find_first_not_of("-0123456789") == std::string::npos ? digits + ".0" : digits;
}

}  // namespace

AttentionOptions AttentionArguments::options() const {
  AttentionOptions options;
  options.causal = causal;
  if (size_of(window) != 2) refuse_window(repr_of(window));
  set_window(options, item_of(window, 0), item_of(window, 1));
  options.softcap = static_cast<float>(softcap);
  options.scale = scale;
  options.layout = attention_layout(view_of(layout));
  return options;
}

SdpaOptions SdpaArguments::options() const {
  if (static_cast<float>(dropout_p) != 0.0f) refuse_dropout(repr_of(dropout_p));
  return {.is_causal = is_causal, .scale = scale, .enable_gqa = enable_gqa};
}

GemmOptions GemmArguments::options() const {
  GemmOptions options;
  options.trans_a = trans_a;
  options.trans_b = trans_b;
  if (activation) options.activation = parse_activation(std::string(view_of(activation)));
  if (gate) options.gate = gate_of(view_of(gate));
  options.alpha = static_cast<float>(alpha);
  if (precision) set_precision(options, view_of(precision));
  options.accumulator = accumulator_of(named_dtype(view_of(accumulator), {kGemmOp, "accumulator"}));
  if (epilogue) options.epilogue = view_of(epilogue);
  if (config) {
    const std::size_t size = size_of(config);
    if (size < kNeededTileNumbers || size > kTileNumbers) refuse_tile(repr_of(config));
    std::array<std::int64_t, kTileNumbers> numbers{};
    for (std::size_t i = 0; i < size; ++i) numbers[i] = item_of(config, i);
    options.config = tile_of(numbers);
  }
  return options;
}

DType GemmArguments::asked_dtype() const {
  if (!out_dtype) return DType::none;
  const DlDataType type = torch_abi().dlpack_type_of(*out_dtype);
  const DType dtype = dtype_of(type);
  if (dtype == DType::other)
    refuse_dtype({kGemmOp, "out_dtype"}, "torch." + dlpack_type_text(type));
  return dtype;
}

}  // namespace kiln::python
