// The closed table of the kernels that quantise activations.
#include "jit/quantize/config.h"

namespace kiln {
namespace {

// clang-format off: a row a line

// In the order of the columns that a group may have: the first that serves a call is taken.
constexpr QuantizeConfig kQuantizeConfigs[] = {
    {.lanes = 8, .vectors = 2, .reason = "groups of up to 128 columns; by 16 threads that had parts of four groups, 8192 x 18432 with SwiGLU took 238 us and not 182, as what a group needs beside its columns took about half of the instructions"},
    {.lanes = 32, .vectors = 2, .reason = "up to 512 columns by a warp, which waits for no other one: 30000 rows of 512 take 14 us, 41 by 256 threads"},
    {.lanes = 32, .vectors = 4, .reason = "up to 1024 columns by a warp: 16384 rows of 1024 take 15 us, 26 by 256 threads"},
    {.lanes = 256, .vectors = 1, .reason = "rows of up to 2048 columns: with SwiGLU, 9000 of 2048 take 25 us, 34 by a warp each, though 19 and 16.5 without"},
    {.lanes = 256, .vectors = 2, .reason = "rows of up to 4096 columns: 4096 of 4096 take 15.1 us, 17.9 with room for 8192, 17.1 from shared memory"},
    {.lanes = 256, .vectors = 3, .reason = "rows of up to 6144 columns: 6000 of 5120 take 23.7 us, 25.5 with room for 8192, 26.0 from shared memory; with SwiGLU 38.2, 50.7 and 38.9"},
    {.lanes = 256, .vectors = 4, .calls = QuantizeCalls::few_or_without_gates, .reason = "rows of up to 8192 columns: 4096 of 7168 take 22.9 us, 23.8 from shared memory, but with SwiGLU 44.3 and 37.5"},
    {.lanes = 256, .vectors = 2, .cluster = 4, .calls = QuantizeCalls::few_with_gates, .reason = "a few rows of up to 16384 columns with gates: 1, 32 and 64 of 14336 take 4.8, 5.3 and 6.0 us, by 512 threads each 5.4, 5.7 and 6.1; without gates 5.0, 5.4 and 5.6, and 4.8, 5.2 and 5.4"},
    {.lanes = 512, .vectors = 4, .calls = QuantizeCalls::few, .reason = "a few rows of up to 16384 columns: 64 of 14336 with SwiGLU take 6.1 us, 6.8 from shared memory"},
    {.lanes = 256, .vectors = 2, .cluster = 8, .calls = QuantizeCalls::few, .reason = "a few rows of up to 32768 columns, which take one CTA long: 1 of 28672 takes 4.7 us, 5.7 from shared memory, and with SwiGLU 4.9 and 8.2; 32 take 5.3 and 6.1, and 6.0 and 8.5"},
    {.lanes = 512, .vectors = 4, .cluster = 2, .calls = QuantizeCalls::few, .reason = "more of them, up to one CTA for each multiprocessor: 64 of 28672 take 6.3 us, 7.0 from shared memory and 6.7 by 8 CTAs each, and with SwiGLU 7.8, 9.4 and 8.8; 80 take as long or longer"},
    {.lanes = 256, .vectors = 4, .cluster = 8, .calls = QuantizeCalls::few, .reason = "a few rows of up to 65536 columns: 1 of 53248 takes 4.8 us, 7.3 from shared memory, and with SwiGLU 5.2 and 10.4; 32 take 6.1 and 7.6, and 9.2 and 11.5"},
    {.lanes = 512, .vectors = 8, .cluster = 2, .calls = QuantizeCalls::few, .reason = "likewise: 64 of 53248 take 7.3 us, 8.3 from shared memory and 8.9 by 8 CTAs each, and with SwiGLU 9.9, 12.9 and 13.1"},
    {.lanes = 256, .vectors = 1, .turns = true, .keeps = true, .residents = 2, .reason = "wider rows: 4096 of 16384 take 48.6 us, 51.4 in registers, and with SwiGLU 81 and 99; 2048 of 28672 take 43.3, 70.7 if they are read twice, and with SwiGLU 75 and 144"},
    {.lanes = 1024, .vectors = 1, .turns = true, .keeps = true, .reason = "a row that fills the shared memory of a multiprocessor: 512 of 53248 with SwiGLU take 46 us, 54 by 256 threads, 69 if they are read twice"},
    {.lanes = 512, .vectors = 4, .turns = true, .reason = "rows that shared memory has no room for, which are read twice, the second time from a cache"},
};
// clang-format on

}  // namespace

std::span<const QuantizeConfig> quantize_configs() { return kQuantizeConfigs; }

}  // namespace kiln
