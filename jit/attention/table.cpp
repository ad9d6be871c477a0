// The closed table of attention's tiles.
#include "jit/attention/config.h"

namespace kiln {
namespace {

// Within a group of head dims and kinds, the first row that fits the arch is taken. H200 figures.
//
// Registers a thread: the accumulator of O takes head_dim_v / 2 for each 16 query rows of its warp,
// S block_kv / 2. 32 rows a warp halve the shared-memory reads of K and V, the tightest unit after
// the tensor cores, but leave room only up to head dim 128. Two CTAs of four warps that overlap
// each other's softmax beat one of eight at every head dim.
// clang-format off: two or three lines a row instead of twelve
constexpr AttentionConfig kConfigs[] = {
    // Up to 16 rows of all the heads that share a KV head: decode.
    {.min_dim = 16, .max_dim = 64, .block_q = 16, .block_kv = 32, .warps = 4, .teams = 4,
     .stages = 3, .splits = true, .residents = 2, .work = Work::gather,
     .reason = "decode: a warp streams keys by itself, 64 KB a "
               "multiprocessor under way; 4.05 TB/s"},
    {.min_dim = 16, .max_dim = 64, .block_q = 16, .block_kv = 32, .warps = 4, .teams = 4,
     .stages = 2, .splits = true, .residents = 1, .work = Work::gather,
     .reason = "the same in 68 KB"},
    {.min_dim = 80, .max_dim = 128, .block_q = 16, .block_kv = 16, .warps = 4, .teams = 4,
     .stages = 3, .splits = true, .residents = 2, .work = Work::gather,
     .reason = "decode: a warp streams keys by itself, 64 KB a "
               "multiprocessor under way; 4.45 TB/s"},
    {.min_dim = 80, .max_dim = 128, .block_q = 16, .block_kv = 16, .warps = 4, .teams = 4,
     .stages = 2, .splits = true, .residents = 1, .work = Work::gather,
     .reason = "the same in 68 KB"},
    {.min_dim = 144, .max_dim = 256, .block_q = 16, .block_kv = 16, .warps = 4, .teams = 4,
     .stages = 2, .splits = true, .residents = 1, .work = Work::gather,
     .reason = "decode: 64 KB under way with one CTA; 4.06 TB/s"},
    {.min_dim = 144, .max_dim = 256, .block_q = 16, .block_kv = 16, .warps = 2, .teams = 2,
     .stages = 2, .splits = true, .residents = 1, .work = Work::gather,
     .reason = "the same in 72 KB"},
    // The same for sequences with lengths of their own, where what a warp does beside its products
    // weighs more: twice the warps.
    {.min_dim = 16, .max_dim = 64, .block_q = 16, .block_kv = 32, .warps = 8, .teams = 8,
     .stages = 3, .splits = true, .residents = 1, .work = Work::gather,
     .reason = "few tiles: 0.75 to 0.94 of the time of four warps at 16x8k"},
    {.min_dim = 80, .max_dim = 128, .block_q = 16, .block_kv = 16, .warps = 8, .teams = 8,
     .stages = 3, .splits = true, .residents = 1, .work = Work::gather,
     .reason = "few tiles: 0.78 to 0.92 of the time of four warps at 16x8k"},
    {.min_dim = 16, .max_dim = 64, .block_q = 32, .block_kv = 32, .warps = 8, .teams = 8,
     .stages = 3, .splits = true, .residents = 1, .work = Work::medium,
     .reason = "up to 32 rows: as 32x16x3"},
    {.min_dim = 80, .max_dim = 128, .block_q = 32, .block_kv = 16, .warps = 8, .teams = 8,
     .stages = 3, .splits = true, .residents = 1, .work = Work::medium,
     .reason = "up to 32 rows: 1.02 of the time of 4 rows, 64x64x2 takes 1.16"},
    // And up to 64, in teams of two warps.
    {.min_dim = 16, .max_dim = 64, .block_q = 64, .block_kv = 64, .warps = 8, .teams = 4,
     .stages = 3, .splits = true, .residents = 1, .work = Work::medium,
     .reason = "up to 64 rows: as 64x16x5"},
    {.min_dim = 80, .max_dim = 128, .block_q = 64, .block_kv = 16, .warps = 8, .teams = 4,
     .stages = 5, .splits = true, .residents = 1, .work = Work::medium,
     .reason = "up to 64 rows: 0.87 of the time of 64x64x2, in pages 0.91"},
    // Up to 64 such rows, or any number of rows where wide tiles leave multiprocessors idle.
    {.min_dim = 16, .max_dim = 64, .block_q = 64, .block_kv = 64, .warps = 4, .stages = 2,
     .splits = true, .residents = 2, .work = Work::gather,
     .reason = "a few queries: 16 rows a warp"},
    {.min_dim = 80, .max_dim = 128, .block_q = 64, .block_kv = 64, .warps = 4, .stages = 2,
     .splits = true, .residents = 2, .work = Work::gather,
     .reason = "a few queries: 16 rows a warp"},
    {.min_dim = 80, .max_dim = 128, .block_q = 64, .block_kv = 64, .warps = 4, .stages = 1,
     .splits = true, .residents = 1, .work = Work::gather,
     .reason = "the same in 48 KB"},
    {.min_dim = 144, .max_dim = 192, .block_q = 64, .block_kv = 64, .warps = 4, .stages = 1,
     .splits = true, .residents = 1, .work = Work::medium,
     .reason = "a few queries"},
    {.min_dim = 256, .max_dim = 256, .block_q = 64, .block_kv = 64, .warps = 4, .partners = 2,
     .stages = 1, .splits = true, .residents = 2, .work = Work::medium, .dense = true,
     .spills_on = 10,
     .reason = "a few queries: 32 rows for two warps"},
    {.min_dim = 208, .max_dim = 256, .block_q = 64, .block_kv = 64, .warps = 4, .stages = 1,
     .splits = true, .residents = 1, .work = Work::medium, .dense = true,
     .reason = "a few queries"},
    {.min_dim = 144, .max_dim = 256, .block_q = 64, .block_kv = 32, .warps = 4, .stages = 2,
     .splits = true, .residents = 1, .work = Work::heavy,
     .reason = "a few queries, heavy code"},
    {.min_dim = 144, .max_dim = 256, .block_q = 64, .block_kv = 16, .warps = 4, .stages = 2,
     .splits = true, .residents = 1, .work = Work::gather,
     .reason = "a few queries: 32 keys spill with a mask on sm_90"},
    // Many queries that see few keys: all tiles are masked, and what happens before the first and
    // after the last weighs as much as they do, so that more and smaller CTAs hide each other's.
    {.min_dim = 16, .max_dim = 64, .block_q = 64, .block_kv = 32, .warps = 2, .stages = 3,
     .residents = 2, .work = Work::light, .masks = Masks::some, .max_keys = 512,
     .reason = "windows up to 512: 0.69 of 128x96's time at 128 keys, 0.90 at 512"},
    {.min_dim = 80, .max_dim = 128, .block_q = 64, .block_kv = 32, .warps = 2, .stages = 2,
     .residents = 2, .work = Work::light, .masks = Masks::some, .max_keys = 256,
     .reason = "windows up to 256: 0.90 to 0.98 of 128x64's time at 128 keys"},
    // Many queries.
    {.min_dim = 16, .max_dim = 64, .block_q = 128, .block_kv = 128, .warps = 4, .stages = 1,
     .residents = 2, .work = Work::light, .masks = Masks::none, .spills_on = 12,
     .reason = "32 rows a warp, S of 128 registers: 353 TFLOP/s at 4k, 128x96 reaches 344"},
    {.min_dim = 16, .max_dim = 64, .block_q = 128, .block_kv = 96, .warps = 4, .stages = 2,
     .residents = 2, .work = Work::light, .masks = Masks::some,
     .reason = "128 keys would spill with a mask; 312 TFLOP/s causal at 4k, "
               "one stage of 112 keys 301"},
    {.min_dim = 16, .max_dim = 64, .block_q = 128, .block_kv = 96, .warps = 4, .stages = 2,
     .residents = 2, .work = Work::medium, .since = 90,
     .reason = "the same with code at every logit"},
    {.min_dim = 16, .max_dim = 64, .block_q = 128, .block_kv = 64, .warps = 4, .stages = 2,
     .residents = 1, .work = Work::heavy,
     .reason = "room for the user's code"},
    {.min_dim = 16, .max_dim = 64, .block_q = 64, .block_kv = 64, .warps = 4, .stages = 2,
     .residents = 2, .work = Work::gather,
     .reason = "16 rows a warp: room for the loads of a mask"},
    {.min_dim = 80, .max_dim = 128, .block_q = 128, .block_kv = 64, .warps = 4, .stages = 2,
     .residents = 2, .work = Work::light, .spills_on = 10,
     .reason = "32 rows a warp, two stages: 385 TFLOP/s at 4k; 128x32 355, 64x64 314"},
    {.min_dim = 80, .max_dim = 128, .block_q = 128, .block_kv = 48, .warps = 4, .stages = 2,
     .residents = 2, .work = Work::medium, .since = 90, .spills_on = 10,
     .reason = "code at every logit, where 64 keys spill with ALiBi"},
    {.min_dim = 80, .max_dim = 128, .block_q = 128, .block_kv = 48, .warps = 4, .stages = 2,
     .residents = 2, .work = Work::light, .spills_on = 10,
     .reason = "80 KB: two CTAs on sm_80"},
    {.min_dim = 80, .max_dim = 128, .block_q = 128, .block_kv = 32, .warps = 4, .stages = 2,
     .residents = 2, .work = Work::light, .since = 100,
     .reason = "room for ptxas on sm_100, which spills the wider tiles; not measured there"},
    {.min_dim = 80, .max_dim = 128, .block_q = 128, .block_kv = 32, .warps = 4, .stages = 2,
     .residents = 2, .work = Work::pairs, .since = 90,
     .reason = "room for a mask by pairs: 0.87 of 64x64's time at 2k, 48 keys spill"},
    {.min_dim = 80, .max_dim = 128, .block_q = 64, .block_kv = 64, .warps = 4, .stages = 1,
     .residents = 2, .work = Work::gather,
     .reason = "16 rows a warp: room for the user's code; two CTAs even in 100 KB"},
    {.min_dim = 144, .max_dim = 192, .block_q = 64, .block_kv = 64, .warps = 4, .stages = 1,
     .residents = 1, .work = Work::medium,
     .reason = "16 rows a warp; one stage, so that two CTAs fit"},
    {.min_dim = 256, .max_dim = 256, .block_q = 64, .block_kv = 64, .warps = 4, .partners = 2,
     .stages = 1, .residents = 2, .work = Work::medium,
     .reason = "32 rows for two warps, each with half of O's columns: 331 "
               "TFLOP/s at 4k; 16 rows a warp 314"},
    {.min_dim = 208, .max_dim = 256, .block_q = 64, .block_kv = 64, .warps = 4, .stages = 1,
     .residents = 1, .work = Work::medium,
     .reason = "16 rows a warp; one stage, so that two CTAs fit: 314 "
               "TFLOP/s at 4k, two stages of 32 286"},
    {.min_dim = 144, .max_dim = 256, .block_q = 64, .block_kv = 32, .warps = 4, .stages = 1,
     .residents = 1, .work = Work::gather,
     .reason = "room for the user's code"},
};
// clang-format on

}  // namespace

std::span<const AttentionConfig> attention_configs() { return kConfigs; }

}  // namespace kiln
