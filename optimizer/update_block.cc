#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/state.h>
#include <coracle/framework/ir/variable.h>
#include <coracle/operators/control/conditional_block.h>
#include <coracle/optimizer/update_block.h>
#include <fmt/format.h>

namespace coracle {
namespace {

void RequireGuard(BlockDesc& block, const std::string& name) {
  const VarDesc& guard = Variable::Of(block, name).desc();
  if (guard.dtype() == DType::kBool && guard.shape() == Shape{1}) return;
  ThrowInvalid(fmt::format("optimizer: the guard {} must be bool[1], it is {}", Quote(name),
                           guard.meta().ToString()));
}

// The variable that holds whether all of them hold.
std::string All(BlockDesc& block, const std::vector<std::string>& guards) {
  std::string all = guards.front();
  for (size_t i = 1; i < guards.size(); ++i) {
    std::string both = MakeTemporary(block, "update_guard", DType::kBool);
    block.AppendOp("logical_and", {{"X", {all}}, {"Y", {guards[i]}}}, {{"Out", {both}}},
                   {{kOpRoleAttr, int32_t{kOptimize}}});
    all = std::move(both);
  }
  return all;
}

}  // namespace

void AppendGuarded(BlockDesc& outer, const std::vector<std::string>& guards,
                   const std::function<void(BlockDesc& block)>& body) {
  if (guards.empty()) return body(outer);
  for (const std::string& guard : guards) RequireGuard(outer, guard);
  const std::string condition = All(outer, guards);
  BlockDesc& inner = outer.program().AppendBlock(outer);
  body(inner);
  outer.AppendOp(ConditionalBlockOp(inner, condition)).SetAttr(kOpRoleAttr, int32_t{kOptimize});
}

void AppendScale(BlockDesc& block, const std::string& x, const std::string& out, double factor) {
  SlotList inputs = {{"X", {x}}};
  if (Variable::Of(block, x).dtype() == DType::kFloat64) {
    inputs.push_back({"ScaleTensor", {MakeTemporary(block, "factor", DType::kFloat64)}});
    block.AppendOp("fill_constant", {}, {{"Out", inputs.back().args}},
                   {{"shape", std::vector<int64_t>{1}},
                    {"dtype", static_cast<int32_t>(DType::kFloat64)},
                    {"value", static_cast<float>(factor)},
                    {"str_value", fmt::format("{}", factor)},
                    {kOpRoleAttr, int32_t{kOptimize}}});
  }
  block.AppendOp("scale", std::move(inputs), {{"Out", {out}}},
                 {{"scale", static_cast<float>(factor)}});
}

}  // namespace coracle
