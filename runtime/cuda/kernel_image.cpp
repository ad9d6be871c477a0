#include "runtime/cuda/kernel_image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

namespace kiln::runtime {
namespace {

// Requires: the tables are within the cubin.
Elf64_Shdr section_header(std::string_view cubin, const Elf64_Ehdr& header, unsigned number) {
  Elf64_Shdr section;
  std::memcpy(&section, cubin.data() + header.e_shoff + number * sizeof section, sizeof section);
  return section;
}

}  // namespace

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
    const Elf64_Shdr section = section_header(cubin, header, i);
    if (section.sh_type != SHT_NOBITS && !table_fits(section.sh_offset, 1, section.sh_size)) {
      return "the image is truncated";
    }
  }
  return {};
}

std::string_view cubin_section(std::string_view cubin, std::string_view name) {
  if (!cubin_problem(cubin).empty()) return {};
  Elf64_Ehdr header;
  std::memcpy(&header, cubin.data(), sizeof header);
  const auto bytes_of = [&](unsigned number) -> std::string_view {
    if (number >= header.e_shnum) return {};
    const Elf64_Shdr section = section_header(cubin, header, number);
    return section.sh_type == SHT_NOBITS ? std::string_view()
                                         : cubin.substr(section.sh_offset, section.sh_size);
  };
  const std::string_view names = bytes_of(header.e_shstrndx);
  for (unsigned number = 0; number < header.e_shnum; ++number) {
    const std::size_t begin = section_header(cubin, header, number).sh_name;
    if (begin >= names.size()) continue;
    const std::string_view rest = names.substr(begin);
    if (rest.substr(0, rest.find('\0')) == name) return bytes_of(number);
  }
  return {};
}

}  // namespace kiln::runtime
