// The run-time arguments of the attention kernels and their launch arithmetic, shared by host and
// device. Strides are in elements; the innermost dimension of every tensor is contiguous.
#pragma once

namespace kiln {

struct AttentionParams {
  const void* q;  // [batch, len_q, heads, head_dim] through the strides below
  const void* k;  // [batch, len_kv, heads_kv, head_dim]
  const void* v;  // [batch, len_kv, heads_kv, head_dim_v]
  void* out;      // [batch, len_q, heads, head_dim_v]
  float* lse;     // [batch, heads, len_q], natural logarithm; null when not wanted
  long long q_batch, q_row, q_head;
  long long k_batch, k_row, k_head;
  long long v_batch, v_row, v_head;
  long long out_batch, out_row, out_head;
  long long lse_batch, lse_head;
  int batch, heads, heads_kv, len_q, len_kv;
  float scale;  // any finite value; the kernel moves its sign to q
};
static_assert(sizeof(AttentionParams) % 8 == 0, "the variant's 8-byte slots follow this struct");

// Head dims are padded to the 16 of one tensor-core step, in shared memory only.
constexpr int attention_padded_dim(int head_dim) { return (head_dim + 15) / 16 * 16; }

// Dynamic shared memory of one CTA: the Q tile, one K tile and one V tile of 16-bit elements.
constexpr int attention_shared_bytes(int head_dim, int head_dim_v, int block_q, int block_kv) {
  return 2 * ((block_q + block_kv) * attention_padded_dim(head_dim) +
              block_kv * attention_padded_dim(head_dim_v));
}

// CTAs of a launch, in one grid dimension: query tiles of all heads of all batch entries.
constexpr long long attention_grid(int batch, int heads, int len_q, int block_q) {
  return static_cast<long long>(batch) * heads * ((len_q + block_q - 1) / block_q);
}

}  // namespace kiln
