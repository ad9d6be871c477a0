// The run-time arguments of the attention kernels and their launch arithmetic, shared by host and
// device. Strides are in elements; the innermost dimension of every tensor is contiguous.
#pragma once

namespace kiln {

struct AttentionParams {
  const void* q;  // [batch, len_q, heads, head_dim] with the strides below
  const void* k;  // [batch, len_kv, heads_kv, head_dim]
  const void* v;  // [batch, len_kv, heads_kv, head_dim_v]
  void* out;      // [batch, len_q, heads, head_dim_v]
  float* lse;     // [batch, heads, len_q], natural logarithm; null if not wanted
  long long q_batch, q_row, q_head;
  long long k_batch, k_row, k_head;
  long long v_batch, v_row, v_head;
  long long out_batch, out_row, out_head;
  long long lse_batch, lse_head;
  int batch, heads, heads_kv, len_q, len_kv;
  float scale;               // any finite value; the kernel moves its sign to q
  void* workspace;           // attention_workspace_bytes() bytes; unused if splits is 1
  unsigned long long nonce;  // the launch's nonce, never 0; see base/ticket.cuh
  int splits;                // CTAs that share the keys of a query tile, at least 1
  int heads_paired;          // sm_90a: see sm90/schedule.cuh; -1: tiles are dealt head by head
};
static_assert(sizeof(AttentionParams) % 8 == 0, "the variant's 8-byte slots follow this struct");

// Head dims are padded to a multiple of 16, one tensor-core step, in shared memory only.
constexpr int attention_padded_dim(int head_dim) { return (head_dim + 15) / 16 * 16; }

// A partial result in fp32 is, for each row, the unnormalised outputs, the maximum and the sum.
constexpr int attention_partial_floats(int block_q, int head_dim_v) {
  return block_q * (attention_padded_dim(head_dim_v) + 4);
}

// Dynamic shared memory of one CTA: the Q tile, `stages` K and V tiles for each team, and what
// partners exchange, with elements of `element_bytes` bytes and keys of `key_bytes`, of which 1
// needs a factor for each query row. The epilogue reuses it for the output tile or, with `splits`,
// for the teams' partial results.
constexpr int attention_shared_bytes(int head_dim, int head_dim_v, int block_q, int block_kv,
                                     int stages, int teams, int partners, bool splits,
                                     int element_bytes, int key_bytes) {
  const int dim = attention_padded_dim(head_dim), dim_v = attention_padded_dim(head_dim_v);
  const int exchanged = (partners > 1 ? block_q * (element_bytes * block_kv + 4 * partners) : 0) +
                        (key_bytes == 1 ? block_q * 4 : 0);
  const int keys = teams * stages * block_kv * (dim + dim_v);
  const int inputs = element_bytes * block_q * dim + key_bytes * keys + exchanged;
  const int outputs = splits ? 4 * teams * attention_partial_floats(block_q, head_dim_v)
                             : element_bytes * block_q * dim_v;
  return inputs > outputs ? inputs : outputs;
}

// Counts the query tiles of a launch. A packed tile holds rows of all heads that share a KV head.
constexpr long long attention_tiles(long long batch, long long heads, long long heads_kv,
                                    long long len_q, int block_q, bool packed) {
  const long long rows = packed && heads_kv > 0 ? len_q * (heads / heads_kv) : len_q;
  return batch * (packed ? heads_kv : heads) * ((rows + block_q - 1) / block_q);
}

// The workspace of a launch with splits: 8 bytes for each (query tile, split), of which the first
// is the tile's counter, see base/ticket.cuh. Where more than kMostJoinedAtOnce splits meet, the
// first of each group of them is the group's, and the second of all is the tile's. Then the partial
// results.
constexpr long long attention_flag_bytes(long long tiles, int splits) {
  return (tiles * splits * 8 + 15) / 16 * 16;
}
constexpr long long attention_workspace_bytes(long long tiles, int splits, int block_q,
                                              int head_dim_v) {
  if (splits == 1) return 0;
  return attention_flag_bytes(tiles, splits) +
         tiles * splits * attention_partial_floats(block_q, head_dim_v) * 4;
}

// The number of which a head's elements are multiples, at `at` plus strides, which may be 0;
// null: 1.
struct AttentionScale {
  const float* at;
  long long batch, head;
};

// x / by is x * factor >> 31 + shift, for 0 <= x < 2^31.
struct AttentionDivisor {
  int by;
  unsigned factor;
  int shift;
};
// Where the keys of a sequence are spread over devices, see varlen/spread.cuh: the device's key j
// is at position j / run * round + first + j % run.
struct AttentionSpread {
  const int* totals;  // [batch]: how many keys a sequence has on all devices
  AttentionDivisor run, round;
  int first;
};

// The arguments of calls whose sequences have lengths of their own, which lie in device memory: the
// host knows bounds alone. Of `call`, batch is the number of sequences. Queries are packed,
// [tokens, heads, head_dim] with batch strides of 0, or every sequence has len_q of them at its
// batch stride. k_batch and v_batch are the strides of a cache's entries or, paged, of pages.
struct AttentionVarlenParams {
  AttentionParams call;
  const int* cu_seqlens_q;  // [batch + 1]: the first query of each sequence; null: not packed
  const int* cu_seqlens_k;  // [batch + 1]: likewise its keys. Paged, they only tell the lengths
  const int* seqused_k;     // [batch]: how many keys it has; null: see cu_seqlens_k, else len_kv
  const int* block_table;   // [batch, ..]: the pages of its keys, of page.by keys each
  long long block_table_row;
  // [rows + 1]: where each row of block_table begins, which is then one list and has a
  // block_table_row of 1; or null.
  const int* kv_indptr;
  // [batch]: the entry of the cache, or the row of block_table, that it has; null: its own number.
  const int* cache_batch_idx;
  const int* cache_leftpad;  // [batch]: how many keys, counted in seqused_k, are none; null: 0
  AttentionDivisor page;     // keys of a page
  // The launch computes sequences of so many rows, queries times the query heads of a KV head.
  int least_rows, most_rows;
  // A CTA computes whole query tiles: no two share the keys of one. The order of additions then
  // does not depend on other sequences.
  int whole_tiles;
  int few_ctas;            // CTAs that are enough to keep all multiprocessors busy
  AttentionDivisor group;  // query heads of a KV head
  // A launch of one sequence, whose rows fit a query tile or, on sm_90a, whose tiles are as many as
  // the bound of its queries says: the CTAs that a tile's keys may be spread over. 0: CTAs share
  // the work as varlen/deal.cuh or sm90/sequence_shares.cuh finds out.
  AttentionDivisor alone;
  int alone_whole;  // on sm_90a, the first tiles of such a launch, which are not: some for each CTA
  int new_keys;     // of each sequence, beside seqused_k
  int packed_keys;  // k and v are packed: cu_seqlens_k also tells where they are
  // The copy engine copies so many rows of a page at a time to the sm_90a kernel: a power of two
  // that divides page.by and the tile. 0: warps gather them, see sm90/gather.cuh.
  int box_rows;
  // Where warps gather rows, the copy engine copies so many that follow one another in memory at a
  // time, an equal share of a tile for each of the warps. 0: each row is gathered.
  int run_rows;
  // They count in places: row r of page p has place p * page_places + r * row_places of keys and
  // values alike. Places are so many pieces of 16 bytes apart, of which 32 bits count all.
  unsigned page_places, row_places, key_pieces, value_pieces;
  // The tensor maps alone are made from these: the number of all packed queries; the rows of a
  // batch entry or page of the keys, or all packed keys; the number of batch entries or pages.
  int tokens, rows_k, entries_k;
  int packed_queries;
  AttentionScale q_scale, k_scale, v_scale;  // of a quantised cache, [batch, heads_kv]
  AttentionSpread spread;
  const float* out_scale;  // of quantised outputs, which are divided by it
  // The plan: for each CTA, entries of kAttentionPlanWords that another launch has written, the
  // first at plan_begin; null: none. plan_key is a digest of all that shares depend on except the
  // lengths; a kernel traps where the plan has another.
  unsigned* plan;
  unsigned long long plan_key;
  int plan_begin;
  // The tile for which the launch that makes the plan deals.
  int plan_block_q, plan_block_kv, plan_step_keys;
  // A query tile of the sm_90a kernel has rows of so many heads, one or all of a KV head, heads
  // innermost: x / tile_heads is x * tile_heads_factor >> 16 for its rows x, and it has
  // tile_queries queries of each head. Rows that are left over, where tile_heads is no divisor of
  // the tile's, stay empty.
  int tile_heads, tile_heads_factor, tile_queries;
};
// Either argument block begins with what all calls have.
constexpr const AttentionParams& call_of(const AttentionParams& params) { return params; }
constexpr const AttentionParams& call_of(const AttentionVarlenParams& params) {
  return params.call;
}
static_assert(sizeof(AttentionVarlenParams) % 8 == 0, "the variant's 8-byte slots follow");

// Bounds the query tiles of a launch: tiles of `block_q` rows of all heads that share a KV head, of
// `batch` sequences of `tokens` queries in all.
constexpr long long attention_varlen_tiles(long long batch, long long tokens, long long heads,
                                           long long heads_kv, int block_q) {
  if (heads_kv == 0) return 0;
  const long long whole = tokens * (heads / heads_kv) / block_q;
  return heads_kv * (whole + batch);
}

// A CTA of an sm_90a kernel has no fewer keys of a tile where a launch has one sequence.
constexpr int kAttentionLeastAloneKeys = 384;

// What a query tile costs beside its keys, in steps of keys, where CTAs get equal shares of all.
constexpr int kAttentionVarlenEnds = 4;

// The words of an entry of a plan, aligned to 16 bytes. A CTA reads one; where CTAs of the sm_90a
// kernel share keys, one for each of its pieces, of which so many have one: two that others share,
// and whole tiles between them.
constexpr int kAttentionPlanWords = 16;
constexpr int kAttentionPlannedPieces = 4;

// The workspace of a launch of `ctas` CTAs: a CTA has at most two partial results, of the query
// tile that it begins with and of the one that it ends with. See varlen/work.cuh.
constexpr long long attention_varlen_workspace_bytes(long long ctas, int block_q, int head_dim_v) {
  return attention_workspace_bytes(ctas, 2, block_q, head_dim_v);
}

// The sm_90a kernels also take tensor maps of q, k, v and out as [batch, heads, rows, columns] with
// boxes of 64 columns. A Map is 128 opaque bytes, aligned to 64, as a device encodes them.
template <class Map>
struct AttentionMaps {
  Map q, k, v, out;
};
// Where sequences have lengths of their own: as [batch or 1, heads, rows, columns] or, paged,
// [pages, heads, rows, columns], whose boxes have box_rows rows, or [1, heads, rows of all pages,
// columns], whose boxes have run_rows. Outputs are written from registers, because the copy engine
// would write rows behind a sequence too.
template <class Map>
struct AttentionVarlenMaps {
  Map q, k, v;
};

// The warps of an sm_90a kernel that gather rows of pages: see run_rows.
constexpr int kAttentionGatheringWarps = 2;

constexpr int kAttentionWalkStages = 4, kAttentionWalkBytes = 96;
constexpr int kAttentionScheduleBytes = 144;  // where sequences have lengths of their own
// The sm_90a kernel for sequences with lengths of their own deals tiles by a counter in the
// workspace, see base/draw.cuh.
constexpr int kAttentionDrawBytes = 16;

// The factors of an sm_90a kernel: elements of 16 bits; bytes of a quantised cache that become
// f16, see sm90/convert.cuh; or bytes of queries, keys and values alike, see sm90/transpose.cuh.
enum class AttentionFactors : unsigned char { halves, widened, bytes };

// Dynamic shared memory of one CTA of an sm_90a kernel, see sm90/shape.cuh. Rows are stored in
// slabs of 128 bytes. Where bytes are widened, those of a tile of keys and of one of values are
// there too, and a factor for each row of Q. Where they are multiplied, values are there as they
// are, in stages of their own, and transposed: a row for each of their columns, in slabs of 128
// keys. `tilts`: a row of kAttentionTiltBytes for each key and eight for each stage of Q, see
// sm90/tilt.cuh; and behind those of the keys as much again where there is room, since
// compute-sanitizer takes operands of wgmma for contiguous and reports what would lie behind.
constexpr int attention_sm90_raw_row_bytes(int head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}
constexpr int kAttentionRawStages = 2, kAttentionTiltBytes = 16;
constexpr int kAttentionSm90MostShared = 227 * 1024;
constexpr int attention_sm90_shared_bytes(int head_dim, int head_dim_v, int block_q, int block_kv,
                                          int stages, int q_stages, bool staged_output,
                                          AttentionFactors factors, bool tilts) {
  const bool are_bytes = factors == AttentionFactors::bytes;
  const int columns = are_bytes ? 128 : 64;
  const int slabs = (head_dim + columns - 1) / columns;
  const int slabs_v = (head_dim_v + columns - 1) / columns;
  const int transposed = attention_padded_dim(head_dim_v) * ((block_kv + 127) / 128);
  const int value_rows = are_bytes ? stages * transposed + kAttentionRawStages * block_kv * slabs_v
                                   : stages * block_kv * slabs_v;
  const int rows = q_stages * block_q * slabs + stages * block_kv * slabs + value_rows +
                   (staged_output ? block_q * slabs_v : 0);
  const int gathered = factors == AttentionFactors::halves ? stages : 0;
  const int rings = q_stages + 2 * stages + gathered + kAttentionWalkStages +
                    (are_bytes ? kAttentionRawStages : 0);
  const int raw = attention_sm90_raw_row_bytes(head_dim) + attention_sm90_raw_row_bytes(head_dim_v);
  const int converted =
      factors == AttentionFactors::widened ? block_kv * raw + q_stages * block_q * 4 : 0;
  const int behind =
      16 * (rings + 1) + kAttentionWalkStages * kAttentionWalkBytes + kAttentionScheduleBytes;
  const int places = block_kv * kAttentionTiltBytes;
  const int used =
      rows * 128 + converted + behind + (tilts ? places + 8 * q_stages * kAttentionTiltBytes : 0);
  const int room = kAttentionSm90MostShared - used, missing = places - behind;
  return used + (tilts && room > 0 && missing > 0 ? (missing < room ? missing : room) : 0);
}

}  // namespace kiln
