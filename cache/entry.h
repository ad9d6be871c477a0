// What one key maps to: a cubin, the PTX of the same compile, and a description in JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kiln::cache {

struct Entry {
  std::string cubin;  // raw, opens in cuobjdump
  std::string ptx;    // text; stored compressed
  // Facts of the compile, written and read by the caller: what, arch, nvrtc_version, nvrtc_build,
  // min_driver, registers, shared_bytes, spill_bytes, local_bytes, compile_seconds. The cache adds
  // and checks only its own fields: schema, key, and the sizes and digests of both payloads.
  nlohmann::json description = nlohmann::json::object();
};

}  // namespace kiln::cache
