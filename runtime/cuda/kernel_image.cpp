// The bounds of a cubin's ELF tables.
#include "runtime/cuda/kernel_image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

namespace kiln::runtime {

std::string cubin_problem(std::string_view cubin) {
  Elf64_Ehdr header;
  if (cubin.size() < sizeof header) {
    return "the image has only " + std::to_string(cubin.size()) + " bytes";
  }
  std::memcpy(&header, cubin.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    return "the image is not a 64-bit ELF file";
  }
  const auto table_fits = [&](std::uint64_t offset, std::uint64_t count, std::uint64_t size) {
    return offset <= cubin.size() && count * size <= cubin.size() - offset;
  };
  if (!table_fits(header.e_shoff, header.e_shnum, sizeof(Elf64_Shdr)) ||
      !table_fits(header.e_phoff, header.e_phnum, sizeof(Elf64_Phdr))) {
    return "the image is truncated";
  }
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, cubin.data() + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS && !table_fits(section.sh_offset, 1, section.sh_size)) {
      return "the image is truncated";
    }
  }
  return {};
}

}  // namespace kiln::runtime
