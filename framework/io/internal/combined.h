#pragma once
// The bytes of a .pdiparams file. Private to framework/io.

#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// Passes the contents that SaveCombined gives its file to `write`. Throws kNotFound, before the
// first piece, for a variable without a tensor.
void WriteCombined(const Scope& scope, const std::vector<std::string>& names,
                   const WritePieceFn& write);

}  // namespace coracle::inline internal
