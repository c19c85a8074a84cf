#include <coracle/framework/base/required.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/program.h>
#include <coracle/operators/control/conditional_block.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/internal/training_step.h>
#include <fmt/format.h>

namespace coracle {
namespace {

void RequireGuard(BlockDesc& block, const std::string& name) {
  const VarDesc& guard = Variable::Of(block, name).desc();
  if (guard.dtype() == DType::kBool && guard.shape() == Shape{1}) return;
  ThrowInvalid(fmt::format("optimizer: the guard {} must be bool[1], it is {}", Quote(name),
                           guard.meta().ToString()));
}

// A variable that is true if all guards hold.
std::string All(const Writer& w, const std::vector<std::string>& guards) {
  Variable all = w.Var(guards.front());
  for (size_t i = 1; i < guards.size(); ++i)
    all = w.Named("update_guard", And(all, w.Var(guards[i])));
  return all.name();
}

}  // namespace

Writer internal::UpdateWriter(BlockDesc& block, const TrainingMark& mark) {
  return Writer(block, DefaultOps(), {.role = kOptimize, .mark = mark, .stop_gradient = true});
}

GuardedBlock::GuardedBlock(BlockDesc& outer, const std::vector<std::string>& guards)
    : block_(&outer) {
  if (guards.empty()) return;
  for (const std::string& guard : guards) RequireGuard(outer, guard);
  outer_.emplace(UpdateWriter(outer));
  condition_ = All(UpdateWriter(outer, {.stage = TrainingStage::kUnscale}), guards);
  block_ = &outer.program().AppendBlock(outer);
}

void GuardedBlock::Close(const TrainingMark& mark) {
  if (!outer_) return;
  SetMark(outer_->Append(std::make_unique<OpDesc>(ConditionalBlockOp(*block_, condition_))), mark);
}

void AppendGuarded(BlockDesc& outer, const std::vector<std::string>& guards,
                   const std::function<void(BlockDesc& block)>& body) {
  RequireFunction(body, "optimizer: the body of a guarded block");
  const EditGuard guard(outer.program());
  GuardedBlock guarded(outer, guards);
  body(guarded.block());
  guarded.Close();
}

void AppendScale(BlockDesc& block, const std::string& x, const std::string& out, double factor) {
  const Writer w = UpdateWriter(block);
  SlotList inputs = {{"X", {x}}};
  if (w.Var(x).dtype() == DType::kFloat64) {
    const Variable exact = w.Named("factor", FillConstant(w, DType::kFloat64, factor));
    inputs.push_back({"ScaleTensor", {exact.name()}});
  }
  Writer(block, DefaultOps())
      .Into(out, "scale", std::move(inputs), {{"scale", static_cast<float>(factor)}});
}

}  // namespace coracle
