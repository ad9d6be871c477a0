#include "jit/gemm/tensor_maps.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "jit/gemm/config.h"
#include "jit/op/tensor_maps.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

using runtime::TensorMapElement;

TensorMapElement element_of(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::i8:
      return TensorMapElement::u8;
    case DType::f16:
      return TensorMapElement::f16;
    case DType::bf16:
      return TensorMapElement::bf16;
    default:
      return TensorMapElement::f32;
  }
}

// Over the whole of such rows.
runtime::TensorMapSwizzle swizzle_of(int row_bytes) {
  return row_bytes == 128  ? runtime::TensorMapSwizzle::b128
         : row_bytes == 64 ? runtime::TensorMapSwizzle::b64
                           : runtime::TensorMapSwizzle::b32;
}

struct MatrixMap {
  const void* data;
  DType dtype;
  std::int64_t columns, rows;  // contiguous elements first
  std::int64_t ld;
  std::int64_t batch, batch_stride;  // a stride of 0 broadcasts
  std::uint32_t box_columns, box_rows;
  runtime::TensorMapSwizzle swizzle = runtime::TensorMapSwizzle::b128;
  bool is_operand = false;
  // Of a gated b: elements from the gates to their partners, and how many of the two a box holds.
  std::int64_t partner_stride = 0;  // 0: is not gated
  std::uint32_t box_halves = 1;
  bool by_eights = false;  // a box holds eight gates, their partners, the next eight gates, ..
};

const runtime::TensorMap& encode(const MatrixMap& matrix, runtime::Device& device) {
  const auto bytes = [&](std::int64_t stride) {
    return static_cast<std::uint64_t>(stride * size_of(matrix.dtype));
  };
  runtime::TensorMapSpec spec;
  spec.address = reinterpret_cast<std::uint64_t>(matrix.data);
  spec.element = element_of(matrix.dtype);
  // The copy then rounds to nearest; wgmma itself would cut off, which doubles the error and more.
  if (matrix.is_operand && matrix.dtype == DType::f32) spec.element = TensorMapElement::tf32;
  spec.dims = {static_cast<std::uint64_t>(matrix.columns), static_cast<std::uint64_t>(matrix.rows)};
  // Strides of dimensions of one entry are never used, but checked: 0 would do for no driver.
  spec.strides_bytes = {matrix.rows == 1 ? 16 : bytes(matrix.ld)};
  spec.box = {matrix.box_columns, matrix.box_rows};
  std::size_t rank = 2;
  const auto add = [&](std::int64_t size, std::uint64_t stride_bytes, std::uint32_t box) {
    spec.dims[rank] = static_cast<std::uint64_t>(size);
    spec.strides_bytes[rank - 1] = stride_bytes;
    spec.box[rank++] = box;
  };
  if (matrix.by_eights) spec.dims[1] = spec.box[1] = 8;
  if (matrix.partner_stride != 0) add(2, bytes(matrix.partner_stride), matrix.box_halves);
  if (matrix.by_eights) add(matrix.rows / 8, bytes(matrix.ld * 8), matrix.box_rows / 8);
  const bool batched = matrix.batch_stride != 0;
  add(batched ? matrix.batch : 1, batched ? bytes(matrix.batch_stride) : 16, 1);
  spec.rank = static_cast<int>(rank);
  spec.swizzle = matrix.swizzle;
  return remembered_map(spec, device);
}

// One of the product's, as tiles load it.
struct Operand {
  const void* data;
  Major major;
  std::int64_t mn, ld, batch_stride;
  Gate gate;
  int extent;  // of a tile, along M or N; of a gated b, whose tile is two of them, of one half
  int ctas;    // of a cluster that each load a part of what they share
  GemmTail tail;

  // Its map with boxes of `rows` rows of a tile.
  MatrixMap map(DType dtype, const GemmParams& gemm, int rows, bool swapped) const {
    const auto deep = static_cast<std::uint32_t>(128 / size_of(dtype));
    MatrixMap map{data, dtype, gemm.k, mn, ld, gemm.batch, batch_stride, deep, 0};
    map.box_rows = static_cast<std::uint32_t>(rows / ctas);
    map.is_operand = true;
    if (gate == Gate::halves) map.partner_stride = mn * (major == Major::k ? ld : 1);
    if (gate == Gate::interleaved) map.partner_stride = ld, map.ld = 2 * ld;
    if (gate != Gate::none) map.box_halves = 2, map.by_eights = swapped;
    if (major == Major::mn) {
      std::swap(map.columns, map.rows);
      map.box_columns = 64, map.box_rows = deep, map.box_halves = 1;
    }
    return map;
  }
};

