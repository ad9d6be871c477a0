#include "runtime/emulator/matrix/groups.h"

#include <algorithm>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/machine/faults.h"

namespace kiln::runtime::emulator {
namespace {

std::uint32_t line_of(const Warp& warp, const Op* op) {
  const Program& program = warp.block().cluster().program();
  const auto index = static_cast<std::size_t>(op - program.ops.data());
  return program.function->body[index].line;
}

// A fault in work done late is told at the wait; the message must name the instruction itself.
void execute(Warp& warp, const MatrixWork& work) {
  try {
    if (work.is_mov) {
      work.op->run(warp, *work.op, work.mask);
    } else {
      execute_product(warp, work);
    }
  } catch (RaisedFault& fault) {
    fault.message =
        "the wgmma of line " + std::to_string(line_of(warp, work.op)) + ": " + fault.message;
    throw;
  }
}

std::string quoted(const Warp& warp, std::uint16_t id) {
  return std::string(matrix_registers(warp).names[id]);
}

[[noreturn]] void raise_in_flight(const Warp& warp, std::uint16_t id, const char* what) {
  raise(Fault::in_flight,
        quoted(warp, id) + what + " a wgmma in flight; wait for it with wgmma.wait_group first");
}

// Returns whether the move of an accumulator in flight was taken into the queue.
bool defer_mov(Warp& warp, const Op& op, Mask mask, const MatrixRegisters::Uses& uses) {
  MatrixGroups& groups = *warp.async().matrix;
  MatrixGroups::Register& to = groups.registers[uses.to];
  if (uses.from == MatrixRegisters::kNone || !groups.being_written(uses.from)) {
    if (groups.being_written(uses.to))
      raise_in_flight(warp, uses.to, " is overwritten, it belongs to");
    if (groups.being_read(uses.to))
      raise_in_flight(warp, uses.to, " is overwritten, it is read by");
    // ptxas makes no instruction of it where it can: the write is as old as the value moved.
    to.written = uses.from != MatrixRegisters::kNone ? groups.registers[uses.from].written
                 : uses.from_literal                 ? 0
                                                     : ++groups.time;
    return false;
  }
  const MatrixGroups::Register& from = groups.registers[uses.from];
  if (groups.being_read(uses.to)) raise_in_flight(warp, uses.to, " is overwritten, it is read by");
  if (groups.being_written(uses.to) && (to.shape != from.shape || to.position != from.position)) {
    raise_in_flight(warp, uses.to, " is overwritten, it belongs to");
  }
  // It ends with the group that writes its source. What comes behind in the queue sees it done.
  to = {.written = from.written,
        .write_group = from.write_group,
        .read_group = to.read_group,
        .shape = from.shape,
        .position = from.position};
  if (warp.block().cluster().late()) {
    MatrixWork work;
    work.op = &op;
    work.is_mov = true;
    work.mask = mask;
    work.group = from.write_group;
    groups.works.push_back(std::move(work));
  } else {
    op.run(warp, op, mask);
  }
  return true;
}

}  // namespace

MatrixGroups& matrix_groups(Warp& warp) {
  std::shared_ptr<MatrixGroups>& groups = warp.async().matrix;
  if (groups == nullptr) {
    groups = std::make_shared<MatrixGroups>();
    groups->registers.resize(matrix_registers(warp).names.size());
  }
  return *groups;
}

const MatrixRegisters& matrix_registers(const Warp& warp) {
  return static_cast<const MatrixRegisters&>(*warp.block().cluster().program().matrix_registers);
}

bool watch_matrix(Warp& warp, const Op& op, Mask mask) {
  MatrixGroups& groups = matrix_groups(warp);
  const MatrixRegisters& table = matrix_registers(warp);
  const MatrixRegisters::Uses& uses = table.ops[warp.group().pc];
  if (uses.plain_mov) return defer_mov(warp, op, mask, uses);
  for (const MatrixRegisters::Use& use : std::span(table.uses).subspan(uses.first, uses.count)) {
    if (groups.being_written(use.id)) {
      raise_in_flight(
          warp, use.id,
          use.write ? " is overwritten, it belongs to" : " is read, it is being written by");
    }
    if (!use.write) continue;
    if (groups.being_read(use.id)) raise_in_flight(warp, use.id, " is overwritten, it is read by");
    groups.registers[use.id].written = ++groups.time;
  }
  return false;
}

void claim_registers(Warp& warp, std::span<const std::uint16_t> accumulators,
                     std::span<const std::uint16_t> a, std::uint32_t shape) {
  MatrixGroups& groups = matrix_groups(warp);
  if (groups.fence_time == 0) {
    raise(Fault::in_flight, "a wgmma with no wgmma.fence before it");
  }
  const auto check_fence = [&](std::uint16_t id) {
    if (groups.registers[id].written <= groups.fence_time) return;
    raise(Fault::in_flight,
          quoted(warp, id) +
              " was written after the last wgmma.fence (compilers move arithmetic across it: keep "
              "the value in front with asm volatile(\"\" : \"+r\"(x) :: \"memory\"))");
  };
  const std::uint64_t group = groups.committed + 1;
  for (std::uint16_t id : a) {
    check_fence(id);
    if (groups.being_written(id))
      raise_in_flight(warp, id, " is operand A, it is being written by");
  }
  for (std::uint32_t position = 0; position < accumulators.size(); ++position) {
    const std::uint16_t id = accumulators[position];
    if (id == MatrixRegisters::kNone) continue;
    check_fence(id);
    MatrixGroups::Register& reg = groups.registers[id];
    if (groups.being_read(id) || std::ranges::find(a, id) != a.end()) {
      raise_in_flight(warp, id, " is an accumulator, it is operand A of");
    }
    if (groups.being_written(id) && (reg.shape != shape || reg.position != position)) {
      raise_in_flight(warp, id, " is an accumulator, in another shape or place, of");
    }
    reg.write_group = group;
    reg.shape = shape;
    reg.position = position;
  }
  for (std::uint16_t id : a) groups.registers[id].read_group = group;
}

void issue(Warp& warp, MatrixWork work) {
  MatrixGroups& groups = matrix_groups(warp);
  Cluster& cluster = warp.block().cluster();
  work.group = groups.committed + 1;
  if (cluster.shadow() != nullptr) {
    work.operation = std::make_unique<Shadow::Operation>(cluster.shadow()->begin(warp, -1, true));
  }
  if (!cluster.late()) execute(warp, work);
  groups.works.push_back(std::move(work));
}

void fence_matrix(Warp& warp) {
  MatrixGroups& groups = matrix_groups(warp);
  groups.fence_time = ++groups.time;
}

void commit_matrix(Warp& warp) { ++matrix_groups(warp).committed; }

void wait_matrix(Warp& warp, std::uint64_t pending) {
  MatrixGroups& groups = matrix_groups(warp);
  if (groups.committed < pending) return;
  const std::uint64_t last = std::max(groups.retired, groups.committed - pending);
  Cluster& cluster = warp.block().cluster();
  // A move may stand behind younger groups, since it ends with the group of its source.
  for (MatrixWork& work : groups.works) {
    if (work.group > last) continue;
    if (cluster.late()) execute(warp, work);
    if (work.operation != nullptr) cluster.shadow()->acquire(warp, *work.operation);
  }
  std::erase_if(groups.works, [&](const MatrixWork& work) { return work.group <= last; });
  groups.retired = last;
}

void check_matrix_finished(const Warp& warp) {
  // The state of a warp that is done: nothing is made here.
  const MatrixGroups* groups = const_cast<Warp&>(warp).async().matrix.get();
  if (groups == nullptr || groups->works.empty()) return;
  raise(Fault::in_flight, "the kernel ends with the wgmma of line " +
                              std::to_string(line_of(warp, groups->works.front().op)) +
                              " never waited for");
}

}  // namespace kiln::runtime::emulator
