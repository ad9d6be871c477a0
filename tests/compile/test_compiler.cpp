// The compiler on a real NVRTC, without a GPU: results, errors, and independence of the folder.
#include "jit/compile/compiler.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "jit/compile/nvrtc.h"
#include "runtime/cuda/kernel_image.h"
#include "tests/support/catch.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScale =
    "extern \"C\" __global__ void __launch_bounds__(128) scale(float* p, float by) {\n"
    "  __shared__ float row[128];\n"
    "  row[threadIdx.x] = p[threadIdx.x];\n"
    "  __syncthreads();\n"
    "  p[threadIdx.x] = by * row[127 - threadIdx.x];\n"
    "}\n";

CompileResult compile_text(std::string_view source, std::string_view arch = "sm_90a",
                           std::string_view entry = "scale",
                           std::span<const SourceFile> headers = {}) {
  set_nvrtc_search({.python_paths = {KILN_TEST_SITE_PACKAGES}});
  return compile({.name = "/kiln/kernel.cu",
                  .source = source,
                  .headers = headers,
                  .arch = arch,
                  .entry = entry});
}

bool mentions(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The CompileError of a source; fails the test when there is none.
CompileError error_of(std::string_view source, std::span<const SourceFile> headers = {},
                      std::string_view arch = "sm_90a") {
  try {
    compile_text(source, arch, "scale", headers);
  } catch (const CompileError& error) {
    return error;
  }
  FAIL("the source was compiled");
  throw 0;
}

// Everything that a command wrote, to either stream.
std::string output_of(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  for (int byte = std::fgetc(pipe); byte != EOF; byte = std::fgetc(pipe)) text += char(byte);
  REQUIRE(pclose(pipe) == 0);
  return text;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "kiln-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  void write(const fs::path& file, const char* text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The helper's output when it runs in `folder`.
std::string helper_in(const fs::path& folder, const char* arguments = "") {
  return output_of("cd '" + folder.string() +
                   "' && '" KILN_TEST_HELPERS "/helper_compile' '" KILN_TEST_SITE_PACKAGES "' " +
                   arguments);
}

TEST_CASE("a kernel is compiled to machine code and PTX", "[compiler]") {
  for (const std::string arch : {"sm_80", "sm_90a", "sm_120"}) {
    const CompileResult result = compile_text(kScale, arch);
    CHECK(runtime::cubin_problem(result.cubin).empty());
    CHECK(mentions(result.ptx, ".target " + arch));
    CHECK(mentions(result.ptx, ".entry scale"));
    CHECK(result.ptx.back() != '\0');
    CHECK(result.resources.registers > 0);
    CHECK(result.resources.static_shared_bytes == 512);
    CHECK(result.resources.spill_store_bytes == 0);
    CHECK(result.resources.stack_bytes == 0);
    CHECK(result.resources.warnings.empty());
    CHECK(result.seconds > 0);
    CHECK(result.frontend_seconds < result.seconds);
  }
}

TEST_CASE("for a virtual arch it is the same PTX, and no machine code", "[compiler]") {
  for (const std::string number : {"80", "90a", "120"}) {
    const CompileResult real = compile_text(kScale, "sm_" + number);
    const CompileResult result = compile_text(kScale, "compute_" + number);
    CHECK(result.ptx == real.ptx);
    CHECK(result.cubin.empty());
    CHECK(result.resources.registers == 0);
  }
}

TEST_CASE("a truncated cubin is noticed", "[compiler]") {
  const std::string cubin = compile_text(kScale).cubin;
  for (const std::size_t size : {cubin.size() - 1, cubin.size() / 2, std::size_t{64}}) {
    CHECK_FALSE(runtime::cubin_problem(std::string_view(cubin).substr(0, size)).empty());
  }
}

TEST_CASE("the sections of a cubin are found by their whole names", "[compiler]") {
  const std::string cubin = compile_text(kScale).cubin;
  const std::string_view code = runtime::cubin_section(cubin, ".text.scale");
  CHECK(code.size() > 0);
  CHECK(code.size() % 16 == 0);
  CHECK(code.data() > cubin.data());
  CHECK(code.data() + code.size() < cubin.data() + cubin.size());
  // The last of these has no bytes in the file.
  for (const char* name : {".text.scal", ".text.scale2", "text.scale", ".nv.shared.scale"}) {
    CHECK(runtime::cubin_section(cubin, name).empty());
  }
  CHECK(runtime::cubin_section(cubin.substr(0, cubin.size() - 1), ".text.scale").empty());
}

TEST_CASE("timing the phases does not change the output", "[compiler]") {
  const CompileResult result = compile_text(kScale);
  std::vector<std::string> options;
  std::istringstream words{std::string(compile_options())};
  for (std::string word; words >> word;) options.push_back(word);
  options.push_back("--gpu-architecture=sm_90a");
  std::vector<const char*> terminated;
  for (const std::string& option : options) terminated.push_back(option.c_str());

  const Nvrtc& api = nvrtc();
  nvrtcProgram program = nullptr;
  REQUIRE(api.nvrtcCreateProgram(&program, kScale, "/kiln/kernel.cu", 0, nullptr, nullptr) ==
          NVRTC_SUCCESS);
  REQUIRE(api.nvrtcCompileProgram(program, int(terminated.size()), terminated.data()) ==
          NVRTC_SUCCESS);
  std::size_t size = 0;
  REQUIRE(api.nvrtcGetCUBINSize(program, &size) == NVRTC_SUCCESS);
  std::string plain(size, '\0');
  REQUIRE(api.nvrtcGetCUBIN(program, plain.data()) == NVRTC_SUCCESS);
  CHECK(api.nvrtcDestroyProgram(&program) == NVRTC_SUCCESS);
  CHECK(plain == result.cubin);
}

TEST_CASE("a kernel that spills is reported", "[compiler]") {
  const CompileResult result = compile_text(R"(
      extern "C" __global__ void __launch_bounds__(1024, 2) scale(float* p, float by) {
        float a[64];
        #pragma unroll
        for (int i = 0; i < 64; ++i) a[i] = p[i * 1024 + threadIdx.x];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 64; ++i) p[i * 1024 + threadIdx.x] = a[63 - i] * by + a[i];
      })");
  CHECK(result.resources.registers <= 32);
  CHECK(result.resources.spill_store_bytes > 0);
  CHECK(result.resources.spill_load_bytes > 0);
}

TEST_CASE("an ignored setmaxnreg is reported", "[compiler]") {
  const CompileResult result = compile_text(R"(
      extern "C" __global__ void scale(float* p) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        p[0] = 1;
      })");
  REQUIRE(result.resources.warnings.size() == 1);
  CHECK(mentions(result.resources.warnings[0], "(C7508)"));
}

