// Which framework a tensor's Python type belongs to and how its tensors are read. Found once per
// type, then kept.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "dlpack.h"
#include "kiln/error.h"
#include "torch_negative.h"

namespace kiln::python {

namespace py = pybind11;

// From the fastest to the most general. `torch` is a PyTorch without the exchange table (< 2.10).
enum class Transport : std::uint8_t { exchange, torch, cupy, numpy, dlpack, array_interface };

struct Framework {
  PyTypeObject* type = nullptr;
  Transport transport = Transport::dlpack;
  bool is_torch = false;               // has grad mode
  bool is_jax = false;                 // read through DLPack, allocates by a call of its own
  const DlExchangeApi* api = nullptr;  // of Transport::exchange
  // PyTorch's C getter of requires_grad, a tenth of the cost of an attribute; null = ask by name.
  const PyGetSetDef* requires_grad = nullptr;
  IsNegative* is_negative = nullptr;  // of PyTorch alone
};

// The operation and argument that a message is about; both are string literals.
struct Subject {
  const char* op;
  const char* argument;
};

// PyTorch traces: a tensor without memory, by which it finds out what a call would give (a
// FakeTensor, a FunctionalTensor, those of torch.func), a symbolic number, or a mode that looks at
// operators. An operation hands its call to its operator then.
class TracedTensorError : public TypeError {
 public:
  using TypeError::TypeError;
};

[[noreturn]] void throw_type(Subject subject, const std::string& what);
[[noreturn]] void throw_value(Subject subject, const std::string& what);

// "numpy.ndarray", for messages.
std::string type_name(PyObject* object);

// Throws TypeError, naming the cure, for what is no tensor.
Framework framework_of(PyObject* object, Subject subject);

// The message about nested tensors, jagged ones and others.
inline constexpr const char* kNestedTensor =
    "is a nested tensor, which no operation takes; give attention its rows packed, with their "
    "cu_seqlens (jit.flash_attention_varlen)";

// Throws TracedTensorError where a mode looks at PyTorch's operators (torch.utils._python_dispatch:
// make_fx, FlopCounterMode), which would not see the C entries. Called only with a tensor of
// PyTorch's in hand.
void check_dispatch_modes(Subject subject);
// Throws TracedTensorError, which takes the place of the error that is set, where a transform of
// torch.func is active: it wraps what is allocated, whose memory cannot be had then.
void check_transforms();
// Throws TracedTensorError for a number that stands for a symbolic shape, whose value would be
// fixed by reading it.
void check_symbolic(PyObject* number, Subject subject);

// Whether PyTorch records what gradients need. Called only with a tensor of PyTorch's in hand.
bool grad_is_enabled();
// Whether a tensor of PyTorch's requires grad.
bool requires_grad(const Framework& framework, PyObject* tensor);

// The table that the type publishes, or null. A newer major version is walked back.
const DlExchangeApi* exchange_api_of(PyObject* type);

}  // namespace kiln::python
