#pragma once
// The binary reader, for use by the text reader. Private to framework/io.

#include <coracle/framework/io/internal/attr_codec.h>
#include <coracle/framework/ir/program.h>

#include <string>
#include <string_view>

namespace coracle::inline internal {

ProgramDesc DecodeProgram(std::string_view bytes, const std::string& source, MissingValue missing);

}  // namespace coracle::inline internal
