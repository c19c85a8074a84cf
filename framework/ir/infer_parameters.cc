// Infers which variables are parameters if the program does not say.

#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/role.h>

#include <algorithm>
#include <string_view>

namespace coracle {
namespace {

// How the ops of a program use a variable of the root block.
struct Use {
  bool read = false;     // by an op of the forward part
  bool written = false;  // by any op
  bool updated = false;  // as the Param of an update op
  bool rate = false;     // as an update op's learning rate
};

// Ops that accept variables of any kind.
bool OnlyLooks(const OpDesc& op) {
  constexpr std::string_view kTypes[] = {"fetch", "save", "save_combine", "print"};
  return std::find(std::begin(kTypes), std::end(kTypes), op.type()) != std::end(kTypes);
}

std::vector<Use> UsesOfRoot(const ProgramDesc& program) {
  const BlockDesc& root = program.Root();
  std::vector<Use> uses(root.NumVars());
  program.ForEachOp([&](const OpDesc& op) {
    const BlockDesc& block = *op.block();
    auto use = [&](const std::string& name) -> Use* {
      if (block.idx() > 0 && block.FindVar(name)) return nullptr;
      const VarDesc* var = root.FindVar(name);
      return var ? &uses[var->index()] : nullptr;
    };
    const bool reads = IsForward(op) && !OnlyLooks(op);
    op.ForEachInput([&](const std::string& name, const std::string& slot) {
      Use* used = use(name);
      if (!used) return;
      used->read |= reads;
      used->updated |= slot == "Param";
      used->rate |= slot == "LearningRate";
    });
    op.ForEachOutput([&](const std::string& name) {
      if (Use* used = use(name)) used->written = true;
    });
  });
  return uses;
}

std::vector<bool> LikelyParameters(const ProgramDesc& program) {
  const std::vector<Use> uses = UsesOfRoot(program);
  std::vector<bool> likely(uses.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    const VarDesc& var = program.Root().var(i);
    const Use& use = uses[i];
    const bool trained = IsFloating(var.dtype()) || IsComplex(var.dtype());
    likely[i] = var.persistable() && var.type() == VarType::kLoDTensor && trained &&
                (use.updated || (use.read && !use.written && !use.rate));
  }
  return likely;
}

// Whether a variable says that it is a parameter; the variables that say nothing are then
// not parameters.
bool SaysParameters(const BlockDesc& root) {
  for (size_t i = 0; i < root.NumVars(); ++i) {
    if (FileFields::IsParameter(root.var(i)) == std::optional<bool>(true)) return true;
  }
  return false;
}

}  // namespace

void ProgramDesc::InferParameters() {
  const std::vector<bool> likely =
      SaysParameters(Root()) ? std::vector<bool>(Root().NumVars(), false) : LikelyParameters(*this);
  for (size_t i = 0; i < likely.size(); ++i) {
    VarDesc& var = Root().var(i);
    if (var.inferred_parameter_ == likely[i]) continue;
    var.Save();
    var.inferred_parameter_ = likely[i];
  }
}

bool ProgramDesc::MustSayParameters() const {
  const auto& vars = Root().vars_;
  if (SaysParameters(Root())) {
    return std::any_of(vars.begin(), vars.end(),
                       [](const auto& var) { return var->inferred_parameter_.value_or(false); });
  }
  const std::vector<bool> likely = LikelyParameters(*this);
  for (size_t i = 0; i < vars.size(); ++i) {
    if (!vars[i]->is_parameter_ && vars[i]->is_parameter() != likely[i]) return true;
  }
  return false;
}

std::vector<std::string> ProgramDesc::Parameters() const {
  std::vector<std::string> names;
  for (const auto& var : Root().vars_) {
    if (var->is_parameter() && var->training().trainable) names.push_back(var->name());
  }
  return names;
}

}  // namespace coracle
