// kiln.emulate's compiled part: the entries of a PTX module, and running one of them.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "entries.h"
#include "errors.h"
#include "jit/op/device_errors.h"
#include "runtime/emulator/machine/emulated_device.h"
#include "runtime/emulator/ptx/ptx.h"

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

constexpr std::array<std::pair<std::string_view, runtime::TensorMapElement>, 9> kElements = {{
    {"uint8", runtime::TensorMapElement::u8},
    {"uint16", runtime::TensorMapElement::u16},
    {"uint32", runtime::TensorMapElement::u32},
    {"int32", runtime::TensorMapElement::i32},
    {"uint64", runtime::TensorMapElement::u64},
    {"float16", runtime::TensorMapElement::f16},
    {"float32", runtime::TensorMapElement::f32},
    {"float64", runtime::TensorMapElement::f64},
    {"bfloat16", runtime::TensorMapElement::bf16},
}};

runtime::TensorMapElement element_of(const std::string& dtype) {
  for (const auto& [name, element] : kElements) {
    if (name == dtype) return element;
  }
  throw std::invalid_argument("TensorMap: no tensor map holds elements of dtype " + dtype);
}

// Sizes come fastest dimension first; of the strides, that of the first is left out.
py::bytes encode_tensor_map(std::uint64_t address, const std::string& dtype,
                            const std::vector<std::uint64_t>& dims,
                            const std::vector<std::uint64_t>& strides,
                            const std::vector<std::uint32_t>& box, int swizzle_bytes) {
  runtime::TensorMapSpec spec;
  if (dims.empty() || dims.size() > spec.dims.size() || box.size() != dims.size() ||
      strides.size() + 1 != dims.size()) {
    throw std::invalid_argument(
        "TensorMap: the array and its box must both have 1 to 5 dimensions");
  }
  using Swizzle = runtime::TensorMapSwizzle;
  const std::array<std::pair<int, Swizzle>, 4> swizzles = {
      {{0, Swizzle::none}, {32, Swizzle::b32}, {64, Swizzle::b64}, {128, Swizzle::b128}}};
  const auto* swizzle = std::ranges::find(swizzles, swizzle_bytes, &std::pair<int, Swizzle>::first);
  if (swizzle == swizzles.end()) {
    throw std::invalid_argument("TensorMap: swizzle must be 0, 32, 64 or 128");
  }
  spec.address = address;
  spec.element = element_of(dtype);
  spec.rank = static_cast<int>(dims.size());
  std::ranges::copy(dims, spec.dims.begin());
  std::ranges::copy(strides, spec.strides_bytes.begin());
  std::ranges::copy(box, spec.box.begin());
  spec.swizzle = swizzle->second;
  const runtime::TensorMap map = runtime::emulated_device("sm_90a").make_tensor_map(spec);
  return py::bytes(reinterpret_cast<const char*>(map.words.data()), sizeof(map.words));
}

}  // namespace

void register_emulate(py::module_& module) {
  module.def("encode_tensor_map", &encode_tensor_map);
  module.def("ptx_entries", &ptx_entries);
  module.def("run_ptx", &run_ptx);
}

}  // namespace kiln::python
