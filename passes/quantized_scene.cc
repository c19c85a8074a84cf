#include <coracle/passes/fuse_quantized.h>

#include <algorithm>
#include <utility>

namespace coracle::inline internal {

bool IsQuantizableProduct(const OpDesc& op) {
  static const std::unordered_set<std::string> types = {"conv2d", "depthwise_conv2d", "mul",
                                                        "matmul", "matmul_v2",        "fc"};
  return types.count(op.type()) > 0;
}

namespace {

// The types if the unknown dims of feeds are `length`, length + step, ...
std::unique_ptr<FlowTypes> TypesOfLengths(const BlockDesc& block, const PassContext& context,
                                          int64_t length, int64_t step) {
  auto types = std::make_unique<FlowTypes>(block);
  for (const std::string& name : context.feeds) {
    const VarDesc* feed = block.FindVarRecursive(name);
    if (!feed) continue;
    VarMeta meta = feed->meta();
    for (int i = 0; i < meta.shape.rank(); ++i) {
      if (meta.shape[i] >= 0) continue;
      meta.shape[i] = length;
      length += step;
    }
    types->Set(name, meta);
  }
  InferAll(block, context.ops, *types);
  return types;
}

}  // namespace

QuantizedScene::QuantizedScene(ProgramDesc& program, const PassContext& context)
    : program_(program),
      context_(context),
      block_(program.Root()),
      flow_(program, context),
      matcher_(block_, context),
      values_(block_, context, flow_),
      types_(block_),
      rewrites_(block_) {
  InferAll(block_, context.ops, types_);
}

const QuantizedValue* QuantizedScene::IntegersOfOneScale(const std::string& var) const {
  const QuantizedValue* value = values_.Find(var);
  return value && value->form.HasOneScale() && value->form.HasPositiveScales() ? value : nullptr;
}

const QuantizedValue* QuantizedScene::IntegersOfAnyScale(const std::string& var) const {
  const QuantizedValue* frozen = IntegersOfOneScale(var);
  return frozen ? frozen : values_.FindOfARun(var);
}

const VarMeta* QuantizedScene::Meta(const std::string& var) const { return types_.Find(var); }

// Shapes that are equal for two choices of lengths, all of them different, are equal for others.
// Many ops ask for lengths that a small number divides.
bool QuantizedScene::HaveSameShape(const std::string& a, const std::string& b) const {
  const VarMeta *x = Meta(a), *y = Meta(b);
  if (!x || !y || x->shape.rank() != y->shape.rank()) return false;
  if (x->shape.IsKnown() && y->shape.IsKnown()) return x->shape == y->shape;
  if (trials_.empty()) {
    trials_.push_back(TypesOfLengths(block_, context_, 672, 336));
    trials_.push_back(TypesOfLengths(block_, context_, 960, 192));
  }
  return std::all_of(trials_.begin(), trials_.end(), [&](const std::unique_ptr<FlowTypes>& types) {
    const VarMeta *one = types->Find(a), *other = types->Find(b);
    return one && other && one->shape.IsKnown() && one->shape == other->shape;
  });
}

const OpDesc* QuantizedScene::OnlyReader(const std::string& var) const {
  const OpDesc* reader = flow_.ReaderOf(var);
  return reader && !IsDone(*reader) ? reader : nullptr;
}

std::string QuantizedScene::AddConstant(const std::string& of, Tensor value) {
  const VarMeta meta = {VarType::kLoDTensor, value.dtype(), value.shape(), 0};
  std::string name = context_.AddFrozenForm(program_, of, "@QUANTIZED", std::move(value));
  types_.Set(name, meta);
  return name;
}

std::string QuantizedScene::AddTemporary(const std::string& like, DType dtype, const Shape& shape) {
  VarMeta meta = block_.FindVarRecursive(like)->meta();
  meta.dtype = dtype;
  meta.shape = shape;
  const std::string name = context_.AddForm(program_, like, "@QUANTIZED", meta);
  types_.Set(name, meta);
  return name;
}

std::string QuantizedScene::Replace(const std::vector<const OpDesc*>& ops,
                                    const std::vector<OpDesc>& made) {
  const OpDesc& place = *ops.back();
  if (!matcher_.MayRunAt(ops, place)) return "an op between changes what it uses";
  for (const OpDesc& op : made) {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec || !types_.Infer(*spec, op))
      return "the op " + op.type() + " does not take its types or shapes";
  }
  rewrites_.Replace(ops, place, made);
  done_.insert(ops.begin(), ops.end());
  return "";
}

}  // namespace coracle::inline internal