TEST_CASE("a wrong source is one error with NVRTC's log", "[compiler]") {
  const CompileError error =
      error_of("extern \"C\" __global__ void scale(float* p) {\n  p[0] = 1 + ;\n}\n");
  const std::string text = error.what();
  CHECK(mentions(text, "could not compile /kiln/kernel.cu for sm_90a"));
  CHECK(mentions(error.log(), "/kiln/kernel.cu(2): error: expected an expression"));
  CHECK(text.ends_with(error.log()));
}

TEST_CASE("an error in a header names the header", "[compiler]") {
  const std::vector<SourceFile> headers{{"/kiln/base/broken.cuh", "\n\nint = 3;\n"}};
  const CompileError error = error_of("#include \"/kiln/base/broken.cuh\"\n", headers);
  CHECK(mentions(error.log(), "/kiln/base/broken.cuh(3): error"));
}

TEST_CASE("an unknown include is an error that names it", "[compiler]") {
  const CompileError error = error_of("#include \"/kiln/base/nowhere.cuh\"\n");
  CHECK(mentions(error.log(), "cannot open source file \"/kiln/base/nowhere.cuh\""));
}

TEST_CASE("an error of ptxas is a CompileError too", "[compiler]") {
  const CompileError error = error_of(
      "extern \"C\" __global__ void scale() { asm volatile(\"no.such.instruction;\"); }\n");
  CHECK(mentions(error.log(), "ptxas"));
}

TEST_CASE("a source without the named kernel is an error", "[compiler]") {
  for (const char* arch : {"sm_90a", "compute_90a"}) {
    const CompileError error = error_of("extern \"C\" __global__ void other() {}\n", {}, arch);
    CHECK(mentions(error.what(), "/kiln/kernel.cu defines no kernel extern \"C\" scale"));
  }
}

TEST_CASE("a wrong arch lists those that are supported", "[compiler]") {
  for (const char* arch : {"", "sm_", "sm_99", "sm_90b", "sm_80a", "sm_90f", "sm_090", "90a",
                           "compute_99", "compute_90b", "compute_", "virtual_90", "sm_9 0"}) {
    std::string message;
    try {
      compile_text(kScale, arch);
    } catch (const std::invalid_argument& error) {
      message = error.what();
    }
    CHECK(mentions(message, "arch \"" + std::string(arch) + "\" is not one that NVRTC"));
    CHECK(mentions(message, "sm_80, "));
    CHECK(mentions(message, "sm_90a"));
  }
}

