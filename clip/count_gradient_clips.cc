#include <coracle/clip/clip.h>
#include <coracle/clip/internal/clip_writer.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/program.h>
#include <fmt/format.h>

#include <map>

namespace coracle {

void CountGradientClips(BlockDesc& block, ProgramDesc& startup,
                        const std::vector<ClipMember>& members,
                        const std::vector<std::string>& clipped) {
  const EditGuard guard(block.program(), startup);
  struct Gradients {
    std::vector<std::string> before, after;
  };
  const Writer w = ClipWriter(block);
  std::map<std::string, Gradients> kinds;
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string &kind = members[i].clip.kind, &grad = members[i].pair.grad;
    const bool has_own = kind == "none" || kind == "by_norm" || kind == "by_global_norm";
    if (has_own || grad == clipped[i]) continue;
    if (IsSparse(w.Var(grad)) || IsSparse(w.Var(clipped[i]))) continue;
    kinds[kind].before.push_back(grad);
    kinds[kind].after.push_back(clipped[i]);
  }
  ProgramDesc& main = block.program();
  for (const auto& [kind, gradients] : kinds) {
    const auto name_of = [](const std::string& of) {
      return "gradient_clip." + of + ".statistics";
    };
    std::string of = kind;
    for (int i = 1; main.Root().FindVar(name_of(of)); ++i) of = fmt::format("{}_{}", kind, i);
    const std::string name = MakeState(main, startup, name_of(of), DType::kFloat64, {3}, 0);
    w.Part(TrainingPart::kStatistics, of)
        .Into(name, "clip_statistics",
              {{"Before", gradients.before}, {"After", gradients.after}, {"Statistics", {name}}},
              {}, "StatisticsOut");
  }
}

}  // namespace coracle
