// One NVRTC compile: options, program, results, errors. Where NVRTC comes from: nvrtc.cpp.
#include "jit/compile/compiler.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "jit/compile/compile_log.h"
#include "jit/compile/compile_scope.h"
#include "jit/compile/deep_stack.h"
#include "jit/compile/nvrtc.h"
#include "jit/compile/yields.h"

namespace kiln {
namespace {

// -default-device: generic lambdas would otherwise be host functions. --no-source-include: a
// header in the working directory must never be seen. --minimal: textures and the runtime's types
// and functions, which no kernel has, are not declared; that takes 10 ms less of each compile. -v:
// the resources are read from the log.
constexpr std::array kOptions{"-std=c++17", "-default-device", "--no-source-include", "--minimal",
                              "--ptxas-options=-v"};
constexpr std::string_view kOptionsText =
    "-std=c++17 -default-device --no-source-include --minimal --ptxas-options=-v";

// NVRTC tells the time of each phase in a file only; this one is in memory. Neither its name nor
// the option changes the output (a test compares the bytes), so that neither is in compile_options.
class PhaseTimes {
 public:
  PhaseTimes() : file_(memfd_create("kiln-nvrtc-times", MFD_CLOEXEC)) {
    path_ = "/proc/self/fd/" + std::to_string(file_);
    // NVRTC opens the path again, and the compile fails where it cannot: in a process that has no
    // descriptor left, the last one is better given back.
    const int again = file_ < 0 ? -1 : open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (again >= 0) {
      close(again);
      option_ = "--time=" + path_;
    } else {
      give_back();
    }
  }
  ~PhaseTimes() { give_back(); }
  PhaseTimes(const PhaseTimes&) = delete;
  PhaseTimes& operator=(const PhaseTimes&) = delete;

  const std::string& option() const { return option_; }  // empty where there is no such file

  // Of lines such as "/kiln/kernel.cu, CUDA C++ Frontend, 11, ms"; 0 when it is not told.
  double frontend_seconds() const {
    std::array<char, 4096> buffer;
    const ssize_t bytes = option_.empty() ? 0 : pread(file_, buffer.data(), buffer.size(), 0);
    const std::string_view text(buffer.data(), std::size_t(std::max<ssize_t>(bytes, 0)));
    constexpr std::string_view kPhase = "CUDA C++ Frontend, ";
    const std::size_t at = text.find(kPhase);
    double milliseconds = 0;
    if (at == std::string_view::npos) return 0;
    std::from_chars(text.data() + at + kPhase.size(), text.data() + text.size(), milliseconds);
    return milliseconds / 1000;
  }

 private:
  void give_back() {
    if (file_ >= 0) close(std::exchange(file_, -1));
  }

  int file_;
  std::string path_, option_;
};

[[noreturn]] void throw_internal(const Nvrtc& api, nvrtcResult result, const char* call) {
  throw CompileError(std::string(call) + " failed: " + api.nvrtcGetErrorString(result), "");
}

class Program {
 public:
  Program(const Nvrtc& api, const CompileInput& input) : api_(api) {
    // NVRTC wants terminated strings, which views need not be.
    std::vector<std::string> texts;
    std::vector<const char*> names_c, texts_c;
    texts.reserve(2 * input.headers.size());
    for (const SourceFile& header : input.headers) {
      names_c.push_back(texts.emplace_back(header.name).c_str());
      texts_c.push_back(texts.emplace_back(header.text).c_str());
    }
    const nvrtcResult result = api.nvrtcCreateProgram(
        &program_, std::string(input.source).c_str(), std::string(input.name).c_str(),
        int(names_c.size()), texts_c.data(), names_c.data());
    if (result != NVRTC_SUCCESS) throw_internal(api, result, "nvrtcCreateProgram");
  }
  ~Program() { api_.nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<const char*>& options) {
    nvrtcResult result = NVRTC_SUCCESS;
    on_deep_stack(
        [&] { result = api_.nvrtcCompileProgram(program_, int(options.size()), options.data()); });
    return result;
  }
  std::string cubin() const { return get(api_.nvrtcGetCUBINSize, api_.nvrtcGetCUBIN, "CUBIN"); }
  std::string ptx() const {
    return without_terminator(get(api_.nvrtcGetPTXSize, api_.nvrtcGetPTX, "PTX"));
  }
  std::string log() const {
    return without_terminator(
        get(api_.nvrtcGetProgramLogSize, api_.nvrtcGetProgramLog, "ProgramLog"));
  }

 private:
  template <typename Size, typename Get>
  std::string get(Size size_of, Get get_it, const char* what) const {
    std::size_t size = 0;
    nvrtcResult result = size_of(program_, &size);
    std::string text(size, '\0');
    if (result == NVRTC_SUCCESS && size > 0) result = get_it(program_, text.data());
    if (result != NVRTC_SUCCESS)
      throw_internal(api_, result, (std::string("nvrtcGet") + what).c_str());
    return text;
  }

