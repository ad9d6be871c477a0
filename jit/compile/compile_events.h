// Tells others about compiles and misses: the listeners of add_compile_listener, and the file of
// KILN_RECORD. Both may wait, or call Kiln: so what happens under locks is only noted, for its
// thread, and told once these are free.
#pragma once

#include <string>
#include <vector>

#include "jit/compile/kernel_source.h"
#include "jit/op/specialization.h"
#include "jit/op/user_texts.h"
#include "kiln/control.h"

namespace kiln {

// Who asks for a kernel. What a tool compiles was asked for by its spec, and is not recorded.
enum class Asker : std::uint8_t { call, tool };

// compile_entry(), noted whether it succeeds or throws.
cache::Entry compile_and_note(const Specialization& spec, const UserTexts& texts,
                              const KernelSource& source, const std::string& why, Asker asker);

// A call missed a kernel that may not be compiled now.
void note_refusal(const Specialization& spec, const UserTexts& texts, const KernelSource& source,
                  const std::string& why);

struct NotedCompile {
  CompileEvent event;
  cache::Key key;
  bool is_recorded = false;
};
// A thread that compiles for another one takes what it has noted, and the other one notes it as its
// own.
std::vector<NotedCompile> take_noted();
void note_as_own(std::vector<NotedCompile> noted);

// Its end tells what this thread has noted. Requires: no lock of ours is held then.
class CompileEventScope {
 public:
  CompileEventScope() = default;
  ~CompileEventScope();
  CompileEventScope(const CompileEventScope&) = delete;
  CompileEventScope& operator=(const CompileEventScope&) = delete;
};

}  // namespace kiln
