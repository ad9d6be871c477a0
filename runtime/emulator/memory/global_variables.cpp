// Storage of a module's .global and .const variables.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {
namespace {

// Variables that a launch may overrun must not touch each other, so that the overrun shows.
constexpr std::uint64_t kGap = 64;

// Pages that nobody writes stay the operating system's zeros: a large array costs what is used.
std::unique_ptr<void, void (*)(void*)> zeroed(std::uint64_t bytes) {
  std::unique_ptr<void, void (*)(void*)> memory(std::calloc(bytes + kGap, 1), &std::free);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

template <class F>
void for_each_variable(const Module& module, F f) {
  const auto visit = [&](const std::vector<Variable>& variables) {
    for (const Variable& variable : variables) {
      if (variable.space == Space::global || variable.space == Space::constant) f(variable);
    }
  };
  visit(module.variables);
  for (const Function& function : module.functions) visit(function.variables);
}

void check_relocation(const Variable& variable, const Variable::Relocation& relocation,
                      std::uint64_t bytes) {
  if (bytes < 8 || relocation.at > bytes - 8) {
    raise_ptx(variable.line, "the address in the initialiser of '" + std::string(variable.name) +
                                 "' lies outside it");
  }
}

}  // namespace

GlobalVariables::GlobalVariables(const Module& module) {
  for_each_variable(module, [&](const Variable& variable) {
    if (variable.is_extern) {
      raise_ptx(variable.line,
                "extern variable '" + std::string(variable.name) + "' has no definition here");
    }
    const std::uint64_t bytes = std::max<std::uint64_t>(variable.bytes, variable.initial.size());
    const std::uint64_t align = std::max<std::uint64_t>(variable.align, 16);
    Storage storage{variable.name, bytes, variable.space == Space::global, zeroed(bytes + align),
                    nullptr};
    const auto raw = reinterpret_cast<std::uintptr_t>(storage.data.get());
    storage.begin =
        static_cast<std::byte*>(storage.data.get()) + ((raw + align - 1) / align * align - raw);
    std::copy(variable.initial.begin(), variable.initial.end(), storage.begin);
    index_.try_emplace(variable.name, variables_.size());
    variables_.push_back(std::move(storage));
  });
  std::size_t index = 0;
  for_each_variable(module, [&](const Variable& variable) {
    const Storage& storage = variables_[index++];
    for (const Variable::Relocation& relocation : variable.relocations) {
      check_relocation(variable, relocation, storage.bytes);
      std::uint64_t target = address_of(relocation.name);
      // A function's address stays 0 (the storage is zeroed): a call through it is no op that is
      // modelled, so nothing can use it.
      if (target == 0 && module.find_function(relocation.name) != nullptr) continue;
      if (target == 0) {
        raise_ptx(variable.line, "the initialiser of '" + std::string(variable.name) + "' names '" +
                                     std::string(relocation.name) +
                                     "', which is no variable of global or constant memory");
      }
      target += static_cast<std::uint64_t>(relocation.offset);
      std::memcpy(storage.begin + relocation.at, &target, sizeof(target));
    }
  });
}

std::uint64_t GlobalVariables::address_of(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? 0
                               : reinterpret_cast<std::uint64_t>(variables_[found->second].begin);
}

void GlobalVariables::add_to(AddressMap& map) const {
  for (const Storage& storage : variables_) {
    map.add(reinterpret_cast<std::uint64_t>(storage.begin), storage.bytes, storage.writable,
            std::string(storage.name));
  }
}

}  // namespace kiln::runtime::emulator
