#pragma once
// Programs as files: Paddle's binary ProgramDesc and protobuf text. Reading is safe on any bytes:
// one Error that says what is wrong and where, never a crash or an allocation out of proportion to
// the file.

#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace coracle {

inline constexpr uint64_t kMaxProgramBytes = uint64_t{1} << 30;

// Binary. Writing what was read gives the same bytes, for every file that Paddle wrote.
ProgramDesc ParseProgram(std::string_view bytes, const std::string& source = "program");
std::string SerializeProgram(const ProgramDesc& program);

// Protobuf text of framework.proto. Errors say source:line:column.
ProgramDesc ParseProgramText(std::string_view text, const std::string& source = "program");
std::string ProgramToText(const ProgramDesc& program);

// A file, or "-" for standard input. Text when the name ends in .pbtxt or .txt, or when the
// contents are text; else binary.
ProgramDesc ReadProgram(const std::string& path);
// Text when the name ends in .pbtxt or .txt; binary when it ends in .pb or .pdmodel or has no
// ending (__model__), and for "-", standard output. Throws kInvalidArgument for any other ending.
// Atomic.
void WriteProgram(const ProgramDesc& program, const std::string& path);
// Whether WriteProgram takes the name.
bool IsProgramFileName(const std::string& path);
// Whether `bytes` look like protobuf text rather than a binary message.
bool LooksLikeText(std::string_view bytes);

}  // namespace coracle
