#include "jit/attention/tensor_maps.h"

#include <cstring>

#include "jit/attention/sm90_config.h"
#include "jit/op/tensor_maps.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

struct Rows {
  const void* data;
  DType dtype;
  int columns, rows, heads, batch;
  long long row, head, batch_stride;  // in elements
  int box_rows, box_heads = 1;
};

const runtime::TensorMap& encode(const Rows& t, runtime::Device& device) {
  // A stride of a dimension of one entry is never used, but checked: 0 would do for no driver.
  const auto bytes = [&](long long stride, int entries) {
    return entries <= 1
               ? std::uint64_t{16}
               : static_cast<std::uint64_t>(stride) * static_cast<unsigned>(size_of(t.dtype));
  };
  const auto count = [](int entries) { return static_cast<std::uint64_t>(entries); };
  runtime::TensorMapSpec spec;
  spec.address = reinterpret_cast<std::uint64_t>(t.data);
  spec.element = size_of(t.dtype) == 1   ? runtime::TensorMapElement::u8
                 : t.dtype == DType::f16 ? runtime::TensorMapElement::f16
                                         : runtime::TensorMapElement::bf16;
  spec.rank = 4;
  spec.dims = {count(t.columns), count(t.rows), count(t.heads), count(t.batch)};
  spec.strides_bytes = {bytes(t.row, t.rows), bytes(t.head, t.heads),
                        bytes(t.batch_stride, t.batch)};
  const auto columns = static_cast<std::uint32_t>(128 / size_of(t.dtype));
  spec.box = {columns, static_cast<std::uint32_t>(t.box_rows),
              static_cast<std::uint32_t>(t.box_heads), 1};
  spec.swizzle = runtime::TensorMapSwizzle::b128;
  return remembered_map(spec, device);
}

AttentionMaps<runtime::TensorMap> dense_maps(const AttentionParams& p,
                                             const AttentionTraits& traits,
                                             const AttentionSm90Config& config,
                                             runtime::Device& device) {
  constexpr int kStoredRows = 16;  // a warp's
  const int d = traits.head_dim, dv = traits.head_dim_v;
  AttentionMaps<runtime::TensorMap> maps;
  maps.q = encode(
      {p.q, traits.q, d, p.len_q, p.heads, p.batch, p.q_row, p.q_head, p.q_batch, config.block_q},
      device);
  maps.k = encode({p.k, traits.k, d, p.len_kv, p.heads_kv, p.batch, p.k_row, p.k_head, p.k_batch,
                   config.block_kv},
                  device);
  maps.v = encode({p.v, traits.v, dv, p.len_kv, p.heads_kv, p.batch, p.v_row, p.v_head, p.v_batch,
                   config.block_kv},
                  device);
  maps.out = encode({p.out, traits.out, dv, p.len_q, p.heads, p.batch, p.out_row, p.out_head,
                     p.out_batch, kStoredRows},
                    device);
  return maps;
}

AttentionVarlenMaps<runtime::TensorMap> varlen_maps(const AttentionVarlenParams& params,
                                                    const AttentionTraits& traits,
                                                    const AttentionSm90Config& config,
                                                    runtime::Device& device) {
  const AttentionParams& p = params.call;
  const bool is_packed = params.packed_queries != 0;
  AttentionVarlenMaps<runtime::TensorMap> maps{};
  const DType queries = traits.byte_queries ? traits.k : traits.q;
  const int rows = is_packed ? params.tokens : p.len_q, entries = is_packed ? 1 : p.batch;
  if (groups_heads(config)) {
    // Heads stand where rows do elsewhere, and the other way round.
    maps.q = encode({p.q, queries, traits.head_dim, p.heads, rows, entries, p.q_head, p.q_row,
                     p.q_batch, params.tile_heads, params.tile_queries},
                    device);
  } else {
    maps.q = encode({p.q, queries, traits.head_dim, rows, p.heads, entries, p.q_row, p.q_head,
                     p.q_batch, config.block_q},
                    device);
  }
  const bool in_runs = params.run_rows != 0;
  const int box_rows = in_runs ? params.run_rows : params.box_rows;
  if (box_rows == 0) return maps;  // keys are gathered
  // In runs, a row of any page follows the one before it: where a page has one, it has their
  // stride.
  const int pages = in_runs ? 1 : params.entries_k;
  const int page_rows = in_runs ? params.entries_k * params.rows_k : params.rows_k;
  const bool are_pages = in_runs && params.rows_k == 1;
  maps.k = encode({p.k, traits.k, traits.head_dim, page_rows, p.heads_kv, pages,
                   are_pages ? p.k_batch : p.k_row, p.k_head, p.k_batch, box_rows},
                  device);
  maps.v = encode({p.v, traits.v, traits.head_dim_v, page_rows, p.heads_kv, pages,
                   are_pages ? p.v_batch : p.v_row, p.v_head, p.v_batch, box_rows},
                  device);
  return maps;
}

// The maps, then the arguments. The struct ends in padding to the maps' alignment.
template <class Maps>
std::span<const std::byte> pack(const Maps& maps, std::span<const std::byte> call,
                                ParameterBlock& block) {
  static_assert(sizeof(Maps) + CallArguments::kCapacity + 8 + alignof(Maps) <= sizeof block.bytes);
  block.begin<Maps>() = maps;
  std::memcpy(block.bytes.data() + sizeof(Maps), call.data(), call.size());
  const std::size_t size =
      (sizeof(Maps) + call.size() + alignof(Maps) - 1) / alignof(Maps) * alignof(Maps);
  return std::span(block.bytes).first(size);
}

}  // namespace

std::span<const std::byte> pack_attention_sm90(const CallArguments& arguments,
                                               const Specialization& spec, runtime::Device& device,
                                               ParameterBlock& block) {
  const std::span<const std::byte> call = arguments.bytes();
  const auto traits = spec.traits_as<AttentionTraits>();
  const AttentionSm90Config& config =
      attention_sm90_configs()[static_cast<std::size_t>(spec.row())];
  if (traits.storage == Storage::dense) {
    AttentionParams p;
    std::memcpy(&p, call.data(), sizeof p);
    return pack(dense_maps(p, traits, config, device), call, block);
  }
  AttentionVarlenParams p;
  std::memcpy(&p, call.data(), sizeof p);
  return pack(varlen_maps(p, traits, config, device), call, block);
}

}  // namespace kiln
