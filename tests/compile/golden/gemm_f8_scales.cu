#include "/kiln/gemm/sm90/gemm.cuh"

struct Products {
  static constexpr int kRegisters = 64;

  // d = a b + (accumulate ? d : 0) over 128 bytes of K; a and b are descriptors.
  __device__ __forceinline__ static void multiply(float (&d)[kRegisters], kiln::u64 a,
                                                  kiln::u64 b, int accumulate) {
    asm volatile(
      "{\n.reg .pred more, always;\n.reg .b64 a, b;\n"
      "setp.ne.b32 more, %66, 0;\n"
      "setp.eq.b32 always, %66, %66;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
      ", %64, %65, more, 1, 1;\n"
      "add.u64 a, %64, 2;\n"
      "add.u64 b, %65, 2;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
      ", a, b, always, 1, 1;\n"
      "add.u64 a, %64, 4;\n"
      "add.u64 b, %65, 4;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
      ", a, b, always, 1, 1;\n"
      "add.u64 a, %64, 6;\n"
      "add.u64 b, %65, 6;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
      ", a, b, always, 1, 1;\n"
      "}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(accumulate));
  }

  // Until at most kPending committed groups are under way; d may be read where it is in
  // none of these.
  template <int kPending = 0>
  __device__ __forceinline__ static void finish(float (&d)[kRegisters]) {
    asm volatile("wgmma.wait_group.sync.aligned %64;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "n"(kPending) : "memory");
  }
};

struct Config {
  using Input = kiln::f8_e4m3;
  using Output = kiln::bf16;
  using Bias = kiln::bf16;
  using Residual = kiln::bf16;
  using Products = ::Products;
  static constexpr kiln::Major kMajorRows = kiln::Major::k;
  static constexpr kiln::Major kMajorColumns = kiln::Major::k;
  static constexpr int kBlockM = 128, kBlockN = 128, kStages = 6;
  static constexpr int kGroups = 2, kCluster = 1, kRasterRows = 4, kResidents = 1;
  static constexpr bool kPingPong = false, kSplits = false, kApart = false, kSwapped = false, kPromoted = true;
  static constexpr kiln::Access kStores = kiln::Access::vectors;
  static constexpr bool kResidualBoxes = false;
  static constexpr kiln::Scale kScaleA = kiln::Scale::vector, kScaleB = kiln::Scale::tensor;
  static constexpr kiln::Gate kGate = kiln::Gate::none;
  static constexpr kiln::Grouping kGrouping = kiln::Grouping::none;
};
using Epilogue = kiln::StandardEpilogue<kiln::Activation::none, /*kBias=*/false, /*kResidual=*/false>;

extern "C" __global__ void __launch_bounds__((Config::kGroups + 1) * 128, 1)
kiln_kernel(const __grid_constant__ kiln::GemmSm90Params<kiln::TensorMap> args) {
  kiln::gemm_sm90<Config, Epilogue>(args);
}
