#include "jit/compile/signal_slots.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace kiln {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kSlotTypes[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT};
#elif defined(__aarch64__)
constexpr std::uint32_t kSlotTypes[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT};
#else
#error "The types of this processor's relocations are missing here."
#endif

// What the library is told: that there was no handler, and that its own is installed.
sighandler_t keep_handler(int, sighandler_t) { return SIG_DFL; }
int keep_action(int number, const struct sigaction*, struct sigaction* old) {
  return old == nullptr ? 0 : sigaction(number, nullptr, old);
}

void* replacement_of(std::string_view function) {
  if (function == "signal") return reinterpret_cast<void*>(&keep_handler);
  if (function == "sigaction") return reinterpret_cast<void*>(&keep_action);
  return nullptr;
}

// The parts of a loaded library that name the functions which it calls.
struct DynamicSection {
  const char* names = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  std::span<const ElfW(Rela)> calls, data;

  explicit DynamicSection(const link_map& map) {
    std::size_t call_bytes = 0, data_bytes = 0;
    const ElfW(Rela)* call_table = nullptr;
    const ElfW(Rela)* data_table = nullptr;
    for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
      const auto address = static_cast<std::uintptr_t>(entry->d_un.d_ptr);
      switch (entry->d_tag) {  // the loader has made addresses of the offsets
        case DT_STRTAB:
          names = reinterpret_cast<const char*>(address);
          break;
        case DT_SYMTAB:
          symbols = reinterpret_cast<const ElfW(Sym)*>(address);
          break;
        case DT_JMPREL:
          call_table = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_RELA:
          data_table = reinterpret_cast<const ElfW(Rela)*>(address);
          break;
        case DT_PLTRELSZ:
          call_bytes = entry->d_un.d_val;
          break;
        case DT_RELASZ:
          data_bytes = entry->d_un.d_val;
          break;
        default:
          break;
      }
    }
    if (call_table != nullptr) calls = {call_table, call_bytes / sizeof(ElfW(Rela))};
    if (data_table != nullptr) data = {data_table, data_bytes / sizeof(ElfW(Rela))};
  }

  const char* name_of(const ElfW(Rela) & relocation) const {
    return names + symbols[ELF64_R_SYM(relocation.r_info)].st_name;
  }
};

// Whether the loader made a slot read-only after it had filled it (PT_GNU_RELRO).
struct ReadOnlyQuery {
  std::uintptr_t base, slot;
  bool read_only = false;

  static int visit(dl_phdr_info* library, std::size_t, void* data) {
    auto& query = *static_cast<ReadOnlyQuery*>(data);
    if (library->dlpi_addr != query.base) return 0;
    for (const auto& part : std::span(library->dlpi_phdr, library->dlpi_phnum)) {
      const std::uintptr_t first = library->dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_GNU_RELRO && query.slot - first < part.p_memsz) query.read_only = true;
    }
    return 1;
  }
};

bool write_slot(const link_map& map, std::uintptr_t slot, void* function) {
  ReadOnlyQuery query{map.l_addr, slot};
  dl_iterate_phdr(&ReadOnlyQuery::visit, &query);
  const auto page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  void* const page = reinterpret_cast<void*>(slot / page_bytes * page_bytes);
  if (query.read_only && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  // Another thread may be calling through it.
  std::atomic_ref(*reinterpret_cast<void**>(slot)).store(function, std::memory_order_release);
  if (query.read_only) mprotect(page, page_bytes, PROT_READ);
  return true;
}

}  // namespace

bool detach_signal_handlers(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return false;
  const DynamicSection section(*map);
  if (section.names == nullptr || section.symbols == nullptr) return false;
  bool found = false, written = true;
  for (const auto table : {section.calls, section.data}) {
    for (const ElfW(Rela) & relocation : table) {
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(relocation.r_info));
      if (type != kSlotTypes[0] && type != kSlotTypes[1]) continue;
      void* const function = replacement_of(section.name_of(relocation));
      if (function == nullptr) continue;
      found = true;
      written = write_slot(*map, map->l_addr + relocation.r_offset, function) && written;
    }
  }
  return found && written;
}

}  // namespace kiln
