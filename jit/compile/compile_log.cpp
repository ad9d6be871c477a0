// Parser of ptxas -v, by hand: std::regex would clash with libtorch's in one process.
#include "jit/compile/compile_log.h"

#include <algorithm>
#include <charconv>

namespace kiln {
namespace {

std::string_view next_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return line;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The number before `unit`: 400 of "..., 400 bytes smem, ..." for " bytes smem"; 0 when absent.
int number_before(std::string_view line, std::string_view unit) {
  const std::size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

// What stands between `before` and the next quote or the line's end.
std::string_view text_after(std::string_view line, std::string_view before) {
  const std::size_t at = line.find(before);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + before.size());
  return line.substr(0, line.find('\''));
}

bool is_warning(std::string_view line) {
  return contains(line, "(C75") || contains(line, "Potential Performance Loss") ||
         contains(line, "setmaxnreg");
}

}  // namespace

std::optional<ResourceUse> parse_compile_log(std::string_view log, std::string_view entry) {
  ResourceUse use;
  bool found = false;
  std::string_view kernel, function;
  while (!log.empty()) {
    const std::string_view line = next_line(log);
    if (is_warning(line)) use.warnings.emplace_back(line);
    if (const auto name = text_after(line, "Compiling entry function '"); !name.empty()) {
      kernel = function = name;
      found = found || name == entry;
    } else if (const auto name = text_after(line, "Function properties for "); !name.empty()) {
      function = name;
    }
    // ptxas lists a kernel's own functions after its header, under their own names.
    if (kernel != entry) continue;
    if (contains(line, " bytes stack frame")) {
      use.stack_bytes = std::max(use.stack_bytes, number_before(line, " bytes stack frame"));
      use.spill_store_bytes += number_before(line, " bytes spill stores");
      use.spill_load_bytes += number_before(line, " bytes spill loads");
    } else if (contains(line, "Used ") && contains(line, " registers") && function == entry) {
      use.registers = number_before(line, " registers");
      use.static_shared_bytes = number_before(line, " bytes smem");
      use.stack_bytes =
          std::max(use.stack_bytes, number_before(line, " bytes cumulative stack size"));
    }
  }
  if (!found) return std::nullopt;
  return use;
}

}  // namespace kiln
