// Coded rows of a model's parameters in a file: what encode_weights makes of them, made once.
//
// The file is the rows of one parameter after another, then a table with each parameter's place and checksum, and of
// which weights all of it is. Rows do not depend on how a model is cut over units and ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "zeepo/base/file.h"
#include "zeepo/zero/stored_form.h"

namespace zeepo {

class CodedFile {
 public:
  // Throws Error naming the file when it is damaged, or has the rows of other weights than `source` names. Reads all of
  // it with Check::all, else the table.
  enum class Check { table, all };
  CodedFile(const std::filesystem::path& path, CodedType type, const std::string& source, Check check);

  // Writes the file. It appears in its place when it is complete.
  static void write(const std::filesystem::path& path, CodedType type, const std::string& source, const UnitPlan& units,
                    const WeightSource& weights, CpuStream& stream);

  // As CodedSource has it. False where the file has no such parameter.
  bool read(const UnitParameter& parameter, CodedType type, std::int64_t first, std::span<std::byte> rows) const;

 private:
  struct Entry {
    std::int64_t offset = 0, bytes = 0;
    std::string checksum;
  };
  void read_table(CodedType type, const std::string& source);
  void check_rows() const;

  InputFile file_;
  CodedType type_;
  std::map<std::string, Entry> entries_;
};

}  // namespace zeepo
