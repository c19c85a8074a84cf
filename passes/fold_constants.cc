// Runs the ops that depend only on frozen parameters and constants, such as ops that transpose,
// scale, join or cast weights, and makes their results frozen parameters. Later passes see
// the values.

#include <coracle/framework/op/check/flow_types.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <utility>

namespace coracle::inline internal {
namespace {

// Limit, in bytes, for the total growth of the program's constants, after released ones.
constexpr int64_t kMaxGrowth = int64_t{1} << 20;

// The exact types in an op whose inputs are constants.
class ConstantTypes : public FlowTypes {
 public:
  ConstantTypes(const BlockDesc& block, const ValueFlow& flow, const PassContext& context)
      : FlowTypes(block), flow_(flow), context_(context) {}
  const Tensor* Constant(const std::string& name) const override {
    return context_.FrozenValue(flow_.Source(name));
  }
  std::optional<std::vector<int64_t>> LevelSizes(const std::string&) const override {
    return std::vector<int64_t>();  // frozen parameters have no LoD
  }
  bool exact() const override { return true; }

 private:
  const ValueFlow& flow_;
  const PassContext& context_;
};

class ConstantFolder {
 public:
  // With `dequantizes`, also folds weights whose integers other passes may have used.
  ConstantFolder(ProgramDesc& program, const PassContext& context, bool dequantizes)
      : program_(program),
        context_(context),
        block_(program.Root()),
        flow_(program, context),
        dequantizes_(dequantizes) {}

  void Run() {
    block_.ForEachOp([&](OpDesc& op) {
      if (MayFold(op)) Fold(op);
    });
    flow_.Apply();
    RemoveReleasedVars();
  }

 private:
  bool MayFold(const OpDesc& op) const {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec || !IsFunction(*spec) || spec->FileOf(op) ||
        (spec->makes_lod && spec->lod_axis.empty()) || op.HasSubBlock() || flow_.IsRecomputed(op))
      return false;
    if (op.AnyInput([&](const std::string& name) {
          const Tensor* value = context_.FrozenValue(flow_.Source(name));
          return !value || !IsAsDeclared(name, *value);
        }))
      return false;
    if (!dequantizes_ && IsOfBytes(op)) return false;
    std::unordered_set<std::string> outputs;
    const bool other = op.AnyOutput([&](const std::string& name) {
      return !flow_.IsTemporary(name) || !outputs.insert(name).second;
    });
    return !other && !outputs.empty();
  }

  // Whether it dequantizes integers of 8 bits, which would need four times the memory.
  bool IsOfBytes(const OpDesc& op) const {
    if (op.type() != "affine_dequantize" || op.Input("X").size() != 1) return false;
    const Tensor* value = context_.FrozenValue(flow_.Source(op.Input("X")[0]));
    return value && SizeOf(value->dtype()) == 1;
  }

  // Whether it makes float32 of 16 bits: a weight that is stored so (StoreInHalves).
  bool WidensHalves(const OpDesc& op) const {
    if (op.type() != "cast" || op.Input("X").size() != 1) return false;
    const Tensor* value = context_.FrozenValue(flow_.Source(op.Input("X")[0]));
    return value && IsHalf(value->dtype()) &&
           op.GetAttr<int32_t>("out_dtype", -1) == static_cast<int32_t>(DType::kFloat32);
  }

  // Readers were checked with the declared types, but a scope may hold other types.
  bool IsAsDeclared(const std::string& name, const Tensor& value) const {
    const VarDesc* var = block_.FindVarRecursive(name);
    return var && var->dtype() == value.dtype() && var->shape().CompatibleWith(value.shape());
  }

  void Fold(const OpDesc& op) {
    try {
      // Otherwise every run would dequantize, widen or unpack the weight.
      const bool weight = IsOfBytes(op) || WidensHalves(op) || op.type() == "unpack_integers";
      const int64_t growth = weight ? 0 : GrowthBy(op);
      if (growth <= allowance_ && Compute(op)) allowance_ -= growth;
    } catch (const Error& error) {
      // The run reports the error of the op if it reaches the op.
      if (error.code() == ErrorCode::kDeadlineExceeded || error.code() == ErrorCode::kCancelled)
        throw;
    } catch (const NeedsValue&) {  // of a tensor that the op may lack
    }
  }

