// Everything around the operations. Reports cross as JSON texts; the Python package parses them.
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "docstrings.h"
#include "entries.h"
#include "errors.h"
#include "instance.h"
#include "jit/compile/compile_scope.h"
#include "jit/compile/compiler.h"
#include "jit/tools/bundle_entry.h"
#include "kiln/control.h"
#include "runtime/emulator/machine/emulated_device.h"
#include "streams.h"

namespace kiln::python {
namespace {

// Blocking work must not hold the GIL: another thread may hold the lock that it waits for.
void* leave_python() {
  if (!Py_IsInitialized() || PyGILState_Check() == 0) return nullptr;
  return PyEval_SaveThread();
}
void enter_python(void* token) {
  if (token != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(token));
}

// Ctrl-C while the emulated device computes. A thread that outlives Python has nobody to ask.
void check_signals() {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

const char* mode_name(JitMode mode) {
  switch (mode) {
    case JitMode::automatic:
      return "auto";
    case JitMode::warn:
      return "warn";
    case JitMode::off:
      return "off";
  }
  return "auto";
}

// `with kiln.no_compile():` on this thread.
struct NoCompileContext {
  std::vector<std::unique_ptr<NoCompile>> scopes;  // a context may be entered again while open
};

auto& scopes_of(py::handle self) { return object_of<NoCompileContext>(self, "NoCompile").scopes; }

// Takes the first exception of a progress callback or of a signal (Ctrl-C), which ends the work; it
// is raised when the kernels under way are done.
struct ProgressRelay {
  py::object callback;
  std::exception_ptr failure;

  void operator()(const PrewarmProgress& progress) {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire gil;
    if (failure || callback.is_none()) return;
    try {
      callback(progress.done, progress.total, progress.what, progress.outcome, progress.seconds);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  bool stops() {
    if (!Py_IsInitialized()) return true;  // the process is about to end
    const py::gil_scoped_acquire gil;
    try {
      // Runs signal handlers on the main thread, nothing on others.
      if (!failure && PyErr_CheckSignals() != 0) rethrow_python_error();
    } catch (...) {
      failure = std::current_exception();
    }
    return failure != nullptr;
  }
};

std::string prewarm_specs(const std::string& specs, std::vector<std::string> archs, int jobs,
                          bool recompile, bool check_only, const py::object& callback) {
  PrewarmOptions options;
  options.archs = std::move(archs);
  options.jobs = jobs;
  options.recompile = recompile;
  options.check_only = check_only;
  ProgressRelay relay{callback, nullptr};
  options.progress = [&relay](const PrewarmProgress& progress) { relay(progress); };
  options.cancelled = [&relay] { return relay.stops(); };
  std::string report;
  {
    const py::gil_scoped_release unlocked;
    report = prewarm(specs, options);
  }
  if (relay.failure) std::rethrow_exception(relay.failure);
  return report;
}

// The report, and the cubins as bytes.
py::tuple inspect_kernels(const std::string& spec, const std::string& arch) {
  std::vector<std::string> cubins;
  std::string report;
  {
    const py::gil_scoped_release unlocked;
    report = inspect(spec, arch, &cubins);
  }
  py::list images;
  for (const std::string& cubin : cubins) images.append(py::bytes(cubin));
  return py::make_tuple(report, images);
}

std::string inspect_sources(const std::string& spec, const std::string& arch) {
  const py::gil_scoped_release unlocked;
  return inspect_source(spec, arch);
}

py::dict nvrtc_facts(bool load) {
  NvrtcInfo info;
  {
    const py::gil_scoped_release unlocked;
    info = nvrtc_info(load);
  }
  py::dict facts;
  facts["loaded"] = info.loaded;
  facts["path"] = info.path;
  facts["how"] = info.how;
  facts["version"] = info.version;
  facts["problem"] = info.problem;
  return facts;
}

// Without the GIL, as whatever may wait.
void set_sink(std::function<void(int, const std::string&)> sink) {
  const py::gil_scoped_release unlocked;
  set_log_sink(std::move(sink));
}

void set_log_callback(const py::object& callback) {
  if (callback.is_none()) return set_sink(nullptr);
  if (PyCallable_Check(callback.ptr()) == 0) {
    throw py::type_error(
        "set_log: callback must be callable as callback(level, text) or None, got " +
        repr_of(callback.ptr()));
  }
  // Held until the process ends: a log line may come from any thread at any time.
  PyObject* held = py::object(callback).release().ptr();
  set_sink([held](int level, const std::string& text) {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire gil;
    const py::object result =
        py::reinterpret_steal<py::object>(PyObject_CallFunction(held, "is", level, text.c_str()));
    if (!result) PyErr_WriteUnraisable(held);  // a log line never fails a call
  });
}

py::dict event_dict(const CompileEvent& event) {
  py::dict facts;
  facts["what"] = event.what;
  facts["spec"] = py::module_::import("json").attr("loads")(event.spec);
  facts["key"] = event.key;
  facts["arch"] = event.arch;
  facts["outcome"] = event.outcome;
  facts["why"] = event.why;
  facts["seconds"] = event.seconds;
  return facts;
}

// Drops a callback on whatever thread had it last.
struct DropCallback {
  void operator()(PyObject* callback) const {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire gil;
    Py_DECREF(callback);
  }
};

std::uint64_t on_compile(const py::object& callback) {
  if (PyCallable_Check(callback.ptr()) == 0) {
    throw py::type_error("on_compile: callback must be callable as callback(event), got " +
                         repr_of(callback.ptr()));
  }
  const std::shared_ptr<PyObject> held(py::object(callback).release().ptr(), DropCallback{});
  const py::gil_scoped_release unlocked;
  return add_compile_listener([held](const CompileEvent& event) {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire gil;
    try {
      py::reinterpret_borrow<py::object>(held.get())(event_dict(event));
    } catch (py::error_already_set& error) {
      // Ctrl-C is meant for the program, which notices it after the call.
      if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
      throw std::runtime_error(error.what());  // its text alone: that needs no GIL
    }
  });
}

// None, or the bytes of the cubin, the PTX and the JSON file.
py::object bundle_files(const std::string& key) {
  std::optional<cache::EntryFiles> files;
  {
    const py::gil_scoped_release unlocked;
    files = bundle_entry(key);
  }
  if (!files) return py::none();
  return py::make_tuple(py::bytes(files->cubin), py::bytes(files->ptx), py::bytes(files->json));
}

// The handle of the current stream of a tensor's framework, in a tenth of the time that PyTorch's
// own function takes, which makes an object of it.
std::uintptr_t current_stream_of(const py::object& tensor, int device_ordinal) {
  const Framework framework = framework_of(tensor.ptr(), {"current_stream", "tensor"});
  return reinterpret_cast<std::uintptr_t>(current_stream(framework, device_ordinal));
}

void register_bundles(py::module_& module) {
  using unlocked = py::call_guard<py::gil_scoped_release>;
  module.def("bundle_entry", &bundle_files);
  module.def(
      "bundle_entry_fault",
      [](const std::string& key, std::string cubin, std::string ptx, std::string json) {
        return bundle_entry_fault(key, {std::move(cubin), std::move(ptx), std::move(json)});
      },
      unlocked());
  module.def(
      "store_bundle_entry",
      [](const std::string& key, std::string cubin, std::string ptx, std::string json,
         bool replace) {
        return store_bundle_entry(key, {std::move(cubin), std::move(ptx), std::move(json)},
                                  replace);
      },
      unlocked());
}

void register_cache(py::module_& module) {
  using unlocked = py::call_guard<py::gil_scoped_release>;
  module.def("cache_info", &cache_info, unlocked());
  module.def("cache_list", &cache_list, unlocked());
  module.def("cache_verify", &cache_verify, unlocked());
  module.def("cache_clear", &cache_clear, unlocked());
  module.def(
      "cache_prune",
      [](std::optional<std::uint64_t> max_bytes, std::int64_t unused_since,
         const std::string& older_than_nvrtc, bool dry_run) {
        return cache_prune(
            {max_bytes.value_or(UINT64_MAX), unused_since, older_than_nvrtc, dry_run});
      },
      py::kw_only(), py::arg("max_bytes"), py::arg("unused_since"), py::arg("older_than_nvrtc"),
      py::arg("dry_run"), unlocked());
}

}  // namespace

void register_control(py::module_& module) {
  using unlocked = py::call_guard<py::gil_scoped_release>;
  Py_AtExit(&end_compiles);
  set_blocking_hooks({&leave_python, &enter_python});
  runtime::set_emulator_poll(&check_signals);
  module.def("version", &version);
  module.def("set_jit",
             [](const std::string& mode) { return mode_name(set_jit(parse_jit_mode(mode))); });
  module.def("set_device", &set_device);
  module.def("device", &device);
  module.def("current_stream", &current_stream_of);
  module.def("stats", &stats);
  module.def("reset_stats", &reset_stats);
  module.def("clear_memory_cache", &clear_memory_cache, unlocked());
  module.def("prewarm", &prewarm_specs);
  module.def("preload", &preload, unlocked());
  module.def("inspect", &inspect_kernels);
  module.def("inspect_source", &inspect_sources);
  module.def("enumerate_specs", &enumerate_specs, unlocked());
  module.def("describe_families", &describe_families);
  module.def("gemm_configs", &list_gemm_configs, unlocked());
  module.def("set_tuning", &set_tuning, unlocked());
  module.def("diagnose", &diagnose, unlocked());
  module.def("nvrtc_info", &nvrtc_facts, py::arg("load"));
  module.def("set_python_paths", &set_python_paths);
  module.def("set_log", &set_log_callback);
  module.def("on_compile", &on_compile);
  module.def("remove_on_compile", &remove_compile_listener, unlocked());
  register_cache(module);
  register_bundles(module);
  py::class_<NoCompileContext>(module, "NoCompile", kNoCompileDoc)
      .def(py::init<>())
      .def("__enter__",
           [](const py::object& self) { scopes_of(self).push_back(std::make_unique<NoCompile>()); })
      .def("__exit__", [](const py::object& self, const py::args&) {
        auto& scopes = scopes_of(self);
        if (scopes.empty())
          throw std::runtime_error(
              "no_compile: left without being entered; write `with kiln.no_compile():`");
        scopes.pop_back();
      });
}

}  // namespace kiln::python
