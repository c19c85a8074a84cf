#pragma once
// Writes and parses the manifest.json of a snapshot.

#include <coracle/train/run/snapshot/snapshot.h>

#include <cstdint>
#include <map>
#include <string>

namespace coracle::inline internal {

struct FileRecord {
  uint64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32C
};

struct Manifest {
  TrainSnapshot state;  // except the parts with their own files
  std::map<std::string, FileRecord> files;
};

// Lists the names of the variables with their types, for other tools that read the file.
std::string WriteManifest(const Manifest& manifest, const ProgramDesc& main);
// Throws kDataLoss unless the text is byte for byte a result of WriteManifest. `file` names it
// in errors.
Manifest ParseManifest(const std::string& text, const std::string& file);

[[noreturn]] void ThrowDamaged(const std::string& file, const std::string& what);

}  // namespace coracle::inline internal
