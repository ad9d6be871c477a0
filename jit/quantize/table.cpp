// The closed table of the kernels that quantise activations.
#include "jit/quantize/config.h"

namespace kiln {
namespace {

// clang-format off: a row a line

// In the order of the accesses that a group may have: the first that is wide enough serves.
constexpr QuantizeConfig kQuantizeConfigs[] = {
    {.lanes = 16, .vectors = 1, .groups = 4, .turns = false, .reason = "groups of up to 128 columns, four of which keep 64 bytes of a thread in flight"},
    {.lanes = 256, .vectors = 4, .groups = 1, .turns = false, .reason = "rows of up to 8192 columns in registers"},
    {.lanes = 1024, .vectors = 2, .groups = 1, .turns = false, .reason = "rows of up to 16384 columns in registers; read twice, 4096 rows of 16384 took 76 us, 1.6 times their bytes"},
    {.lanes = 512, .vectors = 4, .groups = 1, .turns = true, .reason = "wider rows, which are read twice, the second time from a cache"},
};
// clang-format on

}  // namespace

std::span<const QuantizeConfig> quantize_configs() { return kQuantizeConfigs; }

}  // namespace kiln
