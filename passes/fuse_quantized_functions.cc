// Functions of quantised values whose results are quantized again have at most 256 results:
//
//   x = affine_dequantize(q), y = hard_swish(x), p = affine_quantize(y)
//
// is replaced by
//
//   p = quantized_lookup(q, Table)

#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/passes/fuse_quantized.h>

#include <algorithm>
#include <utility>

namespace coracle::inline internal {
namespace {

constexpr size_t kMostOps = 32;
constexpr int64_t kIntegers = 256;

// The ops, in order, that compute a variable from one quantised value, element by element.
class FunctionFinder {
 public:
  explicit FunctionFinder(const QuantizedScene& scene) : scene_(scene) {}

  bool Find(const std::string& var) { return Find(var, 0); }

  const QuantizedValue* argument() const { return argument_; }
  const std::vector<const OpDesc*>& ops() const { return ops_; }

 private:
  bool Find(const std::string& var, size_t depth) {
    if (depth > kMostOps) return false;
    if (found_.count(var) || IsQuantizedNumber(var) || IsArgument(var)) return true;
    if (const Tensor* value = scene_.context().FrozenValue(var)) return IsNumber(*value);
    const OpDesc* op = WriterOf(var);
    if (!op || ops_.size() >= kMostOps) return false;
    if (op->AnyInput([&](const std::string& name) { return !Find(name, depth + 1); })) return false;
    ops_.push_back(op);
    found_.insert(var);
    return true;
  }
  bool IsArgument(const std::string& var) {
    const QuantizedValue* value = scene_.IntegersOfOneScale(var);
    if (!value || (argument_ && (argument_->integers != value->integers ||
                                 !MeansSame(argument_->form, value->form))))
      return false;
    if (!argument_) argument_ = value;
    ops_.push_back(value->dequantize);
    found_.insert(var);
    return true;
  }
  bool IsQuantizedNumber(const std::string& var) {
    const QuantizedValue* value = scene_.Integers(var);
    const Tensor* constant = value ? scene_.context().FrozenValue(value->integers) : nullptr;
    if (!constant || !IsNumber(*constant)) return false;
    ops_.push_back(value->dequantize);
    found_.insert(var);
    return true;
  }
  static bool IsNumber(const Tensor& value) {
    return value.numel() == 1 && value.shape().rank() <= 1;
  }
  // The elementwise op that alone writes it.
  const OpDesc* WriterOf(const std::string& var) const {
    const auto writers = scene_.block().Uses(var).writers;
    if (writers.size() != 1 || !scene_.flow().IsConstantInARun(var)) return nullptr;
    const OpDesc& op = *writers[0];
    const OpSpec* spec = scene_.context().ops.Find(op.type());
    const bool suits = spec && spec->elementwise && IsFunction(*spec) && !op.HasSubBlock() &&
                       !scene_.flow().IsRecomputed(op) && scene_.flow().IsOnlyOutput(op, var);
    return suits ? &op : nullptr;
  }

  const QuantizedScene& scene_;
  const QuantizedValue* argument_ = nullptr;
  std::vector<const OpDesc*> ops_;
  std::unordered_set<std::string> found_;
};

// All integers of the dtype, ascending.
Tensor AllIntegers(DType dtype) {
  Tensor all(dtype, {kIntegers});
  for (int64_t i = 0; i < kIntegers; ++i) {
    if (dtype == DType::kInt8)
      all.data<int8_t>()[i] = static_cast<int8_t>(i - 128);
    else
      all.data<uint8_t>()[i] = static_cast<uint8_t>(i);
  }
  return all;
}

// The integers that `quantize` writes for each integer of the argument.
Tensor TableOf(const QuantizedScene& scene, const FunctionFinder& function,
               const OpDesc& quantize) {
  VarValues env = {{function.argument()->integers, AllIntegers(function.argument()->form.dtype)}};
  const auto run = [&](const OpDesc& op) {
    OpDesc on_all(op);
    op.ForEachInput([&](const std::string& name) {
      const Tensor* value = scene.context().FrozenValue(name);
      if (!value) return;
      env[name] = *value;
      if (op.FindAttr("axis") && op.type() != quantize.type()) on_all.SetAttr("axis", int32_t{-1});
    });
    InterpretOp(on_all, scene.context().ops, env);
  };
  for (const OpDesc* op : function.ops()) run(*op);
  run(quantize);
  return std::get<Tensor>(env.at(quantize.Output("Out")[0]));
}

}  // namespace

std::string QuantizeFunction(QuantizedScene& scene, const OpDesc& quantize) {
  if (!QuantizesElements(quantize, scene.context()) || scene.flow().IsRecomputed(quantize))
    return "its scale is not one frozen number";
  const std::string& out = quantize.Output("Out")[0];
  const VarMeta* meta = scene.Meta(out);
  if (!meta || !IsByteType(meta->dtype) || !scene.flow().IsConstantInARun(out))
    return "its integers do not have 8 bits";
  FunctionFinder function(scene);
  if (!function.Find(quantize.Input("X")[0]) || !function.argument())
    return "what it quantizes is no function of one quantized value";
  Tensor table;
  try {
    table = TableOf(scene, function, quantize);
  } catch (const Error& error) {
    // The run reports the error of the op.
    if (error.code() == ErrorCode::kDeadlineExceeded || error.code() == ErrorCode::kCancelled)
      throw;
    return "what it quantizes cannot be computed for all integers";
  }
  if (table.dtype() != meta->dtype || table.shape() != Shape{kIntegers})
    return "what it quantizes has another shape";
  const std::string name = scene.AddConstant(out, std::move(table));
  const OpDesc made("quantized_lookup", {{"X", {function.argument()->integers}}, {"Table", {name}}},
                    {{"Out", {out}}});
  return scene.Replace({&quantize}, {made});
}

}  // namespace coracle::inline internal
