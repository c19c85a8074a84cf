#pragma once
// ZIP archives of stored and deflated files. Private to framework/io. Format: PKWARE's APPNOTE.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

struct ZipFile {
  std::string name;
  std::string contents;
};

// Calls `use` for each file, in the order of the archive's directory. Every size is checked against
// the archive before memory is allocated for it, and every file against its CRC. Throws OutOfMemory
// before the first file if all files together exceed the memory limit.
void ReadZip(std::string_view bytes, const std::string& source,
             const std::function<void(ZipFile file)>& use);
// Throws kResourceExhausted past 4 GiB.
std::string WriteZip(const std::vector<ZipFile>& files, bool compressed);

}  // namespace coracle::inline internal
