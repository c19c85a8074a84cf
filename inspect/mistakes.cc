#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/mistakes.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

// An op, one of its inputs, and the types of ops whose result is wrong for that input.
struct WrongSource {
  std::string_view op, slot;
  std::vector<std::string_view> sources;
  const char* because;
};

const std::vector<WrongSource>& WrongSources() {
  static const std::vector<std::string_view> probabilities = {"softmax", "sigmoid"};
  static const std::vector<std::string_view> logarithms = {"log_softmax", "log", "logsigmoid"};
  static const char* const kOwnSoftmax = "it applies softmax itself: give it the input of that op";
  static const char* const kOwnSigmoid = "it applies sigmoid itself: give it the input of that op";
  static const char* const kOwnLog = "it takes the logarithm itself: give it probabilities";
  static const std::vector<WrongSource> all = {
      {"softmax_with_cross_entropy", "Logits", {"softmax"}, kOwnSoftmax},
      {"c_softmax_with_cross_entropy", "Logits", {"softmax"}, kOwnSoftmax},
      {"warpctc", "Logits", {"softmax"}, kOwnSoftmax},
      {"sigmoid_cross_entropy_with_logits", "X", probabilities, kOwnSigmoid},
      {"sigmoid_focal_loss", "X", probabilities, kOwnSigmoid},
      {"cross_entropy", "X", logarithms, kOwnLog},
      {"cross_entropy2", "X", logarithms, kOwnLog},
      {"log_loss", "Predicted", logarithms, kOwnLog},
      {"nll_loss", "X", {"softmax"}, "it takes logarithms: use log_softmax"},
      {"log", "X", {"log_softmax", "logsigmoid"}, "those are logarithms already"},
  };
  return all;
}

// Whether the op returns the elements of X, perhaps moved or converted.
bool PassesOn(const OpDesc& op, const OpRegistry& ops) {
  const OpSpec* spec = ops.Find(op.type());
  return spec && spec->rows.effect.rule == RowRule::kMoves && op.Input("X").size() == 1;
}

// The op before `reader` in its block that computed the elements of `var`; nullptr if it is
// not certain.
const OpDesc* SourceOf(std::string var, const OpDesc& reader, const OpRegistry& ops) {
  constexpr int kFurthest = 16;
  const BlockDesc& block = *reader.block();
  const OpDesc* at = &reader;
  for (int steps = 0; steps < kFurthest; ++steps) {
    const auto writers = block.Uses(var).writers;
    if (writers.size() != 1 || block.IndexOf(*writers[0]) >= block.IndexOf(*at)) return nullptr;
    at = writers[0];
    if (!PassesOn(*at, ops)) return at;
    var = at->Input("X")[0];
  }
  return nullptr;
}

std::string PlaceIn(const OpDesc& op) {
  const std::string site = op.creation_site();
  return site.empty() ? Locate(op) : site;
}

void AddWrongSources(const OpDesc& op, const OpRegistry& ops, std::vector<Mistake>* found) {
  for (const WrongSource& wrong : WrongSources()) {
    if (op.type() != wrong.op || op.Input(wrong.slot).size() != 1) continue;
    const std::string& var = op.Input(wrong.slot)[0];
    const OpDesc* source = IsEmptyName(var) ? nullptr : SourceOf(var, op, ops);
    if (!source || std::find(wrong.sources.begin(), wrong.sources.end(), source->type()) ==
                       wrong.sources.end())
      continue;
    found->push_back({&op, var,
                      fmt::format("{}: its input {} is the result of {}, and {}", op.type(),
                                  Quote(var), source->type(), wrong.because),
                      false, PlaceIn(op)});
  }
}

bool HasTrainingOps(const ProgramDesc& program) {
  bool found = false;
  program.ForEachOp([&](const OpDesc& op) { found |= HasRole(op, kBackward | kOptimize); });
  return found;
}

// The variables that ops of all blocks read.
std::unordered_set<std::string_view> ReadNames(const ProgramDesc& program) {
  std::unordered_set<std::string_view> names;
  program.ForEachOp([&](const OpDesc& op) {
    op.ForEachInput([&](const std::string& name) { names.insert(name); });
  });
  return names;
}

void AddUnreadInputs(const ProgramDesc& program, const OpRegistry& ops,
                     std::vector<Mistake>* found) {
  const BlockDesc& root = program.Root();
  const std::unordered_set<std::string_view> read = ReadNames(program);
  root.ForEachOp([&](const OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    if (!spec || spec->kind != OpKind::kFeed) return;
    op.ForEachOutput([&](const std::string& name) {
      if (read.count(name)) return;
      found->push_back({&op, name,
                        fmt::format("the input {} is fed, and no op reads it", Quote(name)), true,
                        PlaceIn(op)});
    });
  });
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    const std::string& site = var.training().creation_site;
    if (site.empty() || var.persistable() || read.count(var.name())) continue;
    if (!root.Uses(var.name()).writers.empty()) continue;
    found->push_back({nullptr, var.name(),
                      fmt::format("no layer reads the data {}", Quote(var.name())), true, site});
  }
}

void AddDrops(const ProgramDesc& program, std::vector<Mistake>* found) {
  program.ForEachOp([&](const OpDesc& op) {
    if (op.type() != "dropout" || op.GetAttr<bool>("is_test", false) || !op.HasOutput("Out"))
      return;
    if (op.GetAttr<float>("dropout_prob", 0.5f) == 0) return;
    const std::string& out = op.Output("Out")[0];
    found->push_back({&op, out,
                      fmt::format("dropout: {} drops elements in a program that trains nothing; "
                                  "set is_test",
                                  Quote(out)),
                      false, PlaceIn(op)});
  });
}

void AddErrorClips(const ProgramDesc& program, std::vector<Mistake>* found) {
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      const VarDesc& var = block.var(i);
      if (!var.error_clip()) continue;
      const auto writers = block.Uses(var.name()).writers;
      const OpDesc* writer = writers.empty() ? nullptr : writers[0];
      found->push_back({writer, var.name(),
                        fmt::format("the error clip of {} never acts: the program computes no "
                                    "gradient",
                                    Quote(var.name())),
                        false, writer ? PlaceIn(*writer) : ""});
    }
  }
}

}  // namespace

std::vector<Mistake> FindDeployedMistakes(const ProgramDesc& program) {
  std::vector<Mistake> found;
  AddDrops(program, &found);
  AddErrorClips(program, &found);
  return found;
}

std::vector<Mistake> FindMistakes(const ProgramDesc& program, const OpRegistry& ops) {
  std::vector<Mistake> found;
  program.ForEachOp([&](const OpDesc& op) {
    if (IsForward(op)) AddWrongSources(op, ops, &found);
  });
  AddUnreadInputs(program, ops, &found);
  const bool deployed =
      HasOpOfKind(program.Root(), OpKind::kFetch, ops) && !HasTrainingOps(program);
  if (!deployed) return found;
  for (Mistake& mistake : FindDeployedMistakes(program)) found.push_back(std::move(mistake));
  return found;
}

std::string DescribeMistake(const Mistake& mistake) {
  return mistake.place.empty() ? mistake.message : mistake.place + ": " + mistake.message;
}

}  // namespace coracle::inline internal
