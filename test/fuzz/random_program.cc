#include <coracle/test/fuzz/program_maker.h>

namespace coracle {

std::vector<std::string> DrawnTypes() {
  static const std::set<std::string> kNot = {"feed", "fetch",        "save",
                                             "load", "save_combine", "load_combine"};
  std::vector<std::string> types;
  for (const std::string& type : DefaultOps().Types()) {
    if (!type.ends_with("_grad") && !kNot.count(type)) types.push_back(type);
  }
  return types;
}

// The verifier knows a type that an op of the same block determines.
void LeaveTypesOpen(ProgramDesc& program, Choices& choose) {
  const auto is_used_elsewhere = [&](const BlockDesc& home, const std::string& name) {
    for (int b = 0; b < program.NumBlocks(); ++b) {
      if (b == home.idx()) continue;
      const VarUses& uses = program.Block(b).Uses(name);
      if (!uses.readers.empty() || !uses.writers.empty()) return true;
    }
    return false;
  };
  // (A call takes the types of results as the function declares them.)
  std::set<std::string> results;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    for (const OpDesc* op : program.Block(b).SubBlockOps()) {
      for (const std::string& name : op->GetAttr<std::vector<std::string>>("results", {}))
        results.insert(name);
    }
  }
  std::vector<VarDesc*> written;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      VarDesc& var = block.var(i);
      const VarUses& uses = block.Uses(var.name());
      const bool written_first =
          !uses.writers.empty() && (uses.readers.empty() || block.IndexOf(*uses.writers[0]) <
                                                                block.IndexOf(*uses.readers[0]));
      // (An op that runs a block does not determine the types of its outputs.)
      if (written_first && !uses.writers[0]->HasSubBlock() && var.type() == VarType::kLoDTensor &&
          !var.persistable() && !is_used_elsewhere(block, var.name()) && !results.count(var.name()))
        written.push_back(&var);
    }
  }
  for (size_t n = 1 + choose.Below(3); n > 0 && !written.empty(); --n)
    choose.Of(written)->SetType(VarType::kRaw);
}

RandomProgram MakeRandomProgram(Choices& choose, const RandomProgramOptions& options) {
  RandomProgram made;
  made.smooth = options.smooth;
  ProgramMaker(choose, options, made).Make();
  return made;
}

}  // namespace coracle
