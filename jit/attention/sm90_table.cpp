// The closed table of the sm_90a kernels' tiles.
#include "jit/attention/sm90_config.h"

namespace kiln {
namespace {

// The first row that serves the call is taken. H200 figures.
//
// Registers a thread: S takes block_kv / 2, the weights block_kv / 4, O head_dim_v / 2. Three math
// warpgroups have 160 each, 136 beside one that widens, two 232. Shared memory is 227 KB.
// clang-format off: two or three lines a row instead of twelve
constexpr AttentionSm90Config kSm90Configs[] = {
    {.min_dim = 8, .max_dim = 64, .max_dim_v = 64, .block_q = 128, .block_kv = 64, .stages = 4,
     .q_stages = 2, .staged_output = true, .turns = true, .work = Work::light, .masks = Masks::some,
     .max_keys = 512, .unless_fills = 192, .speed = 70,
     .reason = "masks, up to 512 keys: half of a tile of 128 keys lies behind the diagonal"},
    {.min_dim = 8, .max_dim = 64, .max_dim_v = 64, .block_q = 192, .block_kv = 64, .stages = 3,
     .q_stages = 2, .staged_output = true, .turns = true, .work = Work::light, .masks = Masks::some,
     .blocks = Blocks::read, .max_keys = 256, .speed = 90,
     .reason = "windows up to 256 keys: 195 us for 128 of them, tiles of 128 keys 266 us; BlockMasks that "
               "read tensors: 8 documents of 4k tokens 521 us, with 128 keys 618 us"},
    {.min_dim = 8, .max_dim = 64, .max_dim_v = 64, .block_q = 128, .block_kv = 128, .stages = 3,
     .q_stages = 2, .staged_output = true, .turns = true, .work = Work::light, .masks = Masks::some,
     .max_keys = 1024, .unless_fills = 192, .speed = 85,
     .reason = "masks, up to 1k keys: 192 rows pad 1k to 1152; where they pad little, 1.15 times"},
    {.min_dim = 8, .max_dim = 64, .max_dim_v = 64, .block_q = 192, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = true, .turns = true, .work = Work::light,
     .reason = "three warpgroups hide the exponents of one behind the products of the others"},
    {.min_dim = 8, .max_dim = 64, .max_dim_v = 64, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = true, .turns = true, .work = Work::heavy,
     .reason = "two warpgroups leave registers for code at every logit"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = true, .turns = false, .work = Work::medium,
     .masks = Masks::none, .pages = Pages::none, .max_keys = 1024, .speed = 90,
     .reason = "up to 1k keys: Q twice, and the output beside it, hide the ends of tiles"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 64, .stages = 3,
     .q_stages = 2, .staged_output = true, .turns = false, .work = Work::light,
     .masks = Masks::some, .pages = Pages::none, .windows = true, .max_keys = 448, .speed = 80,
     .reason = "windows up to 448 keys: 256 take 1.07 to 1.10 times as long with 128x128x2, 384 1.00 to "
               "1.03 times with 192x64x2"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 192, .block_kv = 64, .stages = 2,
     .q_stages = 2, .staged_output = true, .turns = true, .work = Work::light,
     .masks = Masks::some, .pages = Pages::none, .windows = true, .reads = true,
     .blocks = Blocks::any, .max_keys = 1536, .max_keys_read = 8192, .speed = 95,
     .reason = "windows up to 1.5k keys: 512 take 1.01 to 1.03 times as long with 128x64x3, 1024 1.02 "
               "to 1.03 times with 192x80x2, 1400 0.99 to 1.00 times; documents, which begin anywhere, up "
               "to 8k, and BlockMasks: 8 documents of 4k tokens 183 us, with 128x128x2 191 us, with "
               "192x80x2 209 us, one 428, 430 and 423 us"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = true, .turns = false, .work = Work::medium,
     .masks = Masks::some, .pages = Pages::none, .max_keys = 1536, .max_keys_read = 8192,
     .unless_fits = 192, .speed = 90,
     .reason = "masks, up to 1.5k keys, unless 192 rows pad no more: 1344 causal queries take "
               "1.11 times as long as with 192x80x2, 1536 1.04, 1408 0.92; documents with a bias by "
               "distance up to 8k"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 192, .block_kv = 80, .stages = 3,
     .q_stages = 2, .staged_output = true, .turns = true, .work = Work::medium,
     .pages = Pages::only, .min_keys = 1537,
     .reason = "pages: 2k, 3k and 8k x 64k take 1.04, 1.06 and 1.05 times as long with 128x128x3, 1k 0.96; "
               "those of 1 that follow one another 1.08 to 1.14 times. Before gathering became "
               "faster, it took 0.90 to 0.94 times as long with 128x128x3, and 1.11 to 1.13 times with two stages"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 3,
     .q_stages = 1, .staged_output = false, .turns = false, .work = Work::medium,
     .pages = Pages::only, .speed = 94,
     .reason = "few keys in pages; two stages and Q twice take 1.05 times as long, and 1.10 where pages are "
               "gathered"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 192, .block_kv = 80, .stages = 2,
     .q_stages = 2, .staged_output = true, .turns = true, .work = Work::medium, .pages = Pages::none,
     .reason = "three warpgroups: 717 TFLOP/s at 16k causal, two of 128 keys 650"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 96, .stages = 2,
     .q_stages = 2, .staged_output = true, .turns = false, .work = Work::heavy,
     .reason = "with 128 keys, a float32 attn_mask spills 36 bytes"},
    {.min_dim = 8, .max_dim = 192, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 1, .staged_output = false, .turns = true, .work = Work::heavy,
     .reason = "wide keys, narrow values"},
    {.min_dim = 8, .max_dim = 192, .max_dim_v = 192, .block_q = 128, .block_kv = 96, .stages = 2,
     .q_stages = 1, .staged_output = false, .turns = true, .work = Work::heavy,
     .reason = "two stages, and registers for O of 192 columns"},
    {.min_dim = 8, .max_dim = 256, .max_dim_v = 256, .block_q = 128, .block_kv = 64, .stages = 2,
     .q_stages = 1, .staged_output = false, .turns = true, .work = Work::heavy,
     .reason = "as fast as 80 keys at 8k and more, 1.05 times at 512"},
    {.min_dim = 8, .max_dim = 64, .max_dim_v = 64, .block_q = 128, .block_kv = 128, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .splits = true, .by_cost = true, .work = Work::light,
     .speed = 85,
     .reason = "few queries of many keys, of which little is left to join: 40 x 30k keys, 16/2 heads, take "
               "28 us, with 192x128x2 46 us"},
    {.min_dim = 8, .max_dim = 64, .max_dim_v = 64, .block_q = 192, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = true, .splits = true, .work = Work::light,
     .reason = "few queries of many keys: the tile of many, and partial results"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = false, .splits = true, .work = Work::medium,
     .pages = Pages::none, .unless_fills = 192, .speed = 90,
     .reason = "few queries of many keys that 192 rows would pad"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 192, .block_kv = 80, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .splits = true, .by_cost = true, .work = Work::light,
     .pages = Pages::only,
     .reason = "few queries of many keys in pages: 1k x 64k, 32/8 heads, take 1458 us with two stages, with "
               "128x128x3 1616 us; from pages of 1, before gathering became faster, 2k x 64k took 1.04 and 5 x 700 "
               "x 9000 1.22 times as long with 128x128x3, both 1.18 to 1.19 times with two stages"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 3,
     .q_stages = 1, .staged_output = false, .turns = false, .splits = true, .work = Work::medium,
     .pages = Pages::only, .speed = 90,
     .reason = "few queries of many keys in pages"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 192, .block_kv = 80, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = true, .splits = true, .work = Work::medium,
     .reason = "few queries of many keys: 192 rows, where these pad little"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 96, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = false, .splits = true, .work = Work::heavy,
     .reason = "few queries of many keys, with an attn_mask or a user's code"},
    {.min_dim = 8, .max_dim = 192, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 1, .staged_output = false, .turns = true, .splits = true, .work = Work::heavy,
     .reason = "few queries of many wide keys, narrow values"},
    {.min_dim = 8, .max_dim = 256, .max_dim_v = 256, .block_q = 128, .block_kv = 64, .stages = 2,
     .q_stages = 1, .staged_output = false, .turns = true, .splits = true, .work = Work::heavy,
     .reason = "few queries of many wide keys"},
    {.min_dim = 8, .max_dim = 64, .max_dim_v = 64, .block_q = 192, .block_kv = 128, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .grouped = true, .by_cost = true, .work = Work::light,
     .min_window = 513,
     .reason = "few queries of grouped heads: 64 x 40 x 4k keys, 64/8 heads, take 348 us with two stages, with "
               "128x128x3 452 us; windows of 128 keys 211 us with 192x64x3, 237 us with this; from pages of 1, "
               "two stages take 1.02 to 1.06 times as long, from others equally long"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 192, .block_kv = 80, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .grouped = true, .by_cost = true, .work = Work::light,
     .min_window = 513,
     .reason = "few queries of grouped heads: 64 x 40 x 4k keys, 32/8 heads, take 306 us with two stages, with "
               "128x128x3 409 us; 48 x 50 x 6k, which it pads more, 605 and 491 us; from pages of 1, two stages "
               "take 1.01 to 1.08 times as long, from contiguous keys 1.00 to 1.01 times"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 3,
     .q_stages = 1, .staged_output = false, .turns = false, .grouped = true, .work = Work::medium,
     .pages = Pages::only, .speed = 92,
     .reason = "few queries: those of all heads that share a KV head fill a tile together"},
    {.min_dim = 8, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = false, .grouped = true, .work = Work::medium,
     .pages = Pages::none, .speed = 90,
     .reason = "few queries: those of all heads that share a KV head fill a tile together"},
    {.min_dim = 16, .max_dim = 64, .max_dim_v = 64, .block_q = 192, .block_kv = 96, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .factors = AttentionFactors::widened,
     .work = Work::light, .min_keys = 3072,
     .reason = "quantised caches, many keys: 3 x 6000, 32/4 heads, take 0.94 and 3 x 4k x 30k 0.92 of the time with "
               "128x128x2, 8 x 2k 1.02; four stages of 64 keys 1.03, 1.01 and 1.12"},
    {.min_dim = 16, .max_dim = 64, .max_dim_v = 64, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = true, .factors = AttentionFactors::widened, .work = Work::heavy,
     .speed = 94,
     .reason = "quantised caches: registers for a warpgroup that widens their elements"},
    {.min_dim = 16, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = true, .factors = AttentionFactors::widened, .work = Work::medium,
     .reason = "quantised caches, wider heads"},
    {.min_dim = 16, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 96, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = false, .factors = AttentionFactors::widened, .work = Work::heavy,
     .reason = "quantised caches, with code at every logit; wgmma takes more than the 128 registers "
               "of 512 threads for wider keys"},
    {.min_dim = 16, .max_dim = 256, .max_dim_v = 256, .block_q = 128, .block_kv = 64, .stages = 2,
     .q_stages = 1, .staged_output = false, .turns = true, .factors = AttentionFactors::widened, .work = Work::heavy,
     .reason = "quantised caches of wide heads: shared memory for bytes beside two stages"},
    {.min_dim = 16, .max_dim = 64, .max_dim_v = 64, .block_q = 192, .block_kv = 96, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .grouped = true, .by_cost = true,
     .factors = AttentionFactors::widened, .work = Work::light,
     .reason = "quantised caches, grouped heads: 64 x 40 x 4k keys, 32/8 heads, take 224 us, with 128x128x2 split "
               "311 us, 3 x 6000, 32/4 heads, 0.97 of the time with 192x96x3, 5 sequences of 400 to 3100 0.95"},
    {.min_dim = 16, .max_dim = 64, .max_dim_v = 64, .block_q = 192, .block_kv = 128, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .factors = AttentionFactors::bytes,
     .work = Work::light,
     .reason = "bytes as queries, keys and values: three warpgroups, as D64 of 16 bits"},
    {.min_dim = 16, .max_dim = 128, .max_dim_v = 128, .block_q = 192, .block_kv = 96, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = false, .factors = AttentionFactors::bytes,
     .work = Work::light,
     .reason = "three warpgroups, no turns: 951 TFLOP/s at 16k causal, in turns 909, two of 192 keys "
               "911"},
    {.min_dim = 16, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .factors = AttentionFactors::bytes,
     .work = Work::heavy,
     .reason = "bytes, with code at every logit: three warpgroups spill"},
    {.min_dim = 16, .max_dim = 256, .max_dim_v = 256, .block_q = 128, .block_kv = 96, .stages = 2,
     .q_stages = 1, .staged_output = false, .turns = true, .factors = AttentionFactors::bytes,
     .work = Work::heavy,
     .reason = "bytes of wide heads; 1207 TFLOP/s at 8k, D256"},
    {.min_dim = 16, .max_dim = 64, .max_dim_v = 64, .block_q = 192, .block_kv = 96, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .splits = true, .by_cost = true,
     .factors = AttentionFactors::widened, .work = Work::light,
     .reason = "few queries of many keys of a quantised cache: 1k x 64k, 32/8 heads, take 1085 us, with 128x128x2 "
               "1206 us, 5 x 700 x 9000, 24/8 heads, 384 and 441 us"},
    {.min_dim = 16, .max_dim = 64, .max_dim_v = 64, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = true, .splits = true,
     .factors = AttentionFactors::widened, .work = Work::heavy, .speed = 90,
     .reason = "few queries of many keys of a quantised cache"},
    {.min_dim = 16, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = true, .splits = true,
     .factors = AttentionFactors::widened, .work = Work::medium,
     .reason = "few queries of many keys of a quantised cache, wider heads"},
    {.min_dim = 16, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 96, .stages = 2,
     .q_stages = 2, .staged_output = false, .turns = false, .splits = true,
     .factors = AttentionFactors::widened, .work = Work::heavy,
     .reason = "few queries of many keys of a quantised cache, with code at every logit"},
    {.min_dim = 16, .max_dim = 256, .max_dim_v = 256, .block_q = 128, .block_kv = 64, .stages = 2,
     .q_stages = 1, .staged_output = false, .turns = true, .splits = true,
     .factors = AttentionFactors::widened, .work = Work::heavy,
     .reason = "few queries of many wide keys of a quantised cache"},
    {.min_dim = 16, .max_dim = 128, .max_dim_v = 128, .block_q = 128, .block_kv = 128, .stages = 3,
     .q_stages = 2, .staged_output = false, .turns = true, .splits = true,
     .factors = AttentionFactors::bytes, .work = Work::heavy,
     .reason = "few queries of many keys, all bytes"},
    {.min_dim = 16, .max_dim = 256, .max_dim_v = 256, .block_q = 128, .block_kv = 96, .stages = 2,
     .q_stages = 1, .staged_output = false, .turns = true, .splits = true,
     .factors = AttentionFactors::bytes, .work = Work::heavy,
     .reason = "few queries of many wide keys, all bytes"},
};
// clang-format on

}  // namespace

std::span<const AttentionSm90Config> attention_sm90_configs() { return kSm90Configs; }

}  // namespace kiln
