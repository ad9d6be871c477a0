#include "runtime/emulator/matrix/descriptor.h"

#include <cstring>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {

MatrixDescriptor MatrixDescriptor::of(std::uint64_t bits) {
  const auto field = [&](int low) {
    return static_cast<std::uint32_t>(bits >> low & 0x3fffu) << 4;
  };
  constexpr std::uint32_t kChunks[] = {1, 8, 4, 2};  // by mode: none, 128, 64, 32 bytes
  if ((bits >> 49 & 7u) != 0) {
    raise(Fault::unknown_instruction,
          "a matrix descriptor with a base offset is not modelled: " + hex(bits));
  }
  return {.address = field(0),
          .leading = field(16),
          .stride = field(32),
          .swizzle = kChunks[bits >> 62]};
}

void MatrixReader::copy(std::uint32_t address, std::byte* to) {
  const std::uint32_t full = static_cast<std::uint32_t>(rank_) << kRankShift | address;
  std::memcpy(to, shared_bytes(cluster_, full, 16, 16), 16);
}

void MatrixReader::note(std::uint32_t address, std::uint32_t bytes) {
  if (operation_ != nullptr) cluster_.shadow()->read(*operation_, rank_, address, bytes);
}

void MatrixReader::k_major(const MatrixDescriptor& from, std::uint32_t first, Rows& rows) {
  for (std::uint32_t row = 0; row < 8; ++row) {
    const std::uint32_t low = from.k_major(first + row, 0), high = from.k_major(first + row, 1);
    copy(low, rows[row]);
    copy(high, rows[row] + 16);
    if ((low ^ high) == 16) {  // most often neighbours: one look at the shadow
      note(low < high ? low : high, 32);
    } else {
      note(low, 16);
      note(high, 16);
    }
  }
}

void MatrixReader::mn_major(const MatrixDescriptor& from, std::uint32_t chunk, std::uint32_t k,
                            std::byte* sixteen) {
  const std::uint32_t address = from.mn_major(chunk, k);
  copy(address, sixteen);
  note(address, 16);
}

}  // namespace kiln::runtime::emulator
