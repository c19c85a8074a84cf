#pragma once
// Files that are written piece by piece, so that no copy of the whole is in memory.

#include <functional>
#include <string>
#include <string_view>

namespace coracle {

using WritePieceFn = std::function<void(std::string_view)>;

// Like WriteFileAtomic (framework/base/file.h), with the pieces that `fill` passes to its argument
// as contents. What `fill` throws leaves the file as it was.
void WriteFileInPieces(const std::string& path,
                       const std::function<void(const WritePieceFn& write)>& fill);

}  // namespace coracle
