// The closed table of the kernels that quantise activations, and the pure function that picks a
// row. A row's reason stands beside it in table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "jit/quantize/problem.h"

namespace kiln {

// Calls that take a row of registers though rows behind it serve them as well. Few groups are those
// of at most one CTA for each multiprocessor, or 512 threads where a cluster shares a group.
enum class QuantizeCalls : std::uint8_t { all, few_or_without_gates, few, few_with_gates };

struct QuantizeConfig {
  int lanes;           // threads that share a group of columns, in each CTA of its cluster
  int vectors;         // accesses of each of them at a time
  bool turns = false;  // more accesses in turns; x is read twice then, unless `keeps`
  bool keeps = false;  // whether shared memory keeps a group until its scale is known
  int residents = 1;   // CTAs of a multiprocessor that must have room for what they keep
  int cluster = 1;     // CTAs that share a group; more than 1: from sm_90 on
  QuantizeCalls calls = QuantizeCalls::all;
  std::string_view reason;

  int accesses() const { return lanes * vectors * cluster; }  // of a group at a time
};

std::span<const QuantizeConfig> quantize_configs();
std::string tile_name(const QuantizeConfig& config);  // "8x2", "256x1 kept", "256x2 cluster 8"

// This decides about the row. Every row has the same results, to the last bit.
struct QuantizeSize {
  std::int64_t columns = 0;  // of a group
  std::int64_t groups = 0;   // of all rows
  int sm_count = 0;
};
// Whether calls of such traits can have a row: copies to shared memory have 4 bytes or more, and
// clusters need sm_90. `arch`: an index into arch_table().
bool admits(const QuantizeConfig& config, const QuantizeTraits& traits, int arch);
// The last row of the table serves any size.
int choose_quantize(const QuantizeTraits& traits, int arch, const QuantizeSize& size);
// Bytes of shared memory of a CTA that keeps a group of so many columns, and those that it may
// have; 0 where a row keeps none.
std::int64_t kept_bytes(const QuantizeConfig& config, const QuantizeTraits& traits,
                        std::int64_t columns);
int most_kept_bytes(const QuantizeConfig& config, int arch);

}  // namespace kiln
