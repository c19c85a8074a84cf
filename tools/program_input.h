#pragma once
// How every command finds a program.

#include <coracle/framework/ir/program.h>

#include <string>

namespace coracle::tools {

// A .pdmodel, __model__, .pb or .pbtxt file, a directory that holds one, or "-" for standard input.
// Of a model text it is the main program.
ProgramDesc ReadAnyProgram(const std::string& path);

// The file that ReadAnyProgram reads: in a directory the program in it.
std::string ProgramFile(const std::string& path);

}  // namespace coracle::tools
