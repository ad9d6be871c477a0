#include "jit/calls.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "jit/arch.h"
#include "jit/argument_errors.h"
#include "jit/config.h"
#include "jit/device_choice.h"
#include "jit/device_errors.h"
#include "jit/gemm_launch.h"
#include "jit/gemm_sm90_cost.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/machine/emulated_device.h"
#include "templates/attention/params.h"
#include "templates/gemm/params.h"

namespace kiln {
namespace {

unsigned grid_of(long long blocks) {
  if (blocks > 0x7fffffffLL) {
    throw std::invalid_argument("the problem needs " + std::to_string(blocks) +
                                " blocks; a launch takes at most 2^31 - 1: split the batch");
  }
  return static_cast<unsigned>(blocks);
}

// Never 0, and never again in this process: what an old launch left in a workspace is told apart.
std::uint64_t new_nonce() {
  static std::atomic<std::uint64_t> next{std::uint64_t{std::random_device{}()} << 32 | 1};
  const std::uint64_t nonce = next.fetch_add(1, std::memory_order_relaxed);
  return nonce != 0 ? nonce : new_nonce();
}

[[noreturn]] void refuse_tile(const GemmProblem& problem, int arch) {
  std::string rows;
  for (int row : gemm_rows(problem.traits, arch)) {
    const GemmConfig& config = gemm_configs()[static_cast<std::size_t>(row)];
    rows += (rows.empty() ? "" : ", ") + tile_name(config);
  }
  const GemmTile& tile = *problem.tile;
  throw std::invalid_argument(
      "gemm: config must be one of " + rows + " (block_m x block_n x block_k x stages), got " +
      std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n) + "x" +
      std::to_string(tile.block_k) + "x" + std::to_string(tile.stages) +
      (tile.cluster == 0 ? "" : " cluster " + std::to_string(tile.cluster)) +
      (tile.splits == 0 ? "" : " splits " + std::to_string(tile.splits)));
}

// Its kernels are for one arch alone, which the checks of the arguments do not know.
void check_f8_arch(const GemmProblem& problem, const runtime::Device& device) {
  const runtime::DeviceInfo& info = device.info();
  if (!is_f8(problem.traits.input) || (info.compute_major == 9 && info.compute_minor == 0)) return;
  throw TypeError(std::string("gemm: a is ") + name(problem.traits.input) +
                  ", which needs a device of compute capability 9.0 (Hopper), and this one has " +
                  std::to_string(info.compute_major) + "." + std::to_string(info.compute_minor) +
                  "; cast a and b to bfloat16");
}

int overridden_row(const GemmProblem& problem, int arch) {
  const int row = find_gemm_row(problem.traits, arch, *problem.tile);
  if (row < 0) refuse_tile(problem, arch);
  return row;
}

// Persistent: as many clusters as the device holds at once, or as there are tiles (a cluster that
// waited for another's end would then compute its own share of the tiles all alone). A cluster for
// each tile where K is split, and where CTAs share columns and K is long: those of one wave do not
// end together, and the next tile goes to whoever is free (1.02 to 1.05 times as fast at K = 8192
// and 4 CTAs, 1.01 at 4096, but 0.91 at 3584, where starting anew weighs more).
unsigned sm90_grid(const GemmProblem& problem, const GemmConfig& config, int splits,
                   const runtime::Device& device) {
  const Sm90Form& form = config.sm90;
  const int rows = config.block_m * (form.swapped ? 1 : form.cluster);
  const int columns = config.block_n * (form.swapped ? form.cluster : 1);
  const long long tiles = gemm_tiles(problem.m, problem.n, problem.batch, rows, columns);
  if (form.splits) return grid_of(tiles * splits);
  constexpr int kLongK = 4096;
  if (form.cluster > 1 && problem.k >= kLongK) return grid_of(tiles * form.cluster);
  const long long clusters = clusters_at_once(form.cluster, 1, device.info().sm_count);
  return static_cast<unsigned>(std::min<long long>(grid_of(tiles), clusters) * form.cluster);
}

}  // namespace

runtime::Device& device_of(int ordinal) {
  if (is_emulated(ordinal)) [[unlikely]] {
    if (runtime::Device* device = runtime::emulated_device_of(ordinal)) return *device;
  }
  try {
    return runtime::cuda_device(ordinal);
  } catch (const runtime::NoDeviceError& error) {
    throw CudaError(error.what());
  } catch (const runtime::DeviceError& error) {
    throw_device_error(error);
  }
}

