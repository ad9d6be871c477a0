#include "runtime/emulator/decode/register_allocation.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <string_view>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/machine/polling.h"

namespace kiln::runtime::emulator {
namespace {

using Position = std::uint32_t;  // instruction index

// What is live is known by four bits for each pair of a basic block and a register.
constexpr std::size_t kMostPairs = std::size_t{1} << 31;
// Of 32 bits, in each lane of each warp of a launch.
constexpr std::uint32_t kMostRows = 1u << 16;

// Opcodes whose first operand, when it is a register, is read. All others define it; registers
// inside an address are always read.
constexpr std::string_view kReadFirst[] = {"bar",   "barrier", "bra",           "brx",
                                           "cp",    "call",    "setmaxnreg",    "nanosleep",
                                           "wgmma", "st",      "griddepcontrol"};

bool reads_first(const Instruction& instruction) {
  // bar.red and barrier.red give a result.
  if (instruction.has("red")) return false;
  return std::ranges::find(kReadFirst, instruction.opcode) != std::end(kReadFirst);
}

template <class F>
void for_each_register(const Operand& operand, F f) {
  if (operand.is(Operand::Kind::reg)) f(operand.reg);
  for (const Operand& item : operand.items) for_each_register(item, f);
}

// All uses first: an instruction reads its sources before it writes.
template <class Use, class Define>
void visit(const Instruction& instruction, Use use, Define define) {
  if (instruction.guard >= 0) use(static_cast<std::uint32_t>(instruction.guard));
  if (instruction.operands.empty()) return;
  const Operand& first = instruction.operands[0];
  const bool defines = !first.is(Operand::Kind::address) && !reads_first(instruction);
  // Lanes that a guard leaves out keep the old value, which is hence needed.
  if (!defines || instruction.guard >= 0) for_each_register(first, use);
  for (std::size_t i = 1; i < instruction.operands.size(); ++i) {
    for_each_register(instruction.operands[i], use);
  }
  // wgmma accumulates into its first operand.
  if (defines || instruction.opcode == "wgmma") for_each_register(first, define);
}

class BitSet {
 public:
  explicit BitSet(std::size_t size) : words_((size + 63) / 64) {}
  bool test(std::size_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  void set(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
  // this |= other & ~without; returns whether anything changed.
  bool merge(const BitSet& other, const BitSet* without = nullptr) {
    bool changed = false;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::uint64_t added = other.words_[i] & ~(without ? without->words_[i] : 0);
      changed = changed || (added & ~words_[i]) != 0;
      words_[i] |= added;
    }
    return changed;
  }
  template <class F>
  void for_each(F f) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t rest = words_[i]; rest != 0; rest &= rest - 1) {
        f(static_cast<std::uint32_t>(i * 64 + static_cast<std::size_t>(std::countr_zero(rest))));
      }
    }
  }

 private:
  std::vector<std::uint64_t> words_;
};

struct BasicBlock {
  Position begin = 0, end = 0;
  std::vector<std::uint32_t> next;
  BitSet used, defined, live_in, live_out;
  explicit BasicBlock(std::size_t registers)
      : used(registers), defined(registers), live_in(registers), live_out(registers) {}
};

bool ends_block(const Instruction& instruction) {
  const std::string_view op = instruction.opcode;
  return op == "bra" || op == "brx" || op == "ret" || op == "exit" || op == "trap";
}

class FlowGraph {
 public:
  explicit FlowGraph(const Function& function) : function_(function) {
    cut();
    connect();
    solve();
  }
  const std::vector<BasicBlock>& blocks() const { return blocks_; }

 private:
  template <class F>
  void for_each_target(const Instruction& instruction, F f) const {
    if (instruction.opcode != "bra" && instruction.opcode != "brx") return;
    for (const Operand& operand : instruction.operands) {
      if (!operand.is(Operand::Kind::label)) continue;
      const auto value = static_cast<std::size_t>(operand.value);
      if (instruction.opcode == "brx" && value < function_.branch_targets.size()) {
        for (std::uint32_t target : function_.branch_targets[value]) f(target);
      } else {
        f(static_cast<Position>(value));
      }
    }
  }

  void cut() {
    const auto size = static_cast<Position>(function_.body.size());
    std::vector<bool> leads(size + 1);
    leads[0] = true;
    for (Position i = 0; i < size; ++i) {
      for_each_target(function_.body[i], [&](Position target) { leads[target] = true; });
      if (ends_block(function_.body[i])) leads[i + 1] = true;
    }
    check_size(static_cast<std::size_t>(std::ranges::count(leads, true)));
    block_of_.resize(size + 1);
    for (Position i = 0; i < size; ++i) {
      if (leads[i]) {
        blocks_.emplace_back(function_.registers.size());
        blocks_.back().begin = i;
      }
      blocks_.back().end = i + 1;
      block_of_[i] = static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    block_of_[size] = static_cast<std::uint32_t>(blocks_.size());  // the end: no block
  }

  void check_size(std::size_t blocks) const {
    if (function_.registers.size() <= kMostPairs / blocks) return;
    raise_ptx(function_.line, "the function '" + std::string(function_.name) + "' has " +
                                  std::to_string(blocks) + " basic blocks and " +
                                  std::to_string(function_.registers.size()) +
                                  " registers; the emulated device takes functions for which the "
                                  "product of both is at most 2^31");
  }

  void connect() {
    for (BasicBlock& block : blocks_) {
      ticker_.tick();
      const Instruction& last = function_.body[block.end - 1];
      const auto add = [&](Position target) {
        if (block_of_[target] < blocks_.size()) block.next.push_back(block_of_[target]);
      };
      for_each_target(last, add);
      const bool always_leaves = ends_block(last) && last.guard < 0;
      if (!always_leaves) add(block.end);
      for (Position i = block.begin; i < block.end; ++i) {
        visit(
            function_.body[i],
            [&](std::uint32_t reg) {
              if (!block.defined.test(reg)) block.used.set(reg);
            },
            [&](std::uint32_t reg) { block.defined.set(reg); });
      }
      block.live_in.merge(block.used);
    }
  }

  void solve() {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t b = blocks_.size(); b-- > 0;) {
        BasicBlock& block = blocks_[b];
        ticker_.tick();
        bool grew = false;
        for (std::uint32_t next : block.next) grew |= block.live_out.merge(blocks_[next].live_in);
        if (grew && block.live_in.merge(block.live_out, &block.defined)) changed = true;
      }
    }
  }

  const Function& function_;
  std::vector<BasicBlock> blocks_;
  std::vector<std::uint32_t> block_of_;
  Ticker ticker_;
};

