// kiln.emulate's compiled part: the entries of a PTX module, and running one of them.
#include <pybind11/stl.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "entries.h"
#include "errors.h"
#include "jit/device_errors.h"
#include "runtime/emulator/emulated_device.h"
#include "runtime/emulator/ptx.h"

namespace kiln::python {
namespace {

namespace emulator = runtime::emulator;
using Triple = std::array<unsigned, 3>;

py::dict parameter_facts(const emulator::Parameter& parameter) {
  py::dict facts;
  facts["name"] = std::string(parameter.name);
  facts["type"] = std::string(emulator::info(parameter.type).name);
  facts["offset"] = parameter.offset;
  facts["bytes"] = parameter.bytes;
  facts["is_struct"] =
      parameter.bytes != static_cast<std::uint64_t>(emulator::bytes_of(parameter.type));
  return facts;
}

py::dict entry_facts(const emulator::Function& function) {
  py::list parameters;
  for (const emulator::Parameter& parameter : function.parameters) {
    parameters.append(parameter_facts(parameter));
  }
  py::dict facts;
  facts["name"] = std::string(function.name);
  facts["parameters"] = parameters;
  facts["parameter_bytes"] = function.parameter_bytes;
  return facts;
}

emulator::Module parse(const std::string& ptx) {
  const py::gil_scoped_release unlocked;
  try {
    return emulator::parse_ptx(ptx);
  } catch (const runtime::DeviceError& error) {
    throw_device_error(error);
  }
}

py::list ptx_entries(const std::string& ptx) {
  const emulator::Module module = parse(ptx);
  py::list entries;
  for (const emulator::Function& function : module.functions) {
    if (function.is_entry && function.has_body) entries.append(entry_facts(function));
  }
  return entries;
}

using Memory = std::tuple<std::uint64_t, std::uint64_t, bool>;  // address, bytes, written

void run_ptx(const std::string& ptx, const std::string& entry, const std::string& arch,
             const Triple& grid, const Triple& block, const Triple& cluster, unsigned shared_bytes,
             const py::bytes& arguments, const std::vector<Memory>& memory,
             const std::string& options, std::int64_t trace_block, int trace_thread) {
  emulator::Run run;
  run.ptx = ptx, run.entry = entry, run.arch = arch;
  run.shape = {.grid = grid,
               .block = block,
               .cluster = cluster,
               .dynamic_shared_bytes = shared_bytes,
               .programmatic = false};
  const std::string_view parameter_block(arguments);
  run.arguments = std::as_bytes(std::span(parameter_block));
  std::vector<runtime::MemorySpan> spans;
  for (const auto& [address, bytes, written] : memory) spans.push_back({address, bytes, written});
  run.spans = spans;
  run.options = emulator::parse_options(options);
  run.options.trace_block = trace_block;
  run.options.trace_thread = trace_thread;
  const py::gil_scoped_release unlocked;
  try {
    emulator::run(run);
  } catch (const runtime::DeviceError& error) {
    throw_device_error(error);
  }
}

}  // namespace

void register_emulate(py::module_& module) {
  module.def("ptx_entries", &ptx_entries);
  module.def("run_ptx", &run_ptx);
}

}  // namespace kiln::python
