#include "known_calls.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "errors.h"
#include "known_values.h"
#include "names.h"
#include "streams.h"

namespace kiln::python {
namespace {

constexpr std::size_t kMostCallables = 1024, kMostSizes = 64;  // beyond that all are forgotten
constexpr int kMostChanges = 8;  // of what callables hold: then they are not looked at again

// A call's query, key and value [batch, heads, length, head_dim] have these sizes.
struct Sizes {
  std::array<std::int64_t, 12> extents{};
  DlDevice device{};
  bool enable_gqa = false;

  bool operator==(const Sizes& other) const {
    return extents == other.extents && device.type == other.device.type &&
           device.id == other.device.id && enable_gqa == other.enable_gqa;
  }
};

// A known call has certain sizes, and keeps what decided its variant.
struct KnownCall {
  Sizes sizes;
  std::vector<KnownFunction> functions{};
  std::vector<KnownTensor> tensors{};
  std::optional<KnownBlocks> blocks{};
  KnownObject
      bound;  // weakly: kiln.flex.plan.Bound, which ends with any tensor that it is bound to
};

// Calls are found by the addresses of score_mod, mask_mod and block_mask.
using Addresses = std::array<PyObject*, 3>;
struct HashOfAddresses {
  std::size_t operator()(const Addresses& addresses) const {
    std::size_t hash = 0;
    for (PyObject* address : addresses)
      hash = hash * 31 + reinterpret_cast<std::size_t>(address) / 16;
    return hash;
  }
};

struct KnownCallables {
  std::array<KnownObject, 3> objects;
  int changes = 0;
  std::vector<KnownCall> calls;

  bool are(const Addresses& addresses) const {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (!objects[i].is(addresses[i])) return false;
    }
    return true;
  }
};

using Registry = std::unordered_map<Addresses, KnownCallables, HashOfAddresses>;

// The GIL guards it. It is never destroyed, as its objects cannot be let go of when Python has
// ended.
Registry& registry() {
  static auto& known = *new Registry;
  return known;
}

// Returns null where these callables are not known.
KnownCallables* find(const Addresses& addresses) {
  const auto found = registry().find(addresses);
  if (found == registry().end() || !found->second.are(addresses)) return nullptr;
  return &found->second;
}

// Returns how torch.Tensor itself is read, and null for what else a call may be given: subclasses
// may have no memory, and PyTorch before 2.10 does not say in which way a tensor's sizes are read
// quickly.
const Framework* framework_of_plain(PyObject* tensor) {
  // Not found by an initialiser: who waits for one with the GIL would keep it from ending.
  static constinit Framework plain;
  if (plain.type == nullptr) {
    const py::object type = py::module_::import("torch").attr("Tensor");
    if (reinterpret_cast<PyObject*>(Py_TYPE(tensor)) != type.ptr()) return nullptr;
    plain = framework_of(tensor, {"flex_attention", "query"});
  }
  const bool is_read = Py_TYPE(tensor) == plain.type && plain.transport == Transport::exchange;
  return is_read ? &plain : nullptr;
}

std::optional<Sizes> sizes_of(const std::array<PyObject*, 3>& tensors, bool enable_gqa) {
  Sizes sizes{.enable_gqa = enable_gqa};
  auto* extent = sizes.extents.data();
  for (PyObject* tensor : tensors) {
    const Framework* framework = framework_of_plain(tensor);
    DlTensor read;
    if (framework == nullptr || !read_tensor(*framework, tensor, read) || read.ndim != 4) {
      return std::nullopt;
    }
    extent = std::copy_n(read.shape, 4, extent);
    if (tensor == tensors[0]) sizes.device = read.device;
  }
  return sizes;
}

void* stream_of(PyObject* query, const DlDevice& device) {
  if (device.type != kDlCuda) return nullptr;
  return current_stream(*framework_of_plain(query), device.id);
}

// Returns the call's bound variant, if all that decided it is the same. It runs no code of
// Python's, by which calls might be forgotten.
py::object bound_of(const KnownCall& call, const std::optional<BlockLists>& lists, void* stream) {
  if (call.blocks && !call.blocks->are_the_same(*lists, stream)) return {};
  for (const KnownFunction& function : call.functions) {
    if (!function.is_the_same()) return {};
  }
  for (const KnownTensor& tensor : call.tensors) {
    if (!tensor.is_the_same()) return {};
  }
  // Whoever binds a tensor that requires grad refuses it.
  const auto refuses = [](const KnownTensor& one) {
    return one.is_bound && requires_grad(one.framework, one.tensor.get().ptr());
  };
  const bool binds = std::ranges::any_of(call.tensors, &KnownTensor::is_bound);
  if (binds && grad_is_enabled() && std::ranges::any_of(call.tensors, refuses)) return {};
  return call.bound.get();
}

// The arguments are query, key, value, enable_gqa, score_mod, mask_mod and block_mask.
PyObject* known_variant(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return guarded([&]() -> PyObject* {
    if (count != 7) PyErr_BadArgument(), rethrow_python_error();
    const Addresses addresses{args[4], args[5], args[6]};
    const KnownCallables* known = find(addresses);
    if (known == nullptr) Py_RETURN_NONE;
    const auto sizes = sizes_of({args[0], args[1], args[2]}, args[3] == Py_True);
    if (!sizes) Py_RETURN_NONE;
    std::optional<BlockLists> lists;
    void* stream = nullptr;
    if (args[6] != Py_None) {
      lists = lists_of(args[6]);
      stream = stream_of(args[0], sizes->device);
      known = find(addresses);  // again, as attributes may run code of Python's
      if (known == nullptr) Py_RETURN_NONE;
    }
    const auto call = std::ranges::find(known->calls, *sizes, &KnownCall::sizes);
    if (call == known->calls.end()) Py_RETURN_NONE;
    const py::object bound = bound_of(*call, lists, stream);
    if (!bound) Py_RETURN_NONE;
    return take(PyObject_GetAttr(bound.ptr(), names().variant)).release().ptr();
  });
}

PyMethodDef g_known_variant{"known_variant",
                            reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&known_variant)),
                            METH_FASTCALL, nullptr};

