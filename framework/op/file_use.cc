#include <coracle/framework/base/error.h>
#include <coracle/framework/op/file_use.h>

namespace coracle {

std::vector<FileUse> FilesOf(const ProgramDesc& program, const OpRegistry& ops) {
  std::vector<FileUse> uses;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumOps(); ++i) {
      const OpDef* def = ops.Find(block.op(i).type());
      if (auto path = def ? def->FileOf(block.op(i)) : std::nullopt)
        uses.push_back({&block.op(i), std::move(*path)});
    }
  }
  return uses;
}

void RequireAllowed(const FileUse& use, const FileAccess& files) {
  try {
    files.Check(use.path);
  } catch (const Error& e) {
    throw e.WithPrefix(use.op->type()).WithDetail(Locate(*use.op));
  }
}

}  // namespace coracle
