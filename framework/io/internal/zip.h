#pragma once
// ZIP archives of stored and deflated files. Private to framework/io. Format: PKWARE's APPNOTE.

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

struct ZipFile {
  std::string name;
  std::string contents;
};

// In the order of the archive's directory. Every size is checked against the archive before memory
// is taken for it, and every file against its CRC.
std::vector<ZipFile> ReadZip(std::string_view bytes, const std::string& source);
// Throws kResourceExhausted past 4 GiB.
std::string WriteZip(const std::vector<ZipFile>& files, bool compressed);

}  // namespace coracle
