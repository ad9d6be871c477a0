#include "tests/emulator/equivalent_mutants.h"

#include <algorithm>
#include <string>
#include <vector>

#include "jit/attention/config.h"
#include "jit/attention/family.h"
#include "jit/attention/traits.h"
#include "jit/gemm/config.h"
#include "jit/gemm/family.h"
#include "jit/op/checks.h"
#include "templates/gemm/params.h"

namespace kiln::testing {
namespace {

bool starts(const Mutant& mutant, std::string_view text) {
  return mutant.instruction.starts_with(text);
}

// Lines of the PTX, from 1, whose statement begins with `text`.
std::vector<std::uint32_t> lines_of(std::string_view ptx, std::string_view text) {
  std::vector<std::uint32_t> lines;
  for (const Mutant& mutant : mutants_of(ptx)) {
    if (mutant.change == "deleted" && starts(mutant, text)) lines.push_back(mutant.line);
  }
  return lines;
}

// arrives_last() of base/ticket.cuh begins at the first fence of global memory, and its
// Arrivals::is_last() with the barrier before the atomic operation.
std::uint32_t ticket_line(std::string_view ptx) {
  const auto fences = lines_of(ptx, "membar.gl");
  if (!fences.empty()) return fences.front();
  const std::size_t arrival = ptx.find("atom.acq_rel");
  if (arrival == std::string_view::npos) return ~std::uint32_t{0};
  const auto line = static_cast<std::uint32_t>(std::ranges::count(ptx.substr(0, arrival), '\n'));
  std::uint32_t last = 0;
  for (const std::uint32_t barrier : lines_of(ptx, "bar.sync")) {
    if (barrier <= line) last = barrier;
  }
  return last;
}

// The barrier behind which a CTA reads partial results that it copied to shared memory.
bool is_after_copies_of_partials(const Mutant& mutant, std::string_view ptx) {
  const auto waits = lines_of(ptx, "cp.async.wait_group");
  if (waits.empty() || waits.back() < ticket_line(ptx)) return false;
  for (const std::uint32_t line : lines_of(ptx, "bar.sync")) {
    if (line > waits.back()) return mutant.line == line;
  }
  return false;
}

// The barrier between a GEMM's main loop and its epilogue.
bool is_after_main_loop(const Mutant& mutant, std::string_view ptx) {
  std::uint32_t last = 0;
  for (const std::uint32_t line : lines_of(ptx, "bar.sync")) {
    if (line < ticket_line(ptx)) last = line;
  }
  return starts(mutant, "bar.sync") && mutant.line == last;
}

// Of two waits in a row for the same products of a warpgroup, either will do.
bool is_repeated_wait(const Mutant& mutant, std::string_view ptx) {
  constexpr std::string_view kWait = "wgmma.wait_group.sync.aligned 0";
  if (!starts(mutant, kWait)) return false;
  for (const std::uint32_t line : lines_of(ptx, kWait)) {
    const std::uint32_t apart = line < mutant.line ? mutant.line - line : line - mutant.line;
    if (apart != 0 && apart <= 4) return true;
  }
  return false;
}

// The fence before a stage of the residual is handed back: no barrier of the group comes between.
bool is_fence_of_release(const Mutant& mutant, std::string_view ptx) {
  if (!starts(mutant, "fence.proxy.async")) return false;
  const auto next = [&](std::string_view text) {
    for (const std::uint32_t line : lines_of(ptx, text)) {
      if (line > mutant.line) return line;
    }
    return ~std::uint32_t{0};
  };
  return next("mbarrier.arrive.shared::cta.b64") < next("bar.sync");
}

// The wait for earlier launches of the math groups, where all that they read comes behind stages
// that the producer fills once it has waited.
bool is_wait_of_readers_of_stages(const GemmTraits& traits, const Mutant& mutant,
                                  std::string_view ptx) {
  if (!starts(mutant, "griddepcontrol.wait") || traits.bias != DType::none ||
      traits.scale_a == Scale::tensor || traits.scale_b == Scale::tensor) {
    return false;
  }
  const std::size_t producer = ptx.rfind("griddepcontrol.wait", ptx.find("griddepcontrol.launch"));
  const auto line = static_cast<std::uint32_t>(std::ranges::count(ptx.substr(0, producer), '\n'));
  return mutant.line != line + 1;
}

std::string_view why_not_modelled_sm90(const GemmTraits& traits, const Mutant& mutant,
                                       std::string_view ptx) {
  if (is_wait_of_readers_of_stages(traits, mutant, ptx)) {
    return "memory that is visible to whoever waits for earlier launches himself: the device takes "
           "an order behind one that has waited for it";
  }
  if (starts(mutant, "bar.warp.sync")) {
    return "a warp whose lanes come apart before a barrier of the cluster or the end, which the "
           "device lets them reach one by one";
  }
  if (is_f8(traits.input) && !traits.fast && starts(mutant, "wgmma.fence")) {
    return "products that overwrite registers which were just read: the device writes them when "
           "they are waited for";
  }
  if (traits.residual != DType::none && is_fence_of_release(mutant, ptx)) {
    return "a copy over bytes that were read, which the device orders by barriers alone: "
           "tests/compile/test_fences.py reads the fence";
  }
  return {};
}

// The barrier of both math groups behind what they clear, see templates/gemm/sm90/tail.cuh.
bool is_behind_what_is_cleared(const Mutant& mutant, std::string_view ptx) {
  for (const Mutant& other : mutants_of(ptx)) {
    if (other.change != "deleted" || !starts(other, "bar.sync")) continue;
    if (other.instruction.ends_with(", 256")) return mutant.line == other.line;
  }
  return false;
}

// Where the last slab of a transposed tile holds fewer rows, threads write it out themselves
// (templates/gemm/sm90/store.cuh): its fence is for nobody, and nothing is in its group of copies.
// Nor is a wait for the copy engine needed before a slab whose memory had such a one last or, with
// two slabs in turns, the barrier behind that wait, as the slab between has barriers of its own.
bool is_of_slab_without_copy(const GemmSm90Config& config, const GemmTraits& traits,
                             const Mutant& mutant, std::string_view ptx) {
  constexpr std::string_view kWait = "cp.async.bulk.wait_group.read";
  if (!config.swapped || config.splits) return false;
  const int size = size_of(traits.output);
  const int most = traits.gate == Gate::none ? gemm_sm90_transposed_row_bytes(size) / size : 64;
  const int rows = gemm_sm90_transposed_rows(config.block_m, most, false, false);
  if (config.block_m % rows == 0) return false;
  const int slabs = (config.block_m + rows - 1) / rows;
  const int stores = slabs * config.block_n / (64 * config.groups);  // of a group and tile
  const bool in_turns = gemm_sm90_slabs(config.groups) == 2;
  const auto is_written_by_threads = [&](int store) { return store % slabs == slabs - 1; };
  const auto waits = lines_of(ptx, kWait);  // one before each store, and one before the end
  const int store =
      static_cast<int>(std::ranges::upper_bound(waits, mutant.line) - waits.begin()) - 1;
  if (store < 0) return false;
  if (store >= stores) {
    return starts(mutant, kWait) && (!in_turns || mutant.change == "waits for one group less");
  }
  if (is_written_by_threads(store)) {
    if (starts(mutant, "fence.proxy.async")) return true;
    if (starts(mutant, "cp.async.bulk.commit_group")) return !in_turns;
  }
  if (!is_written_by_threads((store + stores - (in_turns ? 2 : 1)) % stores)) return false;
  if (starts(mutant, kWait)) return true;
  if (!in_turns || !starts(mutant, "bar.sync")) return false;
  const auto barriers = lines_of(ptx, "bar.sync");
  const auto behind = std::ranges::upper_bound(barriers, waits[static_cast<std::size_t>(store)]);
  return behind != barriers.end() && mutant.line == *behind;
}

std::string_view why_equivalent_sm90(const Specialization& spec, const Mutant& mutant,
                                     std::string_view ptx) {
  const GemmSm90Config& config = gemm_sm90_configs()[static_cast<std::size_t>(spec.row())];
  const auto traits = spec.traits_as<GemmTraits>();
  if (starts(mutant, "mbarrier.test_wait") && mutant.change == "deleted") {
    return "a stage that is full already is waited for all the same";
  }
  if (config.ping_pong && starts(mutant, "bar.sync") && is_behind_what_is_cleared(mutant, ptx)) {
    return "a group multiplies when the other has given it the turn, behind what that has cleared";
  }
  if (config.splits) {
    if (starts(mutant, "mbarrier.arrive.shared::cta") ||
        starts(mutant, "mbarrier.arrive.shared::cluster")) {
      return "the CTA has one tile: nobody waits for the release of its last stages";
    }
    if (starts(mutant, "cp.async.bulk.wait_group") || starts(mutant, "bar.sync")) {
      return "the CTA has one tile, of which a group writes each slab into memory of its own";
    }
    constexpr std::string_view kMeeting = "barrier.cluster.wait";
    if (starts(mutant, kMeeting) && mutant.line == lines_of(ptx, kMeeting).back()) {
      return "the CTA has waited for all that others send, and what it has sent itself arrives on "
             "the device even if it has ended";
    }
  }
  if (is_repeated_wait(mutant, ptx)) return "the next wait is for the same products";
  if (is_of_slab_without_copy(config, traits, mutant, ptx)) {
    return "threads write out the last slab of a tile themselves: the copy engine does not read it";
  }
  if (traits.stores != Access::elements) return {};
  if (starts(mutant, "cp.async.bulk.wait_group") || starts(mutant, "fence.proxy.async")) {
    return "threads store the elements themselves: the copy engine reads no slab";
  }
  if (starts(mutant, "bar.sync")) return "the slab between has a barrier of its own";
  return {};
}

// A fence that no wait for products divides from the fence before it: the registers that it would
// order have not been touched in between.
bool is_repeated_fence(const Mutant& mutant, std::string_view ptx) {
  if (!starts(mutant, "wgmma.fence")) return false;
  const auto last_before = [&](std::string_view text) {
    std::uint32_t last = 0;
    for (const std::uint32_t line : lines_of(ptx, text)) {
      if (line < mutant.line) last = line;
    }
    return last;
  };
  return last_before("wgmma.fence") > last_before("wgmma.wait_group");
}

// The last wait before a tile is drawn from the counter that all CTAs share.
bool is_wait_before_draw(const Mutant& mutant, std::string_view ptx) {
  const std::string_view before = ptx.substr(0, ptx.find("atom.global.cas"));
  if (before.size() == ptx.size()) return false;
  const auto draw = static_cast<std::uint32_t>(std::ranges::count(before, '\n') + 1);
  std::uint32_t last = 0;
  for (const std::uint32_t line : lines_of(ptx, "mbarrier.try_wait")) {
    if (line < draw) last = line;
  }
  return mutant.line == last;
}

// The fence behind stores of zeros in the place of values that no query sees. The compiler may copy
// the code, so that the kernel has several of these fences.
bool is_fence_of_zeros(const Mutant& mutant, std::string_view ptx) {
  if (!starts(mutant, "fence.proxy.async")) return false;
  constexpr std::string_view kStore = "st.shared.v4.b32 [";
  std::size_t begin = 0;  // of the fence's line
  for (std::uint32_t line = 1; line < mutant.line; ++line) begin = ptx.find('\n', begin) + 1;
  const std::size_t store = ptx.substr(0, begin).rfind(kStore);
  if (store == std::string_view::npos) return false;
  const std::string_view behind = ptx.substr(store, begin - store);
  constexpr int kLinesFromStoreToFence = 20;
  if (std::ranges::count(behind, '\n') > kLinesFromStoreToFence) return false;
  const std::size_t open = behind.find('{') + 1;
  const std::string first(behind.substr(open, behind.find(',', open) - open));
  return behind.substr(open).starts_with(first + ", " + first + ", " + first + ", " + first + "}");
}

// The fence behind zeros in the place of queries, where rows of pages are gathered: the same warp
// fences again before it announces the first keys, which are waited for before queries are
// multiplied.
bool is_fence_before_announcing(const Mutant& mutant, std::string_view ptx) {
  if (!is_fence_of_zeros(mutant, ptx)) return false;
  const auto next_after = [&](std::string_view text) {
    for (const std::uint32_t line : lines_of(ptx, text)) {
      if (line > mutant.line) return line;
    }
    return ~0u;
  };
  const std::uint32_t wait = next_after("mbarrier.try_wait");
  const std::uint32_t fence = next_after("fence.proxy.async");
  return fence != ~0u && wait < fence && fence < next_after("cp.async.bulk");
}

// The barrier of all warps behind the last one where partners meet, if they are all warps.
bool is_after_partners_met(const Mutant& mutant, std::string_view ptx, int threads) {
  const std::size_t products = ptx.rfind("mma.sync");
  if (products == std::string_view::npos) return false;
  const auto last = static_cast<std::uint32_t>(std::ranges::count(ptx.substr(0, products), '\n'));
  std::string_view before;  // the barrier before this one
  const std::vector<Mutant> mutants = mutants_of(ptx);
  for (const Mutant& other : mutants) {
    if (other.change == "deleted" && starts(other, "bar.sync") && other.line > last &&
        other.line < mutant.line) {
      before = other.instruction;
    }
  }
  return starts(mutant, "bar.sync") && before.ends_with(", " + std::to_string(threads));
}

std::string_view why_equivalent_attention_sm90(const AttentionTraits& traits, const Mutant& mutant,
                                               std::string_view ptx) {
  if (is_repeated_wait(mutant, ptx)) {  // of outputs that two products share
    return "the next wait is for the same products";
  }
  if (is_repeated_fence(mutant, ptx)) {
    return "the fence before the scores' product is for the registers of the output too";
  }
  if (traits.storage != Storage::dense && is_wait_before_draw(mutant, ptx)) {
    return "it keeps a CTA from drawing tiles ahead, which only matters to how evenly they are "
           "dealt: any CTA may compute any tile";
  }
  if (starts(mutant, "bar.sync") && mutant.instruction.ends_with(", 256")) {
    return "a turn of the math groups, which is about speed: they may multiply in any order";
  }
  if (traits.byte_queries && is_fence_of_zeros(mutant, ptx)) {
    return "warps read these zeros, and the copy that follows them there does so rounds later, "
           "which "
           "the device takes for an order";
  }
  if (traits.storage == Storage::paged && is_fence_before_announcing(mutant, ptx)) {
    return "the warp fences again before it announces the first keys, which the product waits for";
  }
  const auto inits = lines_of(ptx, "mbarrier.init");
  if (traits.mask != Mask::window && !inits.empty() && mutant.line == inits.back()) {
    return "Shape::landed(), for which only values outside of a window are waited here";
  }
  return {};
}

}  // namespace

std::string_view why_not_modelled(const Specialization& spec, const Mutant& mutant,
                                  std::string_view ptx) {
  if (mutant.line >= ticket_line(ptx) &&
      (starts(mutant, "membar.gl") || starts(mutant, "bar.sync")) &&
      !is_after_copies_of_partials(mutant, ptx)) {
    return "order of global memory, which the device keeps and does not check for races";
  }
  const bool is_second =
      &spec.kernel() == &kFlashAttentionVarlen || &spec.kernel() == &kAttentionPlanner;
  if (is_second && starts(mutant, "griddepcontrol.wait")) {
    return "whoever waits for the launch has waited for the one before it, too: launches run one "
           "after the other here";
  }
  if (&spec.kernel() == &kGemmSm90) {
    return why_not_modelled_sm90(spec.traits_as<GemmTraits>(), mutant, ptx);
  }
  if (&spec.kernel() == &kFlashAttentionSm90 && starts(mutant, "bar.warp.sync")) {
    return "one lane arrives or copies for what its warp has read or written, which the device "
           "orders by warps";
  }
  if (spec.kernel().family == &kAttention && starts(mutant, "bar.warp.sync")) {
    return "a warp's lanes read what other lanes copied by ldmatrix alone, which the device "
           "executes for all lanes at once";
  }
  return {};
}

std::string_view why_equivalent(const Specialization& spec, const Mutant& mutant,
                                std::string_view ptx) {
  if (&spec.kernel() == &kGemmSm90) return why_equivalent_sm90(spec, mutant, ptx);
  if (&spec.kernel() == &kFlashAttentionSm90) {
    return why_equivalent_attention_sm90(spec.traits_as<AttentionTraits>(), mutant, ptx);
  }
  if (spec.kernel().family == &kAttention &&
      is_after_partners_met(mutant, ptx, attention_config(spec.row()).warps * 32)) {
    return "all warps share the rows, and have met when they exchanged the rows' sums";
  }
  const bool copies = ptx.find("cp.async.") != std::string_view::npos;
  if (spec.kernel().family == &kGemm && !copies && is_after_main_loop(mutant, ptx)) {
    return "no copy is in flight, and behind the loop's own barrier only B's fragments are read, "
           "which the staged rows do not reach";
  }
  return {};
}

}  // namespace kiln::testing
