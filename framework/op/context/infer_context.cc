#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <fmt/format.h>

namespace coracle {
namespace {

class BlockMetaTable : public MetaTable {
 public:
  explicit BlockMetaTable(BlockDesc& block) : block_(block) {}
  const VarMeta* Find(const std::string& name) const override {
    const VarDesc* var = block_.FindVarRecursive(name);
    return var ? &var->meta() : nullptr;
  }
  void Set(const std::string& name, const VarMeta& meta) override {
    VarDesc* var = block_.FindVarRecursive(name);
    (var ? *var : block_.Var(name)).SetMeta(meta);
  }

 private:
  BlockDesc& block_;
};

std::vector<int64_t> IntegersOf(const Tensor& tensor) {
  Tensor wide = tensor.dtype() == DType::kInt64 ? tensor : tensor.Cast(DType::kInt64);
  auto values = wide.span<int64_t>();
  return {values.begin(), values.end()};
}

}  // namespace

const VarMeta& InferContext::Input(std::string_view slot, size_t i) const {
  i = At(slot, i);
  const auto& args = op_.Input(slot);
  if (i >= args.size() || IsEmptyName(args[i])) {
    ThrowInvalid(fmt::format("{}: input {} is required", op_.type(), slot), "  " + Locate(op_));
  }
  const VarMeta* meta = vars_.Find(args[i]);
  if (!meta) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: input {} reads the var {}, which nothing defines", op_.type(),
                            slot, QuoteVar(args[i])),
                "  " + Locate(op_));
  }
  return *meta;
}

const VarMeta* InferContext::DeclaredOutput(std::string_view slot, size_t i) const {
  i = At(slot, i);
  const auto& args = op_.Output(slot);
  return i < args.size() && !IsEmptyName(args[i]) ? vars_.Find(args[i]) : nullptr;
}

void InferContext::SetOutput(std::string_view slot, const VarMeta& meta, size_t i) {
  i = At(slot, i);
  const auto& args = op_.Output(slot);
  if (i >= args.size() || IsEmptyName(args[i])) return;
  if (meta.shape.HasTooManyElements()) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("{}: its output var {} has too many elements", op_.type(),
                            DescribeVar(args[i], meta)),
                DescribeOperands(op_, vars_));
  }
  if (meta.dtype == DType::kString && !spec_.TakesStrings()) {
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("{}: the op makes no strings, and its output var is {}", op_.type(),
                            DescribeVar(args[i], meta)),
                DescribeOperands(op_, vars_));
  }
  vars_.Set(args[i], meta);
}

void InferContext::SetOutput(std::string_view slot, DType dtype, const Shape& shape, size_t i) {
  SetOutput(slot, VarMeta{VarType::kLoDTensor, dtype, shape, 0}, i);
}

const Tensor* InferContext::Constant(std::string_view slot, size_t i) const {
  i = At(slot, i);
  const auto& args = op_.Input(slot);
  if (i >= args.size() || IsEmptyName(args[i])) return nullptr;
  const Tensor* value = vars_.Constant(args[i]);
  if (!value && vars_.exact()) throw NeedsValue{args[i]};
  return value;
}

std::optional<std::vector<int64_t>> InferContext::Value(std::string_view slot, size_t i) const {
  const Tensor* value = Constant(slot, i);
  if (!value) return std::nullopt;
  return IntegersOf(*value);
}

std::optional<std::vector<int64_t>> InferContext::LevelSizes(std::string_view slot,
                                                             size_t i) const {
  i = At(slot, i);
  const auto& args = op_.Input(slot);
  if (i >= args.size() || IsEmptyName(args[i])) return std::nullopt;
  return vars_.LevelSizes(args[i]);
}

int InferContext::Axis(std::string_view id, int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) Fail(id, fmt::format("{} with rank {}", axis, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

void InferContext::FailWith(std::string_view id, const GotValues& got) const {
  ThrowInvalid(spec_.Failure(id, got.text()), DescribeOperands(op_, vars_));
}

void ThrowWithoutShape(const OpDesc& op, const std::string& output) {
  ThrowInvalid(fmt::format("{}: its inputs do not account for the output var {}", op.type(),
                           QuoteVar(output)),
               "  " + Locate(op));
}

std::string DescribeOperands(const OpDesc& op, const MetaTable& vars) {
  constexpr size_t kMaxLines = 32;
  std::string text;
  size_t lines = 0;
  op.ForEachInput([&](const std::string& name, const std::string& slot) {
    if (++lines > kMaxLines) return;
    const VarMeta* meta = vars.Find(name);
    text += fmt::format("  input  {} = {}\n", slot,
                        meta ? DescribeVar(name, *meta) : QuoteVar(name) + " undefined");
  });
  if (lines > kMaxLines) text += fmt::format("  and {} more inputs\n", lines - kMaxLines);
  return text + "  " + Locate(op);
}

void InferOp(BlockDesc& block, const OpDesc& op, const OpRegistry& ops) {
  const OpSpec& def = ops.Get(op.type());
  BlockMetaTable vars(block);
  op.ForEachOutput([&](const std::string& name) {
    if (!block.FindVarRecursive(name)) block.Var(name);
  });
  InferContext context(def, op, vars);
  RunInfer(context);
}

}  // namespace coracle
