#include <coracle/framework/base/text.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/interpreter.h>
#include <coracle/framework/op/prepare_context.h>
#include <fmt/format.h>

namespace coracle {

VarMeta MetaOfValue(const Value& value) {
  VarMeta meta;
  if (const auto* tensor = std::get_if<Tensor>(&value)) {
    meta.dtype = tensor->dtype();
    meta.shape = tensor->shape();
  } else if (const auto* rows = std::get_if<SelectedRows>(&value)) {
    meta.type = VarType::kSelectedRows;
    meta.dtype = rows->value.dtype();
    meta.shape = rows->value.shape();
    if (meta.shape.rank() > 0) meta.shape[0] = rows->height;
  } else if (std::holds_alternative<TensorArray>(value)) {
    meta.type = VarType::kLoDTensorArray;
  }
  return meta;
}

namespace {

// The static types of one op's variables, taken from their values.
class ValueMetaTable : public MetaTable {
 public:
  ValueMetaTable(const OpDesc& op, const Environment& env) : block_(op.block()), env_(env) {}
  const VarMeta* Find(const std::string& name) const override {
    auto known = metas_.find(name);
    if (known != metas_.end()) return &known->second;
    auto it = env_.find(name);
    if (it == env_.end() || std::holds_alternative<std::monostate>(it->second)) {
      const VarDesc* var = block_ ? block_->FindVarRecursive(name) : nullptr;
      return var ? &var->meta() : nullptr;
    }
    return &metas_.emplace(name, MetaOfValue(it->second)).first->second;
  }
  void Set(const std::string& name, const VarMeta& meta) override { outputs_[name] = meta; }
  const Tensor* Constant(const std::string& name) const override {
    auto it = env_.find(name);
    return it == env_.end() ? nullptr : std::get_if<Tensor>(&it->second);
  }
  bool exact() const override { return true; }

  const VarMeta* Output(const std::string& name) const {
    auto it = outputs_.find(name);
    return it == outputs_.end() ? nullptr : &it->second;
  }

 private:
  const BlockDesc* block_;
  const Environment& env_;
  mutable std::unordered_map<std::string, VarMeta> metas_;
  std::unordered_map<std::string, VarMeta> outputs_;
};

class OneOp : public ArgTable, public Workspace {
 public:
  OneOp(const OpDesc& op, const OpDef& def, const OpRegistry& ops, const ValueMetaTable& metas,
        Environment& env, const InterpretOptions& options)
      : op_(op), def_(def), ops_(ops), metas_(metas), env_(env), options_(options) {
    seed_ = options.seed;
    step_ = options.step;
  }

  TensorArg Read(const std::string& name) override {
    auto it = inputs_.find(name);
    if (it != inputs_.end()) return ArgOf(it->second);
    auto found = env_.find(name);
    if (found == env_.end()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: the var {} has no value", op_.type(), Quote(name)),
                  "  " + Locate(op_));
    }
    return ArgOf(inputs_[name] = Add(found->second));
  }
  TensorArg Write(const std::string& name) override {
    auto it = outputs_.find(name);
    if (it != outputs_.end()) return ArgOf(it->second);
    const VarMeta* meta = metas_.Output(name);
    if (!meta)
      throw InternalError(
          fmt::format("{}: no shape was inferred for the output '{}'", op_.type(), name));
    return ArgOf(outputs_[name] = Add(NewOutput(name, *meta)));
  }
  TensorArg Scratch(DType dtype, const Shape& shape) override {
    return ArgOf(Add(Tensor(dtype, shape)));
  }
  TensorArg ScratchArray() override { return ArgOf(Add(TensorArray{})); }
  const Tensor* Constant(const std::string&) override { return nullptr; }
  int32_t SubBlock(BlockRef block) override { return block.idx; }
  void RunBlock(int32_t handle) override {
    const ProgramDesc& program = op_.block()->program();
    if (handle < 0 || handle >= program.NumBlocks()) {
      ThrowInvalid(fmt::format("{}: the program has no block {}", op_.type(), handle),
                   "  " + Locate(op_));
    }
    Interpret(program.Block(handle), ops_, env_, options_);
    for (const auto& [name, index] : inputs_) {  // what the block changed
      values_[static_cast<size_t>(index)] = env_.at(name);
      auto* tensor = std::get_if<Tensor>(&values_[static_cast<size_t>(index)]);
      pointers_[static_cast<size_t>(index)] = tensor ? tensor->raw() : nullptr;
    }
  }
  Value& ValueOf(const TensorArg& arg) override { return values_[static_cast<size_t>(arg.index)]; }

