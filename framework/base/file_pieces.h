#pragma once
// Files written piece by piece, without a copy of the whole in memory.

#include <functional>
#include <string>
#include <string_view>

namespace coracle::inline internal {

using WritePieceFn = std::function<void(std::string_view)>;

// Like WriteFileAtomic (framework/base/file.h), with the pieces that `fill` passes to its argument
// as contents. If `fill` throws, the file stays unchanged.
void WriteFileInPieces(const std::string& path,
                       const std::function<void(const WritePieceFn& write)>& fill);

}  // namespace coracle::inline internal
