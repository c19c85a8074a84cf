#include <coracle/clip/clip.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace coracle {

void AppendErrorClips(BlockDesc& block, const GradToVar& grad_to_var,
                      const AppendErrorClip& append) {
  RequireFunction(append, "error clip: the function that appends clips");
  const EditGuard guard(block.program());
  if (block.NumOps() == 0) return;
  const OpDesc& last = block.op(block.NumOps() - 1);
  const size_t first_clip = block.NumOps();
  std::vector<std::string> clipped;
  last.ForEachOutput([&](const std::string& grad) {
    auto entry = grad_to_var.find(grad);
    if (entry == grad_to_var.end()) return;
    const VarDesc* var = block.FindVarRecursive(entry->second);
    if (!var || !var->error_clip()) return;
    if (std::find(clipped.begin(), clipped.end(), grad) != clipped.end()) return;
    clipped.push_back(grad);
    const size_t first = block.NumOps();
    append(block, *var->error_clip(), grad, entry->second);
    SetMarks(block, first, {.stage = TrainingStage::kErrorClip, .of = entry->second});
  });
  for (size_t i = first_clip; i < block.NumOps(); ++i) {
    if (!block.op(i).HasAttr(kOpRoleAttr)) block.op(i).SetAttr(kOpRoleAttr, int32_t{kBackward});
  }
}

void ErrorClipCallback(BlockDesc& block, const GradToVar& grad_to_var) {
  AppendErrorClips(block, grad_to_var,
                   [](BlockDesc& at, const BaseErrorClipAttr& clip, const std::string& grad,
                      const std::string&) { clip.AppendClipOp(at, grad); });
}

BackwardCallback CountingErrorClipCallback(ProgramDesc& startup) {
  return [&startup](BlockDesc& block, const GradToVar& grad_to_var) {
    AppendErrorClips(block, grad_to_var,
                     [&startup](BlockDesc& at, const BaseErrorClipAttr& clip,
                                const std::string& grad, const std::string& var) {
                       CountErrorClip(at, startup, grad, var, [&] { clip.AppendClipOp(at, grad); });
                     });
  };
}

void CountErrorClip(BlockDesc& block, ProgramDesc& startup, const std::string& grad,
                    const std::string& var, const std::function<void()>& clip) {
  RequireFunction(clip, fmt::format("error clip of {}: the function that appends it", Quote(var)));
  const EditGuard guard(block.program(), startup);
  if (Variable::Of(block, grad).desc().type() != VarType::kLoDTensor) return clip();
  ProgramDesc& main = block.program();
  const std::string statistics = "error_clip." + var + ".statistics";
  if (!main.Root().FindVar(statistics))
    MakeState(main, startup, statistics, DType::kFloat64, {3}, 0);
  const Writer w(block, DefaultOps(),
                 {.mark = {.stage = TrainingStage::kErrorClip, .of = var},
                  .prefix = "error_clip",
                  .stop_gradient = true});
  const Variable before = w.Named("before", w.Make("assign", {{"X", {grad}}}));
  clip();
  w.Part(TrainingPart::kStatistics, var)
      .Into(statistics, "clip_statistics",
            {{"Before", {before.name()}}, {"After", {grad}}, {"Statistics", {statistics}}}, {},
            "StatisticsOut");
}

std::vector<std::string> WarnOfIdleErrorClips(const ProgramDesc& program,
                                              const GradToVar& grad_to_var) {
  std::unordered_set<std::string_view> with_gradient;
  for (const auto& [grad, var] : grad_to_var) with_gradient.insert(var);
  std::vector<std::string> idle;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      const VarDesc& var = block.var(i);
      if (!var.error_clip() || with_gradient.count(var.name())) continue;
      idle.push_back(var.name());
      LogMessage(MessageLevel::kWarning,
                 fmt::format("the error_clip of {} will never act: no gradient of it is computed{}",
                             Quote(var.name()),
                             var.stop_gradient()
                                 ? " (stop_gradient is set)"
                                 : " (the loss does not depend on it through a parameter)"));
    }
  }
  return idle;
}

}  // namespace coracle