Addresses addresses_of(const py::tuple& callables) {
  return {callables[0].ptr(), callables[1].ptr(), callables[2].ptr()};
}

bool may_be_known(const py::tuple& callables) {
  const KnownCallables* known = find(addresses_of(callables));
  return known == nullptr || known->changes <= kMostChanges;
}

KnownCallables& entry_of(const Addresses& addresses) {
  if (KnownCallables* known = find(addresses)) return *known;
  if (registry().size() >= kMostCallables) registry().clear();
  KnownCallables& entered = registry()[addresses];
  entered = {};
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    entered.objects[i] = KnownObject(weak_reference(addresses[i]));
  }
  return entered;
}

void give_up(const py::tuple& callables) {
  KnownCallables& known = entry_of(addresses_of(callables));
  known.changes = kMostChanges + 1;
  known.calls.clear();
}

// Places are pairs of where an object is held and the object, or a weak reference to it; a tuple of
// one has a place that holds none.
template <class Place, class Convert>
std::vector<std::pair<Place, KnownObject>> places_of(const py::list& list, Convert convert) {
  std::vector<std::pair<Place, KnownObject>> places;
  for (const py::handle one : list) {
    const auto place = py::reinterpret_borrow<py::tuple>(one);
    places.emplace_back(convert(place[0]),
                        place.size() == 1 ? KnownObject() : KnownObject(py::object(place[1])));
  }
  return places;
}

// kiln.flex.places writes a function as (function, cells, globals).
KnownFunction function_of(const py::tuple& held) {
  KnownFunction known{KnownObject(weak_reference(held[0])), held[0].attr("__code__"), {}, {}};
  known.cells =
      places_of<Py_ssize_t>(held[1], [](auto place) { return py::cast<Py_ssize_t>(place); });
  known.globals = places_of<py::object>(held[2], [](auto name) { return py::object(name); });
  return known;
}

std::optional<KnownTensor> tensor_of(py::handle object, const py::list& bound_tensors) {
  KnownTensor known{KnownObject(weak_reference(object)),
                    framework_of(object.ptr(), {"flex_attention", "captured tensor"}),
                    {},
                    false};
  DlTensor read;
  if (!read_tensor(known.framework, object.ptr(), read)) return std::nullopt;
  known.memory = KnownMemory(read);
  known.is_bound =
      std::ranges::any_of(bound_tensors, [&](py::handle tensor) { return tensor.is(object); });
  return known;
}

// Enters a call that was checked, and whose variant was bound: its functions, as kiln.flex.places
// writes them, all tensors that these hold, those that the variant was bound to, and the Bound.
void remember_call(py::object query, py::object key, py::object value, bool enable_gqa,
                   const py::tuple& callables, const py::list& functions, const py::list& tensors,
                   const py::list& bound_tensors, const py::object& bound) {
  const auto sizes = sizes_of({query.ptr(), key.ptr(), value.ptr()}, enable_gqa);
  if (!sizes) return;
  KnownCall call{.sizes = *sizes, .bound = KnownObject(weak_reference(bound))};
  for (const py::handle function : functions) {
    call.functions.push_back(function_of(py::reinterpret_borrow<py::tuple>(function)));
  }
  for (const py::handle tensor : tensors) {
    auto known = tensor_of(tensor, bound_tensors);
    if (!known) return give_up(callables);
    call.tensors.push_back(std::move(*known));
  }
  const py::object block_mask = callables[2];
  if (!block_mask.is_none()) {
    call.blocks.emplace(lists_of(block_mask), stream_of(query.ptr(), sizes->device));
  }
  KnownCallables& known = entry_of(addresses_of(callables));
  const auto before = std::ranges::find(known.calls, *sizes, &KnownCall::sizes);
  if (before == known.calls.end()) {
    if (known.calls.size() >= kMostSizes) known.calls.clear();
    known.calls.push_back(std::move(call));
  } else if (++known.changes > kMostChanges) {
    known.calls.clear();
  } else {
    *before = std::move(call);
  }
}

}  // namespace

void register_known_calls(py::module_& module) {
  module.add_object("known_variant", take(PyCFunction_NewEx(&g_known_variant, nullptr, nullptr)));
  module.def("may_be_known", &may_be_known);
  module.def("give_up_knowing", &give_up);
  module.def("remember_call", &remember_call);
}

}  // namespace kiln::python