struct Life {
  Position first = std::numeric_limits<Position>::max(), last = 0;
  void extend(Position at) {
    first = std::min(first, at);
    last = std::max(last, at);
  }
};

// Registers that wgmma holds beyond the instruction, and what plain moves copy them to.
void pin_matrix_registers(const Function& function, std::vector<Life>& lives) {
  std::vector<bool> pinned(lives.size());
  bool any = false;
  for (const Instruction& instruction : function.body) {
    if (instruction.opcode != "wgmma" || instruction.operands.empty()) continue;
    for (const Operand& operand : instruction.operands) {
      if (operand.is(Operand::Kind::vector)) {
        for_each_register(operand, [&](std::uint32_t reg) { pinned[reg] = any = true; });
      }
    }
  }
  for (bool changed = any; changed;) {
    changed = false;
    for (const Instruction& instruction : function.body) {
      if (instruction.opcode != "mov" || instruction.operands.size() != 2) continue;
      const Operand &to = instruction.operands[0], &from = instruction.operands[1];
      if (!to.is(Operand::Kind::reg) || !from.is(Operand::Kind::reg)) continue;
      if (pinned[from.reg] && !pinned[to.reg]) pinned[to.reg] = changed = true;
    }
  }
  for (std::size_t i = 0; i < lives.size(); ++i) {
    if (pinned[i]) lives[i] = {0, std::numeric_limits<Position>::max()};
  }
}

std::vector<Life> lives_of(const Function& function) {
  std::vector<Life> lives(function.registers.size());
  if (function.body.empty()) return lives;
  const FlowGraph graph(function);
  for (const BasicBlock& block : graph.blocks()) {
    block.live_in.for_each([&](std::uint32_t reg) { lives[reg].extend(block.begin); });
    block.live_out.for_each([&](std::uint32_t reg) { lives[reg].extend(block.end - 1); });
    for (Position i = block.begin; i < block.end; ++i) {
      const auto touch = [&](std::uint32_t reg) { lives[reg].extend(i); };
      visit(function.body[i], touch, touch);
    }
  }
  pin_matrix_registers(function, lives);
  return lives;
}

// One kind of row: predicates, 32-, 64- and 128-bit registers are allocated apart.
enum Pool { kPredicate, kSingle, kDouble, kQuad, kPools };
constexpr std::array<std::uint32_t, kPools> kRows = {1, 1, 2, 4};

Pool pool_of(Type type) {
  if (type == Type::pred) return kPredicate;
  const int bits = info(type).bits;
  return bits <= 32 ? kSingle : bits == 64 ? kDouble : kQuad;
}

}  // namespace

bool defines_first_operand(const Instruction& instruction) {
  return !instruction.operands.empty() && !instruction.operands[0].is(Operand::Kind::address) &&
         !reads_first(instruction);
}

Allocation allocate_registers(const Function& function) {
  const std::vector<Life> lives = lives_of(function);
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < lives.size(); ++i) {
    if (lives[i].first <= lives[i].last) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return lives[i].first; });

  struct Active {
    Position last;
    std::uint32_t index;
    bool operator>(const Active& other) const { return last > other.last; }
  };
  std::array<std::priority_queue<Active, std::vector<Active>, std::greater<>>, kPools> active;
  std::array<std::vector<std::uint32_t>, kPools> free;
  std::array<std::uint32_t, kPools> used{};
  std::vector<std::uint32_t> index(lives.size());
  for (std::uint32_t reg : order) {
    const Pool pool = pool_of(function.registers[reg].type);
    while (!active[pool].empty() && active[pool].top().last < lives[reg].first) {
      free[pool].push_back(active[pool].top().index);
      active[pool].pop();
    }
    if (free[pool].empty()) {
      index[reg] = used[pool]++;
    } else {
      index[reg] = free[pool].back();
      free[pool].pop_back();
    }
    active[pool].push({lives[reg].last, index[reg]});
  }

  Allocation allocation;
  allocation.predicates = used[kPredicate];
  std::array<std::uint32_t, kPools> base{};
  for (Pool pool : {kQuad, kDouble, kSingle}) {  // wide rows first: they stay aligned
    base[pool] = allocation.slots;
    allocation.slots += used[pool] * kRows[pool];
  }
  if (allocation.slots > kMostRows) {
    raise_ptx(function.line, "the function '" + std::string(function.name) + "' needs " +
                                 std::to_string(allocation.slots) +
                                 " registers at once; the emulated device has 65536 for a thread");
  }
  allocation.row.resize(lives.size(), kNoRef);
  for (std::uint32_t reg : order) {
    const Pool pool = pool_of(function.registers[reg].type);
    allocation.row[reg] = base[pool] + index[reg] * kRows[pool];
  }
  return allocation;
}

}  // namespace kiln::runtime::emulator
