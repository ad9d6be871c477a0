#include "jit/compile/template_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>

#include "jit/compile/embedded.h"
#include "jit/compile/settings.h"
#include "jit/op/process.h"
#include "jit/op/user_text.h"
#include "jit/op/whole_file.h"

namespace kiln {
namespace {

struct FolderFiles {
  std::map<std::string, std::string> texts;  // stable addresses
  std::vector<SourceFile> files;
};

const FolderFiles& read_folder(const std::string& folder) {
  static FolderFiles* const result = [&] {
    std::error_code error;
    // Asked first: another folder, the root even, is not walked through.
    if (!std::filesystem::exists(std::filesystem::path(folder) / "base/types.cuh", error)) {
      throw std::invalid_argument(
          "KILN_TEMPLATE_DIR=" + folder +
          " holds no base/types.cuh; point it to a templates/ folder of Kiln");
    }
    auto* read = new FolderFiles;
    for (auto it = std::filesystem::recursive_directory_iterator(folder, error);
         !error && it != std::filesystem::recursive_directory_iterator(); it.increment(error)) {
      const auto extension = it->path().extension();
      if (!it->is_regular_file(error) || (extension != ".cuh" && extension != ".h")) continue;
      auto text = read_whole_file(it->path());
      if (!text)
        throw std::invalid_argument("KILN_TEMPLATE_DIR: " + it->path().string() +
                                    " cannot be read; make it readable, or unset the variable");
      const auto relative = std::filesystem::relative(it->path(), folder).generic_string();
      read->texts.emplace("/kiln/" + relative, std::move(*text));
    }
    for (const auto& [name, text] : read->texts) read->files.push_back({name, text});
    return read;
  }();
  return *result;
}

std::vector<SourceFile> embedded_files() {
  std::vector<SourceFile> files;
  for (const EmbeddedFile& file : embedded_templates()) files.push_back({file.name, file.text});
  return files;
}

// The compiler opens files by absolute names, and the key would not cover them. The embedded files
// were checked when they were written.
void check_folder_file(const SourceFile& file) {
  const std::string& folder = settings().template_dir;
  if (folder.empty() || !reads_foreign_files(file.text)) return;
  throw std::invalid_argument("KILN_TEMPLATE_DIR: the file " + std::string(file.name) + " of " +
                              folder +
                              " reads a file from outside, which the key of a kernel does not "
                              "cover; a template may include only files of the folder, as #include "
                              "\"/kiln/...\", and may not use __has_include, nor ## where it has "
                              "#if or #elif");
}

void collect(std::string_view text, std::map<std::string_view, std::string_view>& found) {
  constexpr std::string_view kInclude = "#include \"";
  for (std::size_t at = text.find(kInclude); at != std::string_view::npos;
       at = text.find(kInclude, at)) {
    at += kInclude.size();
    const std::size_t end = text.find('"', at);
    if (end == std::string_view::npos) return;
    const std::string_view name = text.substr(at, end - at);
    if (found.contains(name)) continue;
    for (const SourceFile& file : template_files()) {
      if (file.name != name) continue;
      check_folder_file(file);
      found.emplace(file.name, file.text);
      collect(file.text, found);
    }
  }
}

}  // namespace

std::span<const SourceFile> template_files() {
  if (!settings().template_dir.empty()) return read_folder(settings().template_dir).files;
  // Never destroyed: threads may compile while the process exits.
  static const auto& files = *new std::vector<SourceFile>(embedded_files());
  return files;
}

bool is_template_file(std::string_view virtual_name) {
  const auto files = template_files();
  return std::any_of(files.begin(), files.end(),
                     [&](const SourceFile& file) { return file.name == virtual_name; });
}

std::vector<SourceFile> included_files(std::string_view source) {
  std::map<std::string_view, std::string_view> found;
  collect(source, found);
  std::vector<SourceFile> files;
  for (const auto& [name, text] : found) files.push_back({name, text});
  return files;
}

}  // namespace kiln
