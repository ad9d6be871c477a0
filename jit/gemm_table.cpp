// The closed table of GEMM tiles.
#include "jit/config.h"

namespace kiln {
namespace {

// Rows of 128 bytes of K, which is as far as a swizzle goes.
constexpr GemmConfig sm90(int element_bytes, int block_m, int block_n, int stages, Sm90Form form,
                          std::string_view reason) {
  return {element_bytes, block_m, block_n, 128 / element_bytes, stages, 0, 0, 0, 0, reason, form};
}

// Measured on an H200 over M = 1 to 8192, with and without splits, against twelve other tiles; a
// row stays if it is the fastest somewhere. The rates and the constants of gemm_config.cpp's
// cost are fitted to 74 problems: there the choice takes 0.4 % longer than the best of all rows and
// splits (geometric mean; at worst 14 %).
constexpr GemmConfig kConfigs[] = {
    {2, 256, 128, 64, 4, 4, 2, 447, 447,
     "large problems: 64x64 warp tiles; 192 KB, one CTA; 128x256 is as fast"},
    {2, 256, 128, 32, 4, 4, 2, 430, 430, "the same in 96 KB, for archs with 99 KB"},
    {2, 128, 128, 64, 3, 2, 2, 400, 417, "where 256x128 leaves multiprocessors idle; two CTAs"},
    {2, 64, 128, 64, 4, 2, 2, 311, 338, "where 128x128 does; 128x64 is no faster"},
    {2, 64, 64, 64, 6, 2, 2, 262, 285, "M up to 64, or few tiles and a long K"},
    {2, 32, 64, 128, 4, 1, 4, 192, 211, "M up to 32: long rows of K need few barriers"},
    {2, 16, 32, 128, 6, 1, 2, 83, 99, "M up to 16: a stream of weights, 60 KB of it under way"},
    {2, 16, 64, 64, 6, 1, 4, 88, 89, "the same where 32 columns are more tiles than fit at once"},
    {4, 256, 128, 32, 4, 4, 2, 215, 215, "large problems: 64x64 warp tiles; 192 KB, one CTA"},
    {4, 128, 128, 32, 3, 2, 2, 192, 192, "where 256x128 leaves multiprocessors idle; two CTAs"},
    {4, 64, 128, 32, 4, 2, 2, 159, 164, "where 128x128 does"},
    {4, 64, 64, 32, 6, 2, 2, 145, 152, "M up to 64, or few tiles and a long K"},
    {4, 32, 64, 64, 4, 1, 4, 84, 110, "M up to 32"},
    {4, 16, 32, 64, 6, 1, 2, 26, 77, "M up to 16: a stream of weights"},

    // sm_90a; measured on an H200 over M = 1 to 4096 and the layers of four models. Which of them a
    // problem gets is computed from their tiles, see gemm_sm90_cost.cpp.
    // 16 bits.
    sm90(2, 128, 256, 4, {.groups = 2, .raster_rows = 16},
         "large problems: the fewest bytes of shared memory for each product"),
    sm90(2, 128, 224, 4, {.groups = 2},
         "where its tiles fill whole waves, as of N = 28672: 1.06 to 1.09 of cuBLAS there"),
    sm90(2, 128, 192, 4, {.groups = 2}, "likewise, N = 6144; and 8192^3, where power limits: 1.04"),
    sm90(2, 128, 176, 5, {.groups = 2}, "likewise, N = 2112"),
    sm90(2, 128, 160, 5, {.groups = 2}, "likewise, N = 10240"),
    sm90(2, 128, 144, 5, {.groups = 2}, "likewise, N = 4608"),
    sm90(2, 128, 128, 6, {.groups = 2, .ping_pong = true},
         "short K and outputs that cost: one group multiplies while the other writes"),
    sm90(2, 128, 112, 6, {.groups = 2}, "whole waves of N = 3584"),
    sm90(2, 128, 96, 6, {.groups = 2}, "whole waves of N = 6144 at M = 256"),
    sm90(2, 128, 128, 7, {.groups = 2, .splits = true}, "few tiles and a long K"),
    sm90(2, 128, 64, 9, {.groups = 2, .splits = true}, "the same with fewer columns"),
    sm90(2, 128, 64, 8, {.groups = 1, .swapped = true},
         "M up to 256: 64 columns of the output are the rows of wgmma, which reads less"),
    sm90(2, 64, 128, 8, {.groups = 2, .cluster = 4, .swapped = true},
         "M up to 64, many weights: four CTAs share the tokens"),
    sm90(2, 64, 64, 12, {.groups = 1, .swapped = true},
         "M up to 64: a stream of weights, 190 KB of it under way"),
    sm90(2, 32, 64, 14, {.groups = 1, .swapped = true}, "M up to 32, the same"),
    sm90(2, 16, 64, 16, {.groups = 1, .swapped = true}, "M up to 16, the same"),
    sm90(2, 128, 64, 8, {.groups = 1, .splits = true, .swapped = true},
         "M up to 256, few columns and a long K"),
    sm90(2, 64, 128, 9, {.groups = 2, .splits = true, .swapped = true}, "M up to 64, the same"),
    sm90(2, 32, 64, 9, {.groups = 1, .splits = true, .swapped = true, .residents = 2},
         "M up to 32, the same; two CTAs fit"),
    sm90(2, 16, 64, 10, {.groups = 1, .splits = true, .swapped = true, .residents = 2},
         "M up to 16, the same"),
    // 8 bits.
    sm90(1, 128, 256, 4, {.groups = 2, .raster_rows = 16},
         "large problems: the fewest bytes of shared memory for each product"),
    sm90(1, 128, 192, 4, {.groups = 2}, "likewise, N = 6144; and 8192^3, where power limits: 1.04"),
    sm90(1, 128, 160, 5, {.groups = 2}, "likewise, N = 10240"),
    sm90(1, 128, 128, 6, {.groups = 2},
         "few tiles; the sums of two groups are promoted side by side"),
    sm90(1, 128, 128, 5, {.groups = 2, .ping_pong = true},
         "short K and outputs that cost, without promotion"),
    sm90(1, 128, 96, 6, {.groups = 2}, "whole waves of N = 6144 at M = 256"),
    sm90(1, 128, 128, 7, {.groups = 2, .splits = true}, "few tiles and a long K"),
    sm90(1, 128, 64, 8, {.groups = 1, .swapped = true},
         "M up to 256: 64 columns of the output are the rows of wgmma, which reads less"),
    sm90(1, 64, 64, 12, {.groups = 1, .swapped = true},
         "M up to 64: a stream of weights, 190 KB of it under way"),
    sm90(1, 32, 64, 14, {.groups = 1, .swapped = true}, "M up to 32, the same"),
    sm90(1, 16, 64, 16, {.groups = 1, .swapped = true}, "M up to 16, the same"),
    sm90(1, 128, 64, 8, {.groups = 1, .splits = true, .swapped = true},
         "M up to 256, few columns and a long K"),
    sm90(1, 64, 128, 9, {.groups = 2, .splits = true, .swapped = true}, "M up to 64, the same"),
    sm90(1, 32, 64, 9, {.groups = 1, .splits = true, .swapped = true, .residents = 2},
         "M up to 32, the same; two CTAs fit"),
    sm90(1, 16, 64, 10, {.groups = 1, .splits = true, .swapped = true, .residents = 2},
         "M up to 16, the same"),
    // tf32.
    sm90(4, 128, 256, 4, {.groups = 2, .raster_rows = 16},
         "large problems: the fewest bytes of shared memory for each product"),
    sm90(4, 128, 192, 4, {.groups = 2}, "likewise, N = 6144; and 8192^3, where power limits: 1.04"),
    sm90(4, 128, 128, 6, {.groups = 2, .ping_pong = true},
         "short K and outputs that cost: one group multiplies while the other writes"),
    sm90(4, 128, 96, 6, {.groups = 2}, "whole waves of N = 6144 at M = 256"),
    sm90(4, 128, 128, 7, {.groups = 2, .splits = true}, "few tiles and a long K"),
    sm90(4, 128, 64, 8, {.groups = 1, .swapped = true},
         "M up to 256: 64 columns of the output are the rows of wgmma, which reads less"),
    sm90(4, 64, 64, 12, {.groups = 1, .swapped = true},
         "M up to 64: a stream of weights, 190 KB of it under way"),
    sm90(4, 32, 64, 14, {.groups = 1, .swapped = true}, "M up to 32, the same"),
    sm90(4, 16, 64, 16, {.groups = 1, .swapped = true}, "M up to 16, the same"),
    sm90(4, 128, 64, 8, {.groups = 1, .splits = true, .swapped = true},
         "M up to 256, few columns and a long K"),
    sm90(4, 64, 128, 9, {.groups = 2, .splits = true, .swapped = true}, "M up to 64, the same"),
    sm90(4, 32, 64, 9, {.groups = 1, .splits = true, .swapped = true, .residents = 2},
         "M up to 32, the same; two CTAs fit"),
    sm90(4, 16, 64, 10, {.groups = 1, .splits = true, .swapped = true, .residents = 2},
         "M up to 16, the same"),
};

}  // namespace

std::span<const GemmConfig> gemm_configs() { return kConfigs; }

}  // namespace kiln
