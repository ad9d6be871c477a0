// Options of the operations from plain values.
#include "options.h"

#include "dtypes.h"

namespace kiln::python {
namespace {

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

constexpr Subject kWindow{kAttentionOp, "window"};
constexpr Subject kOutDtype{kGemmOp, "out_dtype"};

}  // namespace

void set_window(AttentionOptions& options, std::int64_t left, std::int64_t right) {
  options.window_left = left;
  options.window_right = right;
  if (left >= -1 && right >= -1) return;
  throw_value(kWindow, "must count keys on each side, or be -1 for open, got (" +
                           std::to_string(left) + ", " + std::to_string(right) + ")");
}

void refuse_window(const std::string& given) {
  throw_type(kWindow, "must be a pair (left, right) of integers, -1 = open, got " + given);
}

AttentionLayout attention_layout(std::string_view name) {
  if (name == "bshd") return AttentionLayout::bshd;
  if (name == "bhsd") return AttentionLayout::bhsd;
  throw_value({kAttentionOp, "layout"}, "must be \"bshd\" or \"bhsd\", got " + quoted(name));
}

TensorView lse_of(const TensorView& q, AttentionLayout layout) {
  const bool is_bshd = layout == AttentionLayout::bshd;
  TensorView view = contiguous_view(nullptr, DType::f32, q.device_ordinal, q.shape[0],
                                    q.shape[is_bshd ? 2 : 1], q.shape[is_bshd ? 1 : 2]);
  view.device_type = q.device_type;
  return view;
}

void refuse_dropout(const std::string& given) {
  throw_value({kSdpaOp, "dropout_p"},
              "must be 0.0, got " + given +
                  "; Kiln has no dropout (pass dropout_p only while training, elsewhere)");
}

void set_precision(GemmOptions& options, std::string_view name) {
  options.allow_tf32 = name == "tf32";
  options.fast = name == "fast";
  if (options.allow_tf32 || options.fast) return;
  throw_value({kGemmOp, "precision"},
              "must be None, \"tf32\" (for float32 inputs) or \"fast\" (for float8 inputs), got " +
                  quoted(name));
}

Accumulator accumulator_of(DType dtype) {
  if (dtype == DType::f32) return Accumulator::f32;
  if (dtype == DType::f16) return Accumulator::f16;
  throw_value({kGemmOp, "accumulator"}, std::string("must be \"float32\" or \"float16\", got ") +
                                            (dtype == DType::none ? "None" : name(dtype)));
}

Gate gate_of(std::string_view name) {
  const Gate gate = parse_gate(std::string(name));
  if (gate == Gate::none) throw_value({kGemmOp, "gate"}, "must be halves or interleaved");
  return gate;
}

GemmTile tile_of(std::span<const std::int64_t, kTileNumbers> values) {
  const auto value = [&](std::size_t i) { return as_int(values[i], {kGemmOp, "config"}); };
  return {value(0), value(1), value(2), value(3), value(4), value(5)};
}

void refuse_tile(const std::string& given) {
  throw_type(
      {kGemmOp, "config"},
      "must be a dict or a tuple (block_m, block_n, block_k, stages[, cluster[, splits]]), got " +
          given);
}

DType gemm_output_dtype(DType input, DType asked) {
  if (asked != DType::none) return asked;
  // 8-bit floats are inputs alone.
  return input == DType::f8_e4m3 || input == DType::f8_e5m2 ? DType::bf16 : input;
}

void check_out_dtype(DType asked, const TensorView& out) {
  if (asked == DType::f8_e4m3 || asked == DType::f8_e5m2) {
    throw_type(kOutDtype, std::string("must be float16, bfloat16 or float32, got ") + name(asked));
  }
  if (!out.given() || asked == DType::none || asked == out.dtype) return;
  throw_type(kOutDtype, std::string("is ") + name(asked) + " but out is " + name(out.dtype) +
                            "; give one of the two");
}

DType named_dtype(std::string_view name, Subject subject) {
  const std::optional<DType> dtype = dtype_by_name(name);
  if (!dtype) refuse_dtype(subject, "'" + std::string(name) + "'");
  return *dtype;
}

void refuse_dtype(Subject subject, const std::string& given) {
  throw_type(subject,
             "must be a dtype or its name, such as \"float16\", \"bfloat16\" or \"float32\", got " +
                 given);
}

int as_int(std::int64_t value, Subject subject) {
  if (value == static_cast<int>(value)) return static_cast<int>(value);
  throw_value(subject, "must fit an integer of 32 bits, got " + std::to_string(value));
}

}  // namespace kiln::python
