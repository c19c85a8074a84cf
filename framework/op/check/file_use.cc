#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/op/check/file_use.h>

namespace coracle::inline internal {

std::vector<FileUse> FilesOf(const ProgramDesc& program, const OpRegistry& ops) {
  std::vector<FileUse> uses;
  program.ForEachOp([&](const OpDesc& op) {
    const OpSpec* def = ops.Find(op.type());
    if (auto path = def ? def->FileOf(op) : std::nullopt) uses.push_back({&op, std::move(*path)});
  });
  return uses;
}

void RequireAllowed(const FileUse& use, const FileAccess& files) {
  try {
    files.Check(use.path);
  } catch (const Error& e) {
    throw e.WithPrefix(use.op->type()).WithDetail(Locate(*use.op));
  }
}

}  // namespace coracle::inline internal
