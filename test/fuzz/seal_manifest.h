#pragma once
// Writes the manifest of a snapshot for a file that was changed.

#include <coracle/framework/base/crc32c.h>
#include <coracle/framework/base/file.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace coracle {

// Makes the manifest in `snapshot` agree with `contents` of a file, as whoever changes the file
// would do. Leaves a manifest that is not JSON as it is.
inline void SealManifest(const std::string& snapshot, const std::string& file,
                         const std::string& contents) {
  const std::string path = snapshot + "/manifest.json";
  auto json = nlohmann::ordered_json::parse(ReadFile(path), nullptr, false);
  if (!json.is_object()) return;
  const auto hex = [](uint32_t crc) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", crc);
    return std::string(text);
  };
  if (file != "manifest.json") {
    if (json.contains("files") && !json["files"].is_object()) return;
    json["files"][file] = {{"bytes", contents.size()}, {"crc32c", hex(Crc32c(contents))}};
  }
  json.erase("checksum");
  json["checksum"] =
      hex(Crc32c(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  WriteFileAtomic(path, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace coracle
