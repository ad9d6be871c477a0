// The run-time arguments of the kernel that turns the keys and values of a quantised cache into 16
// bits ahead of attention, and its launch arithmetic, shared by host and device.
#pragma once

namespace kiln {

constexpr int kWidenThreads = 256;
constexpr int kWidenedRows = 64;  // of one head, which a CTA widens

// Call: AttentionVarlenParams, which say where the bytes lie, as attention itself would read them,
// and how many keys each sequence has.
template <class Call>
struct WidenKeysParams {
  Call call;
  void* k;                   // [batch, heads_kv, rows, head_dim], contiguous; 16-byte aligned
  void* v;                   // [batch, heads_kv, rows, head_dim_v], likewise
  int rows;                  // no sequence has more keys, its padding included
  int head_dim, head_dim_v;  // multiples of 16
  int reach;                 // keys before the first query's own that attention may read
};

constexpr long long widen_keys_ctas(long long batch, long long heads_kv, long long rows) {
  return batch * heads_kv * ((rows + kWidenedRows - 1) / kWidenedRows);
}

}  // namespace kiln
