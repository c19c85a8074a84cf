#pragma once
// The files that a program's ops read and write (OpDef::NamesFile).

#include <coracle/framework/base/file_access.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

struct FileUse {
  const OpDesc* op;
  std::string path;  // as given in the op
};

// Returns the uses in the order of blocks and ops. Ops unknown to the registry are taken to use
// no file.
std::vector<FileUse> FilesOf(const ProgramDesc& program, const OpRegistry& ops);

// Throws kInvalidArgument, with the op's place, unless `files` allows the op to access its file.
void RequireAllowed(const FileUse& use, const FileAccess& files);

}  // namespace coracle::inline internal
