// Fixture: the runtime on the fake driver, in its initial state, for the length of a test.
#pragma once

#include <dlfcn.h>

#include <new>
#include <stdexcept>
#include <string>

#include "runtime/cuda/driver.h"
#include "tests/support/fake_cuda.h"

namespace kiln::testing {

class FakeDriver {
 public:
  FakeDriver() {
    void* handle = dlopen(KILN_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    const auto state =
        reinterpret_cast<decltype(&fake_cuda_state)>(dlsym(handle, "fake_cuda_state"));
    state_ = state();
    state_->~FakeCuda();
    new (state_) FakeCuda;
    runtime::set_driver_library_for_testing(KILN_FAKE_CUDA);
  }
  ~FakeDriver() { runtime::set_driver_library_for_testing(nullptr); }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  FakeCuda* operator->() { return state_; }

 private:
  FakeCuda* state_;
};

// what() of the exception of type E that `call` throws; empty when it throws none.
template <typename E, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

inline bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The smallest image that looks whole: an ELF header without tables. Its flags are a number that
// the handles of the kernel tell (numbered() in fake_cuda.h).
inline std::string fake_cubin(char number = 0) {
  std::string image(64, '\0');
  image.replace(0, 5,
                "\x7f"
                "ELF\x02");
  image[48] = number;
  return image;
}

}  // namespace kiln::testing
