// Compiles one fixed program in a process of its own and prints a digest of what came out; the
// tests start it in several folders. Arguments: site-packages, and `without-headers` to leave the
// included header out.
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "jit/compile/compiler.h"

namespace {

std::uint64_t digest(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  kiln::set_nvrtc_search({.python_paths = {argv[1]}});
  std::vector<kiln::SourceFile> headers{
      {"/kiln/base/types.cuh", "#pragma once\nusing number = float;\n"}};
  if (argc > 2) headers.clear();
  std::printf("loaded before: %d\n", kiln::nvrtc_is_loaded());
  try {
    const kiln::CompileResult result = kiln::compile(
        {.name = "/kiln/kernel.cu",
         .source = "#include \"/kiln/base/types.cuh\"\n"
                   "extern \"C\" __global__ void kernel(number* p) { p[threadIdx.x] += 1; }\n",
         .headers = headers,
         .arch = "sm_90a",
         .entry = "kernel"});
    std::printf("loaded after: %d\ncubin %016llx\nptx %016llx\n", kiln::nvrtc_is_loaded(),
                static_cast<unsigned long long>(digest(result.cubin)),
                static_cast<unsigned long long>(digest(result.ptx)));
  } catch (const kiln::CompileError&) {
    std::printf("refused\n");
  }
}
