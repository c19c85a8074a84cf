#include <coracle/passes/fuse_quantized.h>

#include <algorithm>
#include <utility>

namespace coracle::inline internal {

bool IsQuantizableProduct(const OpDesc& op) {
  static const std::unordered_set<std::string> types = {"conv2d", "depthwise_conv2d", "mul",
                                                        "matmul", "matmul_v2",        "fc"};
  return types.count(op.type()) > 0;
}

QuantizedScene::QuantizedScene(ProgramDesc& program, const PassContext& context)
    : program_(program),
      context_(context),
      block_(program.Root()),
      flow_(program, context),
      matcher_(block_, context),
      values_(block_, context, flow_),
      types_(block_),
      rewrites_(block_) {
  std::as_const(block_).ForEachOp([&](const OpDesc& op) {
    if (const OpSpec* spec = context.ops.Find(op.type()); spec && !op.HasSubBlock())
      types_.Infer(*spec, op);
  });
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

const OpDesc* QuantizedScene::OnlyReader(const std::string& var) const {
  if (!flow_.IsTemporary(var) || !matcher_.HasOneReader(var)) return nullptr;
  const OpDesc* reader = block().Uses(var).readers[0];
  return flow_.IsRecomputed(*reader) || IsDone(*reader) ? nullptr : reader;
}

std::string QuantizedScene::AddConstant(const std::string& of, Tensor value) {
  const VarMeta meta = {VarType::kLoDTensor, value.dtype(), value.shape(), 0};
  std::string name = context_.AddFrozen(program_, of + "@QUANTIZED", std::move(value));
  context_.NoteMade(name, of);
  types_.Set(name, meta);
  return name;
}

std::string QuantizedScene::AddTemporary(const std::string& like, DType dtype, const Shape& shape) {
  VarMeta meta = block_.FindVarRecursive(like)->meta();
  meta.dtype = dtype;
  meta.shape = shape;
  const std::string name = program_.FreeName(like + "@QUANTIZED");
  block_.Var(name).SetMeta(meta);
  context_.NoteMade(name, like);
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
