// Which device calls on host memory run on: what may be chosen, per thread, and what follows.
#include <string>
#include <thread>

#include "jit/gemm/problem.h"
#include "jit/op/device_choice.h"
#include "jit/op/device_errors.h"
#include "jit/op/launch.h"
#include "kiln/control.h"
#include "runtime/emulator/machine/faults.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using kiln::testing::FakeDriver;
using kiln::testing::mentions;
using kiln::testing::message_of;
using runtime::emulator::Schedule;
using Kind = DeviceChoice::Kind;

namespace {

// Restores this thread's choice.
struct Chosen {
  explicit Chosen(const std::string& choice) : previous(set_device(choice)) {}
  ~Chosen() { set_device(previous); }
  std::string previous;
};

std::string refusal(const std::string& text) {
  return message_of<std::invalid_argument>([&] { parse_device_choice(text); });
}

struct Product {
  TensorView a = contiguous_view(memory(), DType::f16, 0, 32, 64);
  TensorView b = contiguous_view(memory(), DType::f16, 0, 64, 32);
  TensorView out = contiguous_view(memory() + 0x10000, DType::f16, 0, 32, 32);
  GemmProblem problem;

  static char* memory() { return reinterpret_cast<char*>(0x10000); }
  explicit Product(DeviceType type) { a.device_type = b.device_type = out.device_type = type; }
  GemmProblem& check() {
    problem = GemmProblem();
    check_gemm(a, b, out, {}, problem);
    return problem;
  }
};

}  // namespace

TEST_CASE("a device choice is a kind with what belongs to it") {
  CHECK(parse_device_choice("").kind == Kind::automatic);
  CHECK(parse_device_choice("auto").kind == Kind::automatic);
  CHECK(parse_device_choice("cuda").kind == Kind::cuda);
  CHECK(parse_device_choice("cuda:3").cuda_ordinal == 3);
  const DeviceChoice plain = parse_device_choice("emulator");
  CHECK(plain.kind == Kind::emulator);
  CHECK(plain.arch == "sm_90a");
  CHECK(plain.options.schedule == Schedule::late);
  CHECK(parse_device_choice("emulator:eager").options.schedule == Schedule::eager);
  CHECK(parse_device_choice("emulator:sm_80").arch == "sm_80");
  const DeviceChoice full = parse_device_choice("emulator:sm_90a,eager,seed=3,checks=off");
  CHECK(full.arch == "sm_90a");
  CHECK(full.options.schedule == Schedule::eager);
  CHECK(full.options.seed == 3);
  CHECK_FALSE(full.options.checks);
  CHECK(full.text == "emulator:sm_90a,eager,seed=3,checks=off");
  CHECK(full.options.sm_count == 0);
  CHECK(parse_device_choice("emulator:multiprocessors=78").options.sm_count == 78);
}

TEST_CASE("a bad device choice is refused with what is allowed") {
  for (const char* text :
       {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:65536", "Emulator", "auto:1"}) {
    CHECK(mentions(refusal(text), "the device must be auto, cuda, cuda:N, emulator"));
  }
  CHECK(mentions(refusal("emulator:sm_70"), "does not model 'sm_70'"));
  CHECK(mentions(refusal("emulator:sm_90a,lazy"), "got 'lazy'"));
  CHECK(mentions(refusal("emulator:late,sm_90a"), "got 'sm_90a'"));
}

TEST_CASE("each thread has its own choice") {
  const Chosen chosen("emulator:sm_80");
  std::string other;
  std::thread([&] { other = set_device("cuda"); }).join();
  CHECK(other == "auto");
  CHECK(device() == "emulator:sm_80");
}

TEST_CASE("auto emulates host tensors only where there is no driver at all") {
  CHECK(runtime::cuda_status().driver_found == !emulates_host_tensors());
  FakeDriver fake;
  CHECK_FALSE(emulates_host_tensors());
  const Chosen chosen("emulator");
  CHECK(emulates_host_tensors());
}

TEST_CASE("auto never papers over a driver that fails") {
  FakeDriver fake;
  fake->failures["cuInit"] = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  CHECK_THROWS_AS(emulates_host_tensors(), CudaError);
  const Chosen chosen("emulator");
  CHECK(emulates_host_tensors());
}

TEST_CASE("an emulated sm_90a gets the kernels that an H200 gets") {
  FakeDriver fake;  // a 9.0 as well
  const Chosen chosen("emulator:sm_90a");
  Product host(DeviceType::cpu), device(DeviceType::cuda);
  GemmProblem emulated = host.check(), on_gpu = device.check();
  runtime::Device& emulator = device_of(emulated.device_ordinal);
  CHECK(is_emulated(emulated.device_ordinal));
  CHECK(emulator.info().kind == runtime::DeviceKind::emulator);
  resolve(emulated, emulator, true);
  resolve(on_gpu, device_of(0), true);
  CHECK(emulated.recipe.first().spec == on_gpu.recipe.first().spec);
}

TEST_CASE("a device tensor's own device wins over the choice") {
  FakeDriver fake;
  const Chosen chosen("emulator");
  CHECK(Product(DeviceType::cuda).check().device_ordinal == 0);
}

TEST_CASE("host and device tensors do not mix") {
  const Chosen chosen("emulator");
  Product call(DeviceType::cpu);
  call.b.device_type = DeviceType::cuda;
  CHECK_THROWS_AS(call.check(), TypeError);
  call = Product(DeviceType::cuda);
  call.b.device_type = DeviceType::cpu;
  CHECK_THROWS_AS(call.check(), TypeError);
}

TEST_CASE("a fault of the emulated device keeps its site") {
  runtime::emulator::Site site;
  site.kernel = "k";
  site.block = {1, 2, 3};
  site.warp = 4, site.lane = 5, site.ptx_line = 6;
  const runtime::emulator::EmulatorError fault(runtime::emulator::Fault::deadlock, "stuck", site);
  try {
    throw_device_error(fault);
  } catch (const EmulatorError& error) {
    CHECK(error.fault().fault == "deadlock");
    CHECK(error.fault().block == std::array{1, 2, 3});
    CHECK(error.fault().ptx_line == 6);
    CHECK(mentions(error.what(), "stuck"));
  }
  const runtime::DeviceError other("cuInit", "CUDA_ERROR_X", "x");
  CHECK_THROWS_AS(throw_device_error(other), CudaError);
}