// The values of an epilogue follow the parameters, as BoundArguments of
// templates/gemm/bound_epilogue.cuh has them: behind the padding that the maps' alignment makes, as
// the base is trivial. Returns the size of it all, which is a multiple of this alignment.
std::size_t append_values(std::span<const std::byte> values, ParameterBlock& block) {
  static_assert(std::is_trivial_v<GemmParams>);
  constexpr std::size_t kAlignment = alignof(runtime::TensorMap);
  constexpr std::size_t kParamsSize = sizeof(GemmSm90Params<runtime::TensorMap>);
  const std::size_t block_size =
      (kParamsSize + values.size() + kAlignment - 1) / kAlignment * kAlignment;
  std::fill(std::copy(values.begin(), values.end(), block.bytes.data() + kParamsSize),
            block.bytes.data() + block_size, std::byte{});
  return block_size;
}

}  // namespace

std::span<const std::byte> pack_gemm_sm90(const CallArguments& arguments,
                                          const Specialization& spec, runtime::Device& device,
                                          ParameterBlock& block) {
  auto& params = block.begin<GemmSm90Params<runtime::TensorMap>>();
  std::memcpy(&params.gemm, arguments.bytes().data(), sizeof params.gemm);
  const GemmParams& gemm = params.gemm;
  const auto traits = spec.traits_as<GemmTraits>();
  const GemmSm90Config& config = gemm_sm90_config(spec.row());

  // Columns of the output in a tile.
  const int block_n = traits.gate == Gate::none ? config.block_n : config.block_n / 2;
  const bool swapped = config.swapped;
  const Operand a{gemm.a,
                  traits.major_a,
                  gemm.m,
                  gemm.a_ld,
                  gemm.a_batch,
                  Gate::none,
                  config.block_m,
                  swapped ? config.cluster : 1,
                  swapped ? gemm.raster.column_tail : gemm.raster.row_tail};
  const Operand b{gemm.b,
                  traits.major_b,
                  gemm.n,
                  gemm.b_ld,
                  gemm.b_batch,
                  traits.gate,
                  block_n,
                  swapped ? 1 : config.cluster,
                  swapped ? gemm.raster.row_tail : gemm.raster.column_tail};
  const auto map_of = [&](const Operand& x, int extent) -> const runtime::TensorMap& {
    return encode(x.map(traits.input, gemm, extent, swapped), device);
  };
  // Each map is copied at once, because its slot may be the next one's.
  const auto set = [&](const Operand& x, runtime::TensorMap& whole, runtime::TensorMap& tail) {
    whole = map_of(x, x.extent);
    tail = x.tail.begin >= 0 && x.major == Major::k ? map_of(x, x.tail.count) : whole;
  };
  set(swapped ? b : a, params.rows, params.row_tail);
  set(swapped ? a : b, params.columns, params.column_tail);
  // As templates/gemm/sm90/slab.cuh lays out a slab.
  const int size = size_of(traits.output);
  const bool shared = config.splits && !config.apart;
  const bool narrow = config.swapped && traits.gate != Gate::none;  // 32 columns
  const int row_bytes = narrow           ? 32 * size
                        : config.swapped ? gemm_sm90_transposed_row_bytes(size)
                                         : gemm_sm90_slab_row_bytes(block_n, size, shared);
  const auto columns = static_cast<std::uint32_t>(row_bytes / size);
  if (traits.stores != Access::elements) {
    const int rows = config.swapped
                         ? gemm_sm90_transposed_rows(config.block_m, narrow ? 64 : row_bytes / size,
                                                     config.splits, shared)
                         : 64;
    params.out =
        encode({gemm.out, traits.output, gemm.n, gemm.m, gemm.out_ld, gemm.batch, gemm.out_batch,
                columns, static_cast<std::uint32_t>(rows), swizzle_of(row_bytes)},
               device);
  } else {
    params.out = {};
  }
  if (has_residual_boxes(traits, config)) {
    params.residual = encode({gemm.residual, traits.residual, gemm.n, gemm.m, gemm.residual_ld,
                              gemm.batch, gemm.residual_batch, columns,
                              static_cast<std::uint32_t>(config.block_m), swizzle_of(row_bytes)},
                             device);
  } else {
    params.residual = {};
  }
  if (traits.epilogue == Digest128{}) return std::span(block.bytes).first(sizeof params);
  const std::span<const std::byte> values = arguments.bytes().subspan(sizeof gemm);
  return std::span(block.bytes).first(append_values(values, block));
}

}  // namespace kiln