  void Run(const Kernel& kernel) {
    for (Value& value : values_) {
      auto* tensor = std::get_if<Tensor>(&value);
      pointers_.push_back(tensor ? tensor->raw() : nullptr);
    }
    data_ = pointers_.data();
    kernel(*this);
    for (auto& [name, index] : outputs_)
      env_[name] = std::move(values_[static_cast<size_t>(index)]);
  }

 private:
  Value NewOutput(const std::string& name, const VarMeta& meta) {
    // `sgd` and the like update their variable in place.
    for (const auto& [in, out] : def_.inplace()) {
      const auto& ins = op_.Input(in);
      const auto& outs = op_.Output(out);
      for (size_t i = 0; i < outs.size() && i < ins.size(); ++i) {
        if (outs[i] != name || ins[i] != name) continue;
        const Value& value = env_.at(name);
        const VarMeta held = MetaOfValue(value);
        const bool same_tensor = held.dtype == meta.dtype && held.shape == meta.shape;
        if (held.type == meta.type && (same_tensor || meta.type != VarType::kLoDTensor))
          return value;
      }
    }
    if (meta.type == VarType::kSelectedRows) {
      SelectedRows none;
      Shape shape = meta.shape;
      if (shape.rank() > 0) shape[0] = 0;
      none.value = Tensor(meta.dtype, shape);  // tells the kernel the dtype
      return none;
    }
    if (meta.type == VarType::kLoDTensorArray) {
      auto it = env_.find(name);
      return it != env_.end() ? it->second : Value(TensorArray{});
    }
    return Tensor(meta.dtype, meta.shape);
  }
  int32_t Add(Value value) {
    values_.push_back(std::move(value));
    return static_cast<int32_t>(values_.size() - 1);
  }
  TensorArg ArgOf(int32_t index) const {
    VarMeta meta = MetaOfValue(values_[static_cast<size_t>(index)]);
    const int64_t numel = meta.type == VarType::kLoDTensor ? meta.shape.numel() : 0;
    return {index, meta.dtype, meta.shape, numel, meta.type};
  }

  const OpDesc& op_;
  const OpDef& def_;
  const OpRegistry& ops_;
  const ValueMetaTable& metas_;
  Environment& env_;
  const InterpretOptions& options_;
  std::vector<Value> values_;
  std::vector<void*> pointers_;
  std::unordered_map<std::string, int32_t> inputs_, outputs_;
};

}  // namespace

void InterpretOp(const OpDesc& op, const OpRegistry& ops, Environment& env,
                 const InterpretOptions& options) {
  const OpDef& def = ops.Get(op.type());
  if (def.kind() != OpKind::kCompute) return;
  ValueMetaTable metas(op, env);
  InferContext infer(def, op, metas);
  def.RunInfer(infer);
  OneOp run(op, def, ops, metas, env, options);
  PrepareContext prepare(def, op, run);
  Kernel kernel = def.Prepare(prepare, options.kernels);
  // A kernel may leave out an output that nobody else needs; give it memory all the same.
  for (const Slot& slot : op.outputs()) {
    for (const std::string& name : slot.args) {
      if (!IsEmptyName(name) && metas.Output(name)) run.Write(name);
    }
  }
  run.Run(kernel);
}

void Interpret(const BlockDesc& block, const OpRegistry& ops, Environment& env,
               const InterpretOptions& options) {
  for (size_t i = 0; i < block.NumOps(); ++i) InterpretOp(block.op(i), ops, env, options);
}

}  // namespace coracle
