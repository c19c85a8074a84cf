#pragma once
// manifest.json of a snapshot.

#include <coracle/train/run/snapshot.h>

#include <cstdint>
#include <map>
#include <string>

namespace coracle {

struct FileRecord {
  uint64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32C
};

struct Manifest {
  TrainSnapshot state;  // but for what has files of its own
  std::map<std::string, FileRecord> files;
};

// Names of variables are listed with their types for those who read the file with other tools.
std::string WriteManifest(const Manifest& manifest, const ProgramDesc& main);
// Throws kDataLoss for anything but what WriteManifest gave, byte for byte; `file` names it.
Manifest ParseManifest(const std::string& text, const std::string& file);

// The name of the data as a manifest holds it: UTF-8.
std::string Utf8(const std::string& text);

[[noreturn]] void ThrowDamaged(const std::string& file, const std::string& what);

}  // namespace coracle
