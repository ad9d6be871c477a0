// Appends keys and values to a paged cache, with what a model does to them and to its queries
// before.
#pragma once

#include <optional>
#include <string>

#include "kiln/export.h"
#include "kiln/plan.h"
#include "kiln/status.h"
#include "kiln/tensor.h"

namespace KILN_PUBLIC kiln {

struct AppendKvOptions {
  // f32, one for all heads ([] or [1]) or [heads_kv]: what elements of a quantised cache are
  // multiples of. Positive; default 1. Other caches have none.
  TensorView k_scale{};
  TensorView v_scale{};
  // [tokens, heads, head_dim] in key's dtype: normed and rotated as keys are, and written to
  // query_out, which may be query's own memory.
  TensorView query{};
  TensorView query_out{};
  // [head_dim], of one dtype, f16, bf16 or f32: the weights of RMS norms over each head of queries
  // and of keys, which come before the rotation. Without them nothing is normed.
  TensorView q_weight{};
  TensorView k_weight{};
  float eps = 1e-6f;  // added to the mean of the squares
  // The rotary embedding: positions, i32 or i64, and tables [max_position, angles] in f32 or key's
  // dtype, of which each position takes a row. The first 2 * angles elements of a head rotate, the
  // rest does not.
  TensorView positions{};
  TensorView cos{};
  TensorView sin{};
  bool interleaved = false;  // elements 2i and 2i + 1 rotate together, not i and i + angles
};

// For each token t of slot_mapping, i64 [tokens], writes key[t] and value[t] into slot
// slot_mapping[t] of the caches: page slot / page_size, place slot % page_size. A slot outside of
// the cache, such as -1, is not written. `key` is [tokens, heads_kv, head_dim] and `value` [tokens,
// heads_kv, head_dim_v], f16 or bf16; they, query and positions may have more tokens than
// slot_mapping, which are neither read nor written. The caches are [pages, page_size, heads_kv,
// head_dim] and [.., head_dim_v], both in key's dtype, or quantised: f8_e4m3 and f8_e5m2, which
// saturate, or i8, where NaN becomes 0. A quantised element is x / scale, rounded to nearest even.
//
// Head dims are even and at most 512. The last stride of each tensor is 1 (of positions,
// slot_mapping and scales it is free), and all other strides are free, so the caches may interleave
// with each other. Two tokens with one slot leave it undefined which of them each element there is
// of. A position outside of the tables takes their nearest row.
//
// Everything is computed in f32 and rounded once. What is not normed, rotated or quantised keeps
// its bits. One launch does it all; the same inputs give the same bits in every batch.
void append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
               const TensorView& v_cache, const TensorView& slot_mapping,
               const AppendKvOptions& options = {}, void* stream = nullptr);
Status try_append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
                     const TensorView& v_cache, const TensorView& slot_mapping,
                     const AppendKvOptions& options = {}, void* stream = nullptr) noexcept;

// A contiguous view with the shape of query_out and a null pointer.
TensorView append_kv_query_out(const TensorView& query);

// Plan::launch takes the pointers of those of key, value, k_cache, v_cache, slot_mapping, query,
// query_out, q_weight, k_weight, positions, cos, sin, k_scale and v_scale that were given to the
// plan function. If all planned pointers and strides were multiples of 16 bytes (null pointers
// count as such), the new pointers must be multiples of 16 bytes, too; else of what all of them
// were multiples of, which is at least the element's size.
Plan plan_append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
                    const TensorView& v_cache, const TensorView& slot_mapping,
                    const AppendKvOptions& options = {});
// `plan` is empty unless the Status is ok.
Status try_plan_append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
                          const TensorView& v_cache, const TensorView& slot_mapping,
                          const AppendKvOptions& options, std::optional<Plan>& plan) noexcept;

// Tells as JSON what a call would run, without running it: see explain in kiln/control.h.
std::string explain_append_kv(const TensorView& key, const TensorView& value,
                              const TensorView& k_cache, const TensorView& v_cache,
                              const TensorView& slot_mapping, const AppendKvOptions& options);

}  // namespace KILN_PUBLIC kiln
