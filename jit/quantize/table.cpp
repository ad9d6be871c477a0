// The closed table of the kernels that quantise activations.
#include "jit/quantize/config.h"

namespace kiln {
namespace {

// clang-format off: a row a line

// In the order of the accesses that a group may have: the first that is wide enough serves.
constexpr QuantizeConfig kQuantizeConfigs[] = {
    {.lanes = 8, .vectors = 2, .turns = false, .reason = "groups of up to 128 columns; by 16 threads that had parts of four groups, 8192 x 18432 with SwiGLU took 238 us and not 182, as what a group needs beside its columns took about half of the instructions"},
    {.lanes = 32, .vectors = 2, .turns = false, .reason = "up to 512 columns by a warp, which waits for no other one: 30000 rows of 512 take 14 us, 41 by 256 threads"},
    {.lanes = 32, .vectors = 4, .turns = false, .reason = "up to 1024 columns by a warp: 16384 rows of 1024 take 15 us, 26 by 256 threads"},
    {.lanes = 256, .vectors = 1, .turns = false, .reason = "rows of up to 2048 columns: with SwiGLU, 9000 of 2048 take 25 us, 34 by a warp each, though 19 and 16.5 without"},
    {.lanes = 256, .vectors = 2, .turns = false, .reason = "rows of up to 4096 columns: 4096 of 4096 take 15.2 us, 17.9 with room for 8192"},
    {.lanes = 256, .vectors = 3, .turns = false, .reason = "rows of up to 6144 columns: with SwiGLU, 6000 of 5120 take 38 us, 50 with room for 8192"},
    {.lanes = 256, .vectors = 4, .turns = false, .reason = "rows of up to 8192 columns: 4096 of 7168 take 22.8 us, 31 by 512 threads"},
    {.lanes = 512, .vectors = 4, .turns = false, .reason = "rows of up to 16384 columns: 4096 of 16384 take 50 us, 81 by 1024 threads"},
    {.lanes = 512, .vectors = 4, .turns = true, .reason = "wider rows, which are read twice, the second time from a cache"},
};
// clang-format on

}  // namespace

std::span<const QuantizeConfig> quantize_configs() { return kQuantizeConfigs; }

}  // namespace kiln