  static std::string without_terminator(std::string text) {
    if (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }

  const Nvrtc& api_;
  nvrtcProgram program_ = nullptr;
};

[[noreturn]] void throw_bad_arch(const Nvrtc& api, std::string_view arch) {
  std::string known;
  for (const int number : api.info.archs) {
    known += (known.empty() ? "sm_" : ", sm_") + std::to_string(number);
  }
  throw std::invalid_argument("arch \"" + std::string(arch) + "\" is not one that NVRTC " +
                              api.info.version + " compiles for: it must be one of " + known +
                              ", from sm_90 on also with the suffix a (sm_90a), from sm_100 on "
                              "with f");
}

bool is_virtual(std::string_view arch) { return arch.starts_with(kVirtualPrefix); }

// sm_NN or compute_NN of a supported number, with `a` from 90 on or `f` (a family) from 100 on.
void check_arch(const Nvrtc& api, std::string_view arch) {
  std::string_view digits = arch;
  char suffix = 0;
  if (!digits.starts_with("sm_") && !is_virtual(arch)) throw_bad_arch(api, arch);
  digits.remove_prefix(arch.find('_') + 1);
  if (digits.ends_with('a') || digits.ends_with('f')) {
    suffix = digits.back();
    digits.remove_suffix(1);
  }
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = error == std::errc{} && end == digits.data() + digits.size() &&
                         digits.front() >= '1' && digits.front() <= '9';
  const int suffix_since = suffix == 'a' ? 90 : suffix == 'f' ? 100 : 0;
  if (!is_number || number < suffix_since ||
      std::find(api.info.archs.begin(), api.info.archs.end(), number) == api.info.archs.end()) {
    throw_bad_arch(api, arch);
  }
}

void check_input(const CompileInput& input) {
  if (!input.yields.empty() && !input.arch.ends_with("_90a")) {
    throw std::invalid_argument("where warps yield can be set for sm_90a alone, got \"" +
                                std::string(input.arch) + "\"");
  }
  const auto check_name = [](std::string_view name) {
    if (!name.starts_with('/')) {
      throw std::invalid_argument("the name of a source must be absolute (\"/kiln/...\"), got \"" +
                                  std::string(name) + "\"");
    }
  };
  check_name(input.name);
  for (const SourceFile& header : input.headers) check_name(header.name);
  if (input.entry.empty()) throw std::invalid_argument("the name of the kernel must be given");
}

[[noreturn]] void throw_failed(const Nvrtc& api, const CompileInput& input, nvrtcResult result,
                               std::string log) {
  // The number is known, but this NVRTC has no such suffix for it.
  if (result == NVRTC_ERROR_INVALID_OPTION) throw_bad_arch(api, input.arch);
  std::string message = "NVRTC " + api.info.version + " could not compile " +
                        std::string(input.name) + " for " + std::string(input.arch);
  if (result != NVRTC_ERROR_COMPILATION) {
    message += " (" + std::string(api.nvrtcGetErrorString(result)) + ")";
  }
  message += ":\n" + log;
  throw CompileError(message, std::move(log), std::string(input.name));
}

// Where a driver is installed, NVRTC from 12.9 on keeps a cache of its own there. A hit comes
// without ptxas's report, which we need, and in no compile time, which we state. Not in
// compile_options, as it does not change the output and older versions refuse it.
void add_no_cache(const Nvrtc& api, std::vector<const char*>& options) {
  int major = 0, minor = 0;
  api.nvrtcVersion(&major, &minor);
  if (major * 100 + minor >= 1209) options.push_back("--no-cache");
}

// As ptxas reports them; none where it did not run. Null if there is no such kernel.
std::optional<ResourceUse> resources_of(const CompileResult& compiled, const CompileInput& input) {
  if (!is_virtual(input.arch)) return parse_compile_log(compiled.log, input.entry);
  const std::string head = ".entry " + std::string(input.entry) + "(";
  if (compiled.ptx.find(head) == std::string::npos) return std::nullopt;
  return ResourceUse{};
}

}  // namespace

std::string_view compile_options() { return kOptionsText; }

CompileResult compile(const CompileInput& input) {
  check_input(input);
  const Nvrtc& api = nvrtc();
  check_arch(api, input.arch);
  const CompileScope under_way;
  const auto start = std::chrono::steady_clock::now();

  const std::string arch = "--gpu-architecture=" + std::string(input.arch);
  const PhaseTimes times;
  std::vector<const char*> options(kOptions.begin(), kOptions.end());
  options.push_back(arch.c_str());
  add_no_cache(api, options);
  if (!times.option().empty()) options.push_back(times.option().c_str());

  Program program(api, input);
  const nvrtcResult result = program.compile(options);
  CompileResult compiled;
  compiled.log = program.log();
  if (result != NVRTC_SUCCESS) throw_failed(api, input, result, std::move(compiled.log));
  compiled.ptx = program.ptx();
  const auto resources = resources_of(compiled, input);
  if (!resources) {
    throw CompileError(std::string(input.name) + " defines no kernel extern \"C\" " +
                           std::string(input.entry) + ":\n" + compiled.log,
                       compiled.log, std::string(input.name));
  }
  compiled.resources = *resources;
  if (!is_virtual(input.arch)) {
    compiled.cubin = program.cubin();
    const std::string problem = set_yields(compiled.cubin, input.entry, input.yields);
    if (!problem.empty()) compiled.resources.warnings.push_back(problem);
  }
  compiled.frontend_seconds = times.frontend_seconds();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  compiled.seconds = elapsed.count();
  return compiled;
}

}  // namespace kiln