int arch_of(const runtime::Device& device) {
  return arch_index({device.info().compute_major, device.info().compute_minor});
}

LaunchChoice choose(const AttentionProblem& problem, const runtime::Device& device,
                    bool may_split) {
  const int arch = arch_of(device);
  const AttentionTraits& traits = problem.traits;
  const Choice choice = choose_attention(
      traits, arch, {problem.batch, problem.heads, problem.heads_kv, problem.len_q, problem.keys},
      device.info().sm_count, may_split);
  const AttentionConfig& config = attention_configs()[static_cast<std::size_t>(choice.row)];
  const long long tiles = attention_tiles(problem.batch, problem.heads, problem.heads_kv,
                                          problem.len_q, config.block_q, config.splits);
  return {{arch, choice.row, traits},
          grid_of(tiles * choice.splits),
          choice.splits,
          0,
          static_cast<std::size_t>(
              attention_workspace_bytes(tiles, choice.splits, config.block_q, traits.head_dim_v))};
}

LaunchChoice choose(const GemmProblem& problem, const runtime::Device& device, bool may_split) {
  const int arch = arch_of(device);
  check_f8_arch(problem, device);
  const Choice choice = choose_gemm(
      problem.traits, arch, {problem.m, problem.n, problem.k, problem.batch},
      device.info().sm_count, may_split, problem.tile ? overridden_row(problem, arch) : -1,
      problem.tile ? problem.tile->splits : 0);
  const GemmConfig& config = gemm_configs()[static_cast<std::size_t>(choice.row)];
  const Specialization spec = gemm_specialization(arch, choice.row, problem.traits);
  if (config.is_sm90()) {
    const int cluster = config.sm90.splits ? choice.splits : config.sm90.cluster;
    return {spec,
            sm90_grid(problem, config, choice.splits, device),
            choice.splits,
            0,
            0,
            static_cast<unsigned>(cluster),
            choice.measured_m};
  }
  const long long tiles =
      gemm_tiles(problem.m, problem.n, problem.batch, config.block_m, config.block_n);
  const long long parts = choice.splits == 1 ? 0 : (tiles - choice.whole_tiles) * choice.splits;
  return {spec,
          grid_of(parts == 0 ? tiles : choice.whole_tiles + parts),
          choice.splits,
          static_cast<int>(choice.whole_tiles),  // fits where the grid does
          static_cast<std::size_t>(gemm_workspace_bytes(parts, config.block_m, config.block_n)),
          1,
          choice.measured_m};
}

runtime::LaunchShape launch_shape(const LaunchChoice& choice, const LoadedKernel& kernel) {
  runtime::LaunchShape shape;
  shape.grid[0] = choice.blocks;
  shape.block[0] = kernel.threads;
  shape.cluster[0] = choice.cluster;
  shape.dynamic_shared_bytes = kernel.dynamic_shared_bytes;
  return shape;
}

void set_splits(CallArguments& arguments, const LaunchChoice& choice, void* workspace) {
  if (choice.workspace_bytes == 0) return;
  const auto share = [&]<class Params>(Params*) {
    arguments.set_workspace<Params>(workspace, choice.workspace_bytes, new_nonce());
  };
  if (choice.spec.family() == Family::attention) {
    arguments.set_int(offsetof(AttentionParams, splits), choice.splits);
    share(static_cast<AttentionParams*>(nullptr));
  } else {
    arguments.set_int(offsetof(GemmParams, splits), choice.splits);
    arguments.set_int(offsetof(GemmParams, whole_tiles), choice.whole_tiles);
    share(static_cast<GemmParams*>(nullptr));
  }
}

void launch(runtime::Device& device, const LoadedKernel& kernel, const LaunchChoice& choice,
            const CallArguments& arguments, void* stream) {
  try {
    const runtime::LaunchShape shape = launch_shape(choice, kernel);
    if (is_sm90_gemm(choice.spec)) {
      const auto params = with_tensor_maps(arguments, choice.spec, device);
      device.launch(*kernel.kernel, shape, stream, std::as_bytes(std::span(&params, 1)),
                    arguments.spans());
    } else {
      device.launch(*kernel.kernel, shape, stream, arguments.bytes(), arguments.spans());
    }
  } catch (const runtime::DeviceError& error) {
    throw_device_error(error);
  }
}

}  // namespace kiln
