// What the shadow found, told to the kernel's author.
#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/shadow/state.h"

namespace kiln::runtime::emulator {

// "warp 2 (PTX line 88)", "the cp.async of warp 2 of block 1 (PTX line 88)".
std::string Shadow::State::name_of(Agent agent, std::uint32_t pc) const {
  const AgentInfo& info = agents[agent];
  std::string text = info.kind == AgentInfo::Kind::copies      ? "a cp.async of "
                     : info.kind == AgentInfo::Kind::operation ? "an asynchronous operation of "
                                                               : "";
  text += "warp " + std::to_string(info.warp);
  if (cluster.blocks().size() > 1) text += " of block " + std::to_string(info.rank);
  const std::vector<Instruction>& body = cluster.program().function->body;
  if (pc < body.size()) text += " (PTX line " + std::to_string(body[pc].line) + ")";
  return text;
}

// "byte 0x1234 of block 0's shared memory ('tile' + 0x34)".
std::string Shadow::State::place_of(int rank, std::uint32_t offset) const {
  std::string text =
      "byte " + hex(offset) + " of block " + std::to_string(rank) + "'s shared memory";
  for (const SharedVariable& variable : cluster.program().shared_variables) {
    if (offset >= variable.offset && offset - variable.offset < variable.bytes) {
      text += " ('" + std::string(variable.name) + "' + " + hex(offset - variable.offset) + ")";
    }
  }
  return text;
}

void Shadow::State::report_uninitialized(const Actor& actor, int rank, std::uint32_t offset) const {
  raise(Fault::uninitialized_shared,
        place_of(rank, offset) + " is read by " + name_of(actor.agent, actor.pc) +
            ", but nobody has written it",
        actor.lane);
}

void Shadow::State::report_race(const Actor& actor, bool writes, Agent other, std::uint32_t pc,
                                bool other_wrote, int rank, std::uint32_t offset) const {
  raise(Fault::shared_race,
        place_of(rank, offset) + ": " + (other_wrote ? "written by " : "read by ") +
            name_of(other, pc) + ", " + (writes ? "written by " : "read by ") +
            name_of(actor.agent, actor.pc) + " with no barrier or wait between",
        actor.lane);
}

void Shadow::State::report_lanes(const Actor& actor, bool writes, int other, std::uint32_t pc,
                                 bool other_wrote, int rank, std::uint32_t offset) const {
  raise(Fault::shared_race,
        place_of(rank, offset) + ": " + (other_wrote ? "written" : "read") + " by lane " +
            std::to_string(other) + " of " + name_of(actor.agent, pc) + ", " +
            (writes ? "written" : "read") + " by lane " + std::to_string(actor.lane) +
            " of the same warp with no bar.warp.sync between",
        actor.lane);
}

void Shadow::State::report_proxy(const Actor& actor, const WriteRecord& record, int lane, int rank,
                                 std::uint32_t offset) const {
  raise(Fault::unfenced_proxy,
        place_of(rank, offset) + ": written by lane " + std::to_string(lane) + " of " +
            name_of(record.agent, record.pc) + " and read by " + name_of(actor.agent, actor.pc) +
            ", but neither the writer nor a warp that has waited for it has executed "
            "fence.proxy.async in between",
        actor.lane);
}

}  // namespace kiln::runtime::emulator
