#include "jit/op/digest.h"

#include <cstring>

#include "cache/key.h"

namespace kiln {

Digest128 digest_of(std::initializer_list<std::pair<const char*, std::string>> fields) {
  cache::KeyBuilder builder;
  for (const auto& [label, value] : fields) builder.field(label, value);
  const cache::Key key = builder.finish();
  Digest128 digest;
  std::memcpy(digest.data(), key.digest.data(), sizeof(digest));
  return digest;
}

}  // namespace kiln
