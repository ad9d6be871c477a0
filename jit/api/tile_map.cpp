#include "jit/api/tile_map.h"

#include <span>

#include "jit/attention/tile_map.h"
#include "jit/compile/kernel_source.h"
#include "jit/op/device_errors.h"
#include "jit/op/family.h"
#include "jit/op/source_text.h"
#include "runtime/emulator/machine/emulated_device.h"

namespace kiln {
namespace {

TensorView host_view(const TileMapCall& call, int length, int heads) {
  TensorView view =
      contiguous_view(nullptr, DType::bf16, 0, call.batch, length, heads, call.head_dim);
  view.device_type = DeviceType::cpu;
  return view;
}

runtime::MemorySpan span_of(const auto& values, bool written) {
  return {reinterpret_cast<std::uint64_t>(values.data()), values.size() * sizeof(values[0]),
          written};
}

void launch(const std::string& ptx, const CallArguments& arguments, unsigned width, unsigned height,
            unsigned threads, std::span<const runtime::MemorySpan> spans) {
  runtime::emulator::Run run;
  run.ptx = ptx, run.entry = kEntryName;
  run.shape = {.grid = {width, height, 1},
               .block = {threads, 1, 1},
               .cluster = {1, 1, 1},
               .dynamic_shared_bytes = 0,
               .programmatic = false};
  run.arguments = arguments.bytes();
  run.spans = spans;
  try {
    runtime::emulator::run(run);
  } catch (const runtime::DeviceError& error) {
    throw_device_error(error);
  }
}

void launch_map(const std::string& ptx, const CallArguments& arguments, const TileMap& map,
                std::span<const runtime::MemorySpan> tensors) {
  std::vector<runtime::MemorySpan> spans(tensors.begin(), tensors.end());
  spans.push_back(span_of(map.rows, false));
  spans.push_back(span_of(map.kinds, true));
  spans.push_back(span_of(map.shown, true));
  launch(ptx, arguments, static_cast<unsigned>(map.rows.size()),
         static_cast<unsigned>((map.key_tiles + 31) / 32), 32, spans);
}

// Runs the launches ahead of attention, into `workspace`, to which the arguments then point.
void prepare(AttentionProblem& problem, std::vector<std::uint64_t>& workspace) {
  workspace.resize((problem.recipe.workspace_bytes + 7) / 8);
  for (Step& step : problem.recipe.steps()) {
    if (step.arguments.wants_workspace()) step.arguments.set_workspace(workspace.data(), 1);
    if (!step.prepares) continue;
    const KernelSource source = source_of(step.spec, problem.texts);
    const unsigned threads = step.spec.kernel().footprint(step.spec).threads;
    launch(compile_entry(source, "tile map").ptx, step.arguments, step.blocks, 1, threads,
           step.arguments.spans());
  }
}

}  // namespace

TileMap map_tiles(const TileMapCall& call) {
  const TensorView q = host_view(call, call.len_q, call.heads);
  const TensorView k = host_view(call, call.len_kv, call.heads_kv);
  AttentionProblem problem;
  problem.may_be_null = true;
  check_attention(q, k, k, q, {}, call.options, problem);
  resolve(problem, device_of(problem.device_ordinal), /*may_split=*/true);
  const Specialization& spec = problem.recipe.first().spec;
  MappedTile tile = mapped_tile(spec);
  if (call.block_q > 0) tile.group = tile.block_q = call.block_q;
  if (call.block_kv > 0) tile.block_kv = call.block_kv;

  TileMap map;
  map.path = spec.kernel().path, map.what = describe(spec, problem.texts);
  map.block_q = tile.block_q, map.block_kv = tile.block_kv;
  map.rows = map_rows(tile, problem);
  map.key_tiles = (call.len_kv + tile.block_kv - 1) / tile.block_kv;
  map.kinds.assign(map.rows.size() * static_cast<std::size_t>(map.key_tiles), -1);
  map.shown = map.kinds;
  if (map.kinds.empty()) return map;
  const KernelSource source =
      source_beside(spec, problem.texts, render_tile_map(spec, tile, problem.texts),
                    "a map of the tiles of " + map.what);
  std::vector<std::uint64_t> workspace;
  prepare(problem, workspace);
  const TileMapParams params{
      map.rows.data(), map.kinds.data(), map.shown.data(),
      call.b,          call.h,           call.h / (call.heads / call.heads_kv),
      call.len_q,      call.len_kv,      map.key_tiles};
  launch_map(compile_entry(source, "tile map").ptx, map_arguments(params, problem), map,
             problem.arguments().spans());
  return map;
}

}  // namespace kiln
