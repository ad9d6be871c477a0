// A file's bytes, through C's stdio: see SourceText in source_text.h for why not a stream.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace kiln {

// Null when the file cannot be read to its end.
inline std::optional<std::string> read_whole_file(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) return std::nullopt;
  std::string bytes;
  char buffer[1 << 14];
  while (const std::size_t count = std::fread(buffer, 1, sizeof(buffer), file.get())) {
    bytes.append(buffer, count);
  }
  if (std::ferror(file.get())) return std::nullopt;
  return bytes;
}

}  // namespace kiln
