// The measured table of tiles, docs/tuning.md: which row of a config table was the fastest for a
// problem on a device. Calls ask it before the built-in choice; KILN_TUNING or set_tuning
// (kiln/control.h) names its file. Each operation keeps its own entries, which Family::tuning
// reads.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jit/op/names.h"

namespace kiln {

struct Family;

// One object of the file, with its place for messages. Fields that nobody asks for are ignored,
// because the file also holds the measured times.
class TuningPart {
 public:
  // The object must outlive the part.
  TuningPart(const nlohmann::json& object, std::string place);

  [[noreturn]] void refuse(const std::string& what) const;
  const nlohmann::json& at(const char* field) const;
  int integer(const char* field, int least) const;
  int integer_or(const char* field, int least, int otherwise) const;
  std::string text(const char* field) const;
  std::string text_or(const char* field, const char* otherwise) const;
  // Returns the value of this name. A field that is left out is read as `otherwise`, and is an
  // error if that is null.
  std::uint8_t choice(const char* field, std::span<const Named> values,
                      const char* otherwise = nullptr) const;
  TuningPart part(const char* field) const;

 private:
  const nlohmann::json* object_;
  std::string place_;
};

// The device on which all entries of a file were measured.
struct TuningDevice {
  int arch = 0;  // index into arch_table()
  int sm_count = 0;
  auto operator<=>(const TuningDevice&) const = default;
};

// The entries of one operation. They never change once they are made, so that any thread may look
// one up without a lock.
class TunedEntries {
 public:
  virtual ~TunedEntries() = default;
};

// An operation whose calls ask the table has such a reader for its entries.
struct TuningReader {
  std::unique_ptr<const TunedEntries> (*read)(std::span<const TuningPart> entries,
                                              const TuningDevice& device);
  bool unnamed = false;  // it also reads entries without a field 'op', as older files have them
};

class TuningTable {
 public:
  // Throws std::invalid_argument, which names the file, the entry and the field that are not sound.
  TuningTable(std::string path, std::string text);

  // Returns null where the file has no entry of this operation.
  const TunedEntries* of(const Family& family) const;
  const std::string& path() const { return path_; }
  const std::string& text() const { return text_; }

 private:
  std::string path_, text_;
  std::vector<std::pair<const Family*, std::unique_ptr<const TunedEntries>>> operations_;
};

// Returns the process's table, null when there is none. A table is never freed, and every file and
// content has an object of its own: what was remembered under one address stays true.
const TuningTable* tuning_table();

// Lengths that may share entries round up to the same power of two: 65 and 128 do, 64 and 65 do
// not.
std::int64_t tuning_bucket(std::int64_t length);

}  // namespace kiln