TEST_CASE("relative names and a missing entry are refused", "[compiler]") {
  const std::vector<SourceFile> headers{{"base/types.cuh", ""}};
  CHECK_THROWS_AS(compile_text(kScale, "sm_90a", "scale", headers), std::invalid_argument);
  CHECK_THROWS_AS(compile_text(kScale, "sm_90a", ""), std::invalid_argument);
}

TEST_CASE("two threads compile in parallel to the same bytes as one", "[compiler]") {
  const std::string other = std::string("#define HALF 1\n") + kScale;
  const CompileResult expected[] = {compile_text(kScale, "sm_80"), compile_text(other, "sm_90a")};
  CompileResult got[2];
  std::thread first([&] { got[0] = compile_text(kScale, "sm_80"); });
  std::thread second([&] { got[1] = compile_text(other, "sm_90a"); });
  first.join();
  second.join();
  for (int i = 0; i < 2; ++i) {
    CHECK(got[i].cubin == expected[i].cubin);
    CHECK(got[i].ptx == expected[i].ptx);
  }
}

TEST_CASE("the output does not depend on the folder, nor on headers that lie there", "[compiler]") {
  const TemporaryFolder plain, decoys;
  const char* decoy = "#error the header on disk was read\n";
  for (const char* name : {"kiln/base/types.cuh", "base/types.cuh", "types.cuh"}) {
    decoys.write(name, decoy);
  }
  const std::string expected = helper_in(plain.path());
  // Also: NVRTC is loaded by the first compile, not before, and nothing else is printed.
  CHECK(mentions(expected, "loaded before: 0\nloaded after: 1\ncubin "));
  CHECK(helper_in(decoys.path()) == expected);
  CHECK(helper_in(decoys.path() / "kiln") == expected);
  CHECK(helper_in(decoys.path(), "without-headers") == "loaded before: 0\nrefused\n");
}

TEST_CASE("NVRTC tells where it is from", "[compiler]") {
  compile_text(kScale);
  const NvrtcInfo info = nvrtc_info(false);
  CHECK(info.loaded);
  CHECK(nvrtc_is_loaded());
  CHECK(fs::exists(info.path));
  CHECK_FALSE(info.how.empty());
  CHECK(info.version.size() >= 4);
  CHECK(info.build.size() == 8);
  CHECK(info.problem.empty());
  CHECK(std::find(info.archs.begin(), info.archs.end(), 90) != info.archs.end());
}

TEST_CASE("a wrong override is an error that names it, never a search", "[compiler]") {
  const TemporaryFolder folder;
  folder.write("libnvrtc.so.13", "not a library");
  std::string problem;
  const auto opens = [&](const NvrtcSearch& search) {
    return open_nvrtc(search, problem) != nullptr;
  };
  SECTION("missing") {
    const std::string path = (folder.path() / "nothing.so").string();
    CHECK_FALSE(opens({.nvrtc_override = path, .python_paths = {KILN_TEST_SITE_PACKAGES}}));
    CHECK(mentions(problem, "KILN_NVRTC=" + path + " cannot be used"));
    CHECK(mentions(problem, "no such file"));
  }
  SECTION("no library") {
    const std::string path = (folder.path() / "libnvrtc.so.13").string();
    CHECK_FALSE(opens({.nvrtc_override = path}));
    CHECK(mentions(problem, "KILN_NVRTC=" + path + " cannot be used"));
  }
  SECTION("a folder whose library is broken") {
    CHECK_FALSE(opens({.nvrtc_override = folder.path().string()}));
    CHECK(mentions(problem, "libnvrtc.so.13"));
  }
  SECTION("another library") {
    CHECK_FALSE(opens({.nvrtc_override = KILN_FAKE_CUDA}));
    CHECK(mentions(problem, "it has no nvrtc"));
  }
  SECTION("a broken library beside a sound one is passed over, and said so") {
    compile_text(kScale);
    fs::create_symlink(nvrtc_info(false).path, folder.path() / "libnvrtc.so.12");
    const auto found = open_nvrtc({.nvrtc_override = folder.path().string()}, problem);
    REQUIRE(found != nullptr);
    REQUIRE(found->info.passed_over.size() == 1);
    CHECK(mentions(found->info.passed_over[0], (folder.path() / "libnvrtc.so.13").string()));
  }
  SECTION("newer than the driver") {
    compile_text(kScale);
    const NvrtcInfo info = nvrtc_info(false);
    const int older = (std::stoi(info.version) - 1) * 1000;
    CHECK_FALSE(opens({.nvrtc_override = info.path, .driver_version = older}));
    CHECK(mentions(problem, "too new for the driver"));
    CHECK(opens({.nvrtc_override = info.path, .driver_version = older + 1000}));
  }
}

}  // namespace
}  // namespace kiln
