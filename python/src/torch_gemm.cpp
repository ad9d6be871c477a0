// The C++ kernel of torch.ops.kiln.gemm and gemm_out.
#include <array>
#include <string>
#include <utility>

#include "gemm_options.h"
#include "generated/torch_gemm.h"
#include "options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {
namespace {

GemmTile read_tile(const TorchList& config) {
  const std::size_t size = size_of(config);
  if (size < kNeededTileNumbers || size > kTileNumbers) refuse_tile(repr_of(config));
  std::array<std::int64_t, kTileNumbers> numbers{};
  for (std::size_t i = 0; i < size; ++i) numbers[i] = item_of(config, i);
  return tile_of(numbers);
}

GemmOptions options_of(const GemmArguments& given) {
  GemmOptions options;
  given.set_numbers(options);
  if (given.activation) {
    options.activation = parse_activation(std::string(view_of(given.activation)));
  }
  if (given.gate) options.gate = gate_of(view_of(given.gate));
  if (given.precision) set_precision(options, view_of(given.precision));
  options.accumulator = accumulator_of(named_dtype(
      view_of(given.accumulator), subject_of<GemmSignature>(GemmSignature::kAccumulator)));
  if (given.epilogue) options.epilogue = view_of(given.epilogue);
  options.expected_rows = given.expected_rows;
  if (given.config) options.config = read_tile(given.config);
  options.pdl = pdl_of(view_of(given.pdl));
  return options;
}

}  // namespace

void compute_gemm(TorchSlot* stack, std::size_t new_results) {
  const GemmArguments given(TorchArguments(stack), new_results == 0);
  GemmOptions options = options_of(given);
  const DType asked =
      asked_dtype(given.out_dtype, subject_of<GemmSignature>(GemmSignature::kOutDtype));
  TorchIntake intake(GemmSignature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  options.bias = tensors.bias().view;
  options.residual = tensors.residual().view;
  options.scale_a = tensors.scale_a().view;
  options.scale_b = tensors.scale_b().view;
  options.offsets = tensors.offsets().view;
  options.counts = tensors.counts().view;
  options.workspace = intake.workspace();
  const TensorView& a = tensors.a().view;
  const TensorView& b = tensors.b().view;
  TensorView& out = tensors.out().view;
  check_out_dtype(GemmSignature::kOp, asked, out, /*may_quantize=*/true);
  TorchTensor new_out;
  if (new_results != 0) {
    out = gemm_output(a, b, output_dtype(a.dtype, asked), options);
    new_out = intake.allocate(out);
  }
  gemm(a, b, out, options, intake.stream());
  if (new_out) stack[0] = slot_of(std::move(new_out));
}

}  // namespace kiln::python