  // Bytes of the results that are read, minus bytes of the inputs that no other op reads.
  int64_t GrowthBy(const OpDesc& op) const {
    ConstantTypes types(block_, flow_, context_);
    types.InferOrThrow(context_.ops.Get(op.type()), op);
    int64_t growth = 0;
    op.ForEachOutput([&](const std::string& name) {
      const VarMeta* meta = types.Find(name);
      if (!flow_.IsUnread(name) && meta)
        growth += static_cast<int64_t>(ByteSize(meta->dtype, meta->shape));
    });
    for (const std::string& name : InputsOf(op)) {
      if (IsLastReader(name))
        growth -= static_cast<int64_t>(context_.FrozenValue(flow_.Source(name))->nbytes());
    }
    return growth;
  }

  static std::vector<std::string> InputsOf(const OpDesc& op) {
    std::vector<std::string> names;
    op.ForEachInput([&](const std::string& name) { names.push_back(name); });
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  bool IsLastReader(const std::string& name) const {
    const auto folded = folded_readers_.find(name);
    const size_t gone = folded == folded_readers_.end() ? 0 : folded->second;
    return gone + 1 == flow_.NumReaders(name) && !context_.fetches.count(name) &&
           !context_.captured.count(name);
  }

  // Runs the op. Its kernels see the constants themselves, not copies, but do not write them: the
  // outputs of an op are not its inputs.
  bool Compute(const OpDesc& op) {
    VarValues env;
    op.ForEachInput([&](const std::string& name) {
      const Tensor& value = *context_.FrozenValue(flow_.Source(name));
      env[name] =
          Tensor::View(value.dtype(), value.shape(), const_cast<void*>(value.raw()));  // NOLINT
    });
    InterpretOp(op, context_.ops, env, {.kernels = context_.kernels});
    if (op.AnyOutput([&](const std::string& name) {
          return !flow_.IsUnread(name) &&
                 (!MayBeFrozen(env[name]) || !IsAsDeclared(name, std::get<Tensor>(env[name])));
        }))
      return false;
    op.ForEachOutput([&](const std::string& name) {
      if (flow_.IsUnread(name)) return;
      flow_.Forward(name, context_.AddFrozenForm(program_, name, "@FOLDED",
                                                 std::move(std::get<Tensor>(env[name]))));
    });
    flow_.Remove(op);
    for (const std::string& name : InputsOf(op)) {
      const bool last = IsLastReader(name);
      ++folded_readers_[name];
      if (!last) continue;
      context_.ReleaseFrozen(flow_.Source(name));
      if (flow_.Source(name) != name) released_.insert(flow_.Source(name));
    }
    return true;
  }

  // The conditions of Freeze: a tensor with elements, in its own memory, and without LoD.
  static bool MayBeFrozen(const VarValue& value) {
    const auto* tensor = std::get_if<Tensor>(&value);
    return tensor && tensor->lod().empty() && tensor->version() != 0;
  }

  // Removes intermediate results.
  void RemoveReleasedVars() {
    if (released_.empty()) return;
    block_.RemoveVarsIf([&](const VarDesc& var) { return released_.count(var.name()) > 0; });
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  ValueFlow flow_;
  const bool dequantizes_;
  int64_t allowance_ = kMaxGrowth;
  std::unordered_map<std::string, size_t> folded_readers_;
  std::unordered_set<std::string> released_;
};

}  // namespace

void FoldConstants(ProgramDesc& program, const PassContext& context) {
  if (context.frozen) ConstantFolder(program, context, false).Run();
}

void FoldDequantized(ProgramDesc& program, const PassContext& context) {
  const auto dequantizes = [](const OpDesc& op) { return op.type() == "affine_dequantize"; };
  if (context.frozen && AnyOp(program.Root(), dequantizes))
    ConstantFolder(program, context, true).Run();
}

}  // namespace coracle::inline internal
