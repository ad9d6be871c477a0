# Writes a C++ table of the device templates: cmake -DTEMPLATES=<folder> -DOUTPUT=<file> -P embed.cmake
# Bytes go through hexadecimal, so that no quoting rule can alter a template: its bytes are part of
# every cache key.
file(GLOB_RECURSE names RELATIVE "${TEMPLATES}" "${TEMPLATES}/*.cuh" "${TEMPLATES}/*.h")
list(SORT names)

set(piece_bytes 1024)  # of one string literal; compilers need only accept 65536 characters
set(definitions "")
set(table "")
set(index 0)
foreach(name IN LISTS names)
  file(READ "${TEMPLATES}/${name}" bytes HEX)
  string(LENGTH "${bytes}" digits)
  set(literal "")
  set(position 0)
  math(EXPR step "${piece_bytes} * 2")
  while(position LESS digits)
    string(SUBSTRING "${bytes}" ${position} ${step} piece)
    string(REGEX REPLACE "(..)" "\\\\x\\1" piece "${piece}")
    string(APPEND literal "\n    \"${piece}\"")
    math(EXPR position "${position} + ${step}")
  endwhile()
  math(EXPR size "${digits} / 2")
  string(APPEND definitions "constexpr char kText${index}[] =${literal} \"\";\n")
  string(APPEND table "    {\"/kiln/${name}\", {kText${index}, ${size}}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE "${OUTPUT}" "// Written by cmake/embed.cmake from templates/. Sorted by name.
#include \"jit/compile/embedded.h\"

#include <array>

namespace kiln {
namespace {

${definitions}
constexpr std::array<EmbeddedFile, ${index}> kFiles{{
${table}}};

}  // namespace

std::span<const EmbeddedFile> embedded_templates() { return kFiles; }

}  // namespace kiln
")
