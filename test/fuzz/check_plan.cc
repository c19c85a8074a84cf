// Draws programs and what is done with them.

#include <coracle/test/fuzz/program_check.h>

#include <algorithm>

namespace coracle {

CheckPlan DrawPlan(const RandomProgram& program, Choices& choose) {
  CheckPlan plan;
  plan.seed = 1 + choose.Below(1 << 20);
  plan.text = choose.OneIn(16);
  plan.of_loss = !choose.OneIn(4);
  plan.second = choose.OneIn(4);
  const std::vector<std::string>& computed = program.computed;
  for (size_t k = 0; k < 3 && !computed.empty(); ++k) {
    plan.fetches.push_back(k == 0 ? computed.back() : choose.Of(computed));
    plan.targets.push_back(choose.Of(computed));
  }
  std::sort(plan.fetches.begin(), plan.fetches.end());
  plan.fetches.erase(std::unique(plan.fetches.begin(), plan.fetches.end()), plan.fetches.end());
  std::set<std::string> seen;
  for (const ProgramInput& input : program.inputs) {
    const bool floating = input.meta.type == VarType::kLoDTensor && IsFloating(input.meta.dtype);
    if (floating && !input.constant && !choose.OneIn(3) && plan.inputs.size() < 4)
      plan.inputs.push_back(input.name);
  }
  BackwardOptions& options = plan.backward;
  if (choose.OneIn(4)) options.aggregation = Aggregation::kRunning;
  if (choose.OneIn(4)) options.unconnected = Unconnected::kZero;
  options.gate_gradients = choose.OneIn(4);
  if (choose.OneIn(8) && !computed.empty()) options.stop_gradients = {choose.Of(computed)};
  if (choose.OneIn(8) && !computed.empty()) options.no_grad_set = {choose.Of(computed)};
  std::erase_if(options.no_grad_set, [&](const std::string& name) {
    return std::count(plan.targets.begin(), plan.targets.end(), name) > 0;
  });
  if (choose.OneIn(8)) options.gradient_prefix = "second_";
  if (choose.OneIn(8) && !computed.empty()) options.recompute.checkpoints = {choose.Of(computed)};
  if (choose.OneIn(16)) options.recompute.memory_budget = 64;
  return plan;
}

RandomCase MakeCase(uint64_t seed, const std::vector<std::string>& types) {
  Choices choose(seed);
  const size_t kind = choose.Below(6);
  RandomProgramOptions options;
  options.smooth = kind < 2;
  options.max_ops = choose.OneIn(4) ? 1 : 8;
  options.types = types;
  RandomCase made;
  made.program = MakeRandomProgram(choose, options);
  made.plan = DrawPlan(made.program, choose);
  made.plan.spoiled = kind == 5;
  made.plan.open = options.smooth && choose.OneIn(4);
  if (made.plan.open) LeaveTypesOpen(made.program.program, choose);
  for (size_t n = 1 + choose.Below(2); made.plan.spoiled && n > 0; --n)
    Spoil(made.program.program, choose);
  return made;
}

}  // namespace coracle
