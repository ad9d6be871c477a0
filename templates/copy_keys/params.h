// The run-time arguments of the kernel that copies the keys and values of a cache ahead of
// attention, in 16 bits, and its launch arithmetic, shared by host and device.
#pragma once

namespace kiln {

constexpr int kCopyKeysThreads = 256;
constexpr int kCopiedRows = 64;  // of one head, which a CTA copies

// Call: AttentionVarlenParams, which say where the bytes lie, as attention itself would read them,
// and how many keys each sequence has.
template <class Call>
struct CopyKeysParams {
  Call call;
  void* k;                   // [batch, heads_kv, rows, head_dim], contiguous; 16-byte aligned
  void* v;                   // [batch, heads_kv, rows, head_dim_v], likewise
  int rows;                  // no sequence has more keys, its padding included
  int head_dim, head_dim_v;  // multiples of the elements of 16 bytes of the cache
  int reach;                 // keys before the first query's own that attention may read
};

constexpr long long copy_keys_ctas(long long batch, long long heads_kv, long long rows) {
  return batch * heads_kv * ((rows + kCopiedRows - 1) / kCopiedRows);
}

}  // namespace kiln
