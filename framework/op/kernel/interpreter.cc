#include <coracle/framework/base/file_access.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/check/block_use.h>
#include <coracle/framework/op/check/file_use.h>
#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/expansion.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/kernel/kept_outputs.h>
#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/op/kernel/out_of_memory.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/framework/tensor/string_arena.h>
#include <coracle/framework/tensor/tensor.h>
#include <fmt/format.h>

#include <cstring>
#include <exception>

namespace coracle::inline internal {

VarMeta MetaOfValue(const VarValue& value) {
  VarMeta meta;
  if (const auto* tensor = std::get_if<Tensor>(&value)) {
    meta.dtype = tensor->dtype();
    meta.shape = tensor->shape();
  } else if (const auto* rows = std::get_if<SelectedRows>(&value)) {
    meta.type = VarType::kSelectedRows;
    meta.dtype = rows->value.dtype();
    meta.shape = rows->value.shape();
    if (meta.shape.rank() > 0) meta.shape[0] = rows->height;
  } else if (const auto* array = std::get_if<TensorArray>(&value)) {
    meta.type = VarType::kLoDTensorArray;
    meta.shape = array->uniform() == TensorArray::Uniform::kNone ? Shape{-1, -1} : Shape{-1};
    if (array->uniform() == TensorArray::Uniform::kOne) meta.shape = array->shape();
    if (array->uniform() != TensorArray::Uniform::kNone) meta.dtype = array->dtype();
  } else if (std::holds_alternative<RankTable>(value)) {
    meta.type = VarType::kLoDRankTable;
  } else if (std::holds_alternative<std::shared_ptr<StepScopes>>(value)) {
    meta.type = VarType::kStepScopes;
  }
  return meta;
}

namespace {

// The static types of the variables of one op, taken from their values.
class ValueMetaTable : public MetaTable {
 public:
  ValueMetaTable(const OpDesc& op, const VarValues& env) : block_(op.block()), env_(env) {}
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
  std::optional<std::vector<int64_t>> LevelSizes(const std::string& name) const override {
    const Tensor* tensor = Constant(name);
    return tensor ? coracle::LevelSizes(tensor->lod()) : std::vector<int64_t>();
  }
  bool exact() const override { return true; }

  const VarMeta* Output(const std::string& name) const {
    auto it = outputs_.find(name);
    return it == outputs_.end() ? nullptr : &it->second;
  }

 private:
  const BlockDesc* block_;
  const VarValues& env_;
  mutable std::unordered_map<std::string, VarMeta> metas_;
  std::unordered_map<std::string, VarMeta> outputs_;
};

void SaveValues(const BlockUse& use, const VarValues& inner, StepScopes::Step* save_to) {
  save_to->resize(use.saved.size());
  for (size_t i = 0; i < use.saved.size(); ++i) {
    auto it = inner.find(use.saved[i]);
    (*save_to)[i].set = it != inner.end() && !std::holds_alternative<std::monostate>(it->second);
    if ((*save_to)[i].set) (*save_to)[i].value = CloneValue(it->second);
  }
}

// The value of an output before the kernel runs.
VarValue NewOutput(const OpSpec& def, const OpDesc& op, const VarValues& env,
                   const std::string& name, const VarMeta& meta) {
  // `sgd` and similar ops update their variable in place.
  if (def.UpdatesInPlace(op, name)) {
    const VarValue& value = env.at(name);
    const VarMeta held = MetaOfValue(value);
    const bool same_tensor = held.dtype == meta.dtype && held.shape == meta.shape;
    if (held.type == meta.type && (same_tensor || meta.type != VarType::kLoDTensor)) return value;
  }
  if (meta.type == VarType::kSelectedRows) {
    SelectedRows none;
    Shape shape = meta.shape;
    if (shape.rank() > 0) shape[0] = 0;
    none.value = Tensor(meta.dtype, shape);  // the kernel reads the dtype
    return none;
  }
  if (meta.type == VarType::kLoDTensorArray) {
    auto it = env.find(name);
    return it != env.end() ? it->second : VarValue(TensorArray{});
  }
  if (meta.type == VarType::kStepScopes) return std::make_shared<StepScopes>();
  if (meta.type == VarType::kLoDRankTable) return RankTable();
  if (def.run_time_shape && !meta.shape.IsKnown()) return Tensor();  // see ResizeOutput
  return Tensor(meta.dtype, meta.shape);
}

TensorArg ArgOfValue(const VarValue& value, int32_t index) {
  VarMeta meta = MetaOfValue(value);
  if (std::holds_alternative<std::monostate>(value)) meta.shape = Shape{-1};
  const bool dense = meta.type == VarType::kLoDTensor && meta.shape.IsKnown();
  return {index, meta.dtype, meta.shape, dense ? meta.shape.numel() : 0, meta.type};
}

// The variables as the block sees them at its beginning: its own have no value yet.
VarValues InnerEnvironment(const BlockDesc& block, const BlockUse& use, const VarValues& outer,
                           const VarValues& args, const StepScopes::Step* saved) {
  VarValues inner = outer;
  for (size_t i = 0; i < block.NumVars(); ++i) {
    const VarDesc& var = block.var(i);
    if (var.persistable()) continue;
    inner.erase(var.name());
    if (var.type() == VarType::kLoDTensorArray) inner[var.name()] = TensorArray();
  }
  // Copied, since a block changes variables in place.
  for (size_t i = 0; i < use.captured.size(); ++i) {
    if (use.written[i] && inner.count(use.captured[i]))
      inner[use.captured[i]] = CloneValue(inner[use.captured[i]]);
  }
  for (const auto& [name, value] : args) inner[name] = value;
  for (const auto& [name, index] : use.reads_saved) {
    inner.erase(name);
    if (saved && index < saved->size() && (*saved)[index].set)
      inner[name] = CloneValue((*saved)[index].value);
  }
  return inner;
}

class OneOp : public ArgTable, public Workspace {
 public:
  OneOp(const OpDesc& op, const OpSpec& def, const OpRegistry& ops, const ValueMetaTable& metas,
        VarValues& env, const InterpretOptions& options)
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
                  fmt::format("{}: the var {} has no value", op_.type(), QuoteVar(name)),
                  "  " + Locate(op_));
    }
    if (const auto* tensor = std::get_if<Tensor>(&found->second)) CheckLod(name, *tensor);
    return ArgOf(inputs_[name] = Add(found->second));
  }
  TensorArg Write(const std::string& name) override {
    auto it = outputs_.find(name);
    if (it != outputs_.end()) return ArgOf(it->second);
    const VarMeta* meta = metas_.Output(name);
    if (!meta) ThrowWithoutShape(op_, name);
    TensorArg arg = ArgOf(outputs_[name] = Add(NewOutput(def_, op_, env_, name, *meta)));
    if (!meta->shape.IsKnown()) {
      arg.shape = meta->shape;
      arg.dtype = meta->dtype;
    }
    return arg;
  }
  TensorArg Scratch(DType dtype, const Shape& shape) override {
    return ArgOf(Add(Tensor(dtype, shape)));
  }
  TensorArg ScratchArray() override { return ArgOf(Add(TensorArray{})); }
  const Tensor* Constant(const std::string&) override { return nullptr; }
  TensorArg ScratchValue() override { return ArgOf(Add(VarValue())); }
  FileAccess files() const override { return FileAccess(options_.allow_files); }
  bool HasGradientBlock(BlockRef block) override { return UseOf(block.idx).has_gradient; }
  int32_t SubBlock(BlockRef block, const BlockArgs& args) override {
    UseOf(block.idx);
    sub_blocks_.push_back({block.idx, args, 0});
    return static_cast<int32_t>(sub_blocks_.size()) - 1;
  }
  void RunBlock(int32_t handle, StepScopes::Step* save_to, StepScopes::Step* saved) override {
    SubBlockCall& sub = sub_blocks_[static_cast<size_t>(handle)];
    const BlockDesc& block = op_.block()->program().Block(sub.block);
    const BlockUse& use = UseOf(sub.block);
    VarValues args;
    for (const auto& [name, arg] : sub.args.in) args[name] = ValueOf(arg);
    VarValues inner = InnerEnvironment(block, use, env_, args, saved);
    InterpretOptions options = options_;
    options.step = InnerStep(options_.step, sub.block, sub.runs++);
    Interpret(block, ops_, inner, options);
    for (const std::string& name : use.writes) {
      auto it = inner.find(name);
      if (it != inner.end()) env_[name] = it->second;
    }
    for (const auto& [name, arg] : sub.args.out) ValueOf(arg) = inner[name];
    if (save_to) SaveValues(use, inner, save_to);
    for (const auto& [name, index] : inputs_) {  // variables that the block changed
      auto it = env_.find(name);
      if (it == env_.end()) continue;
      values_[static_cast<size_t>(index)] = it->second;
      auto* tensor = std::get_if<Tensor>(&values_[static_cast<size_t>(index)]);
      pointers_[static_cast<size_t>(index)] = tensor ? tensor->raw() : nullptr;
    }
  }
  VarValue& ValueOf(const TensorArg& arg) override {
    return values_[static_cast<size_t>(arg.index)];
  }
  const LoD& LodOf(const TensorArg& arg) override {
    static const LoD none;
    const auto* tensor = std::get_if<Tensor>(&ValueOf(arg));
    return tensor ? tensor->lod() : none;
  }
  LoD& OutputLod(const TensorArg& out) override { return std::get<Tensor>(ValueOf(out)).lod(); }

  void Run(const Kernel& kernel) {
    PassLod();
    for (VarValue& value : values_) {
      auto* tensor = std::get_if<Tensor>(&value);
      pointers_.push_back(tensor ? tensor->raw() : nullptr);
    }
    data_ = pointers_.data();
    kernel(*this);
    for (auto& [name, index] : outputs_)
      env_[name] = std::move(values_[static_cast<size_t>(index)]);
  }

 private:
  struct SubBlockCall {
    int block;
    BlockArgs args;
    uint64_t runs;
  };

  const BlockUse& UseOf(int block) {
    const BlockDesc* home = op_.block();
    if (!home || block <= home->idx() || block >= home->program().NumBlocks()) {
      ThrowInvalid(fmt::format("{}: the program has no sub-block {}", op_.type(), block),
                   "  " + Locate(op_));
    }
    if (uses_.empty()) uses_ = FindBlockUses(home->program());
    return uses_[static_cast<size_t>(block)];
  }

  void PassLod() {
    ForEachPosition(op_.outputs(), [&](const std::string& name, const std::string& slot, size_t i) {
      auto it = outputs_.find(name);
      auto* out = it == outputs_.end()
                      ? nullptr
                      : std::get_if<Tensor>(&values_[static_cast<size_t>(it->second)]);
      if (!out) return;
      const std::string* source = def_.LodSource(op_, slot, i);
      const Tensor* from = source ? metas_.Constant(*source) : nullptr;
      const bool passes = from && def_.PassesLod(op_, from->shape(), out->shape());
      out->lod() = passes ? from->lod() : LoD();
    });
  }

  int32_t Add(VarValue value) {
    values_.push_back(std::move(value));
    return static_cast<int32_t>(values_.size() - 1);
  }
  TensorArg ArgOf(int32_t index) const {
    return ArgOfValue(values_[static_cast<size_t>(index)], index);
  }

  const OpDesc& op_;
  const OpSpec& def_;
  const OpRegistry& ops_;
  const ValueMetaTable& metas_;
  VarValues& env_;
  const InterpretOptions& options_;
  std::vector<VarValue> values_;
  std::vector<void*> pointers_;
  std::unordered_map<std::string, int32_t> inputs_, outputs_;
  std::vector<SubBlockCall> sub_blocks_;
  std::vector<BlockUse> uses_;
};

// Runs the ops of the block one by one, for an op whose kernel is empty (see PrepareKernel).
Kernel OpsOfBlock(const PrepareContext& context, const OpRegistry& ops,
                  const InterpretOptions& options) {
  const std::vector<int> blocks = context.op().SubBlocks();
  if (blocks.size() != 1 || !context.op().block())
    throw InternalError(context.op().type() + ": there is no kernel, and no block to run instead");
  const BlockTrait& trait = context.spec().block;
  std::vector<std::pair<std::string, TensorArg>> in, out;
  for (const auto& [slot, attr] : trait.arguments) {
    const auto names = context.Attr<std::vector<std::string>>(attr);
    for (size_t i = 0; i < names.size(); ++i) in.emplace_back(names[i], context.Input(slot, i));
  }
  for (const auto& [slot, attr] : trait.results) {
    const auto names = context.Attr<std::vector<std::string>>(attr);
    for (size_t i = 0; i < names.size(); ++i) {
      if (const TensorArg arg = context.Output(slot, i)) out.emplace_back(names[i], arg);
    }
  }
  return [&ops, &options, in, out,
          block = &context.op().block()->program().Block(blocks[0])](Workspace& ws) {
    VarValues inner;
    for (const auto& [name, arg] : in) inner[name] = ws.ValueOf(arg);
    Interpret(*block, ops, inner, options);
    for (const auto& [name, arg] : out) {
      if (arg.numel > 0)
        std::memcpy(ws.Data<void>(arg), std::get<Tensor>(inner.at(name)).raw(),
                    static_cast<size_t>(arg.nbytes()));
    }
  };
}

// A copy of the op with the inputs that it reads without a slot.
OpDesc WithKeptInputs(const OpSpec& def, const OpDesc& op, const VarValues& env) {
  OpDesc bound(op);
  AddKeptInputs(def, bound, [&](const std::string& name) {
    auto it = env.find(name);
    return it != env.end() && std::holds_alternative<Tensor>(it->second);
  });
  return bound;
}

void RunExpansion(const OpDesc& op, const OpSpec& def, const OpRegistry& ops,
                  const ValueMetaTable& types, VarValues& env, const InterpretOptions& options) {
  int made = 0;
  const ProgramDesc program = ExpandOp(def, op, ops, types, [&](const std::string& hint) {
    std::string name;
    do name = fmt::format("{}@{}", hint, made++);
    while (op.Reads(name) || op.Writes(name));
    return name;
  });
  VarValues inner;
  op.ForEachInput([&](const std::string& name) {
    const auto found = env.find(name);
    if (found != env.end()) inner[name] = found->second;
  });
  Interpret(program.Root(), ops, inner, options);
  op.ForEachOutput([&](const std::string& name) {
    const auto found = inner.find(name);
    if (found != inner.end())
      env[name] = std::move(found->second);
    else if (const VarMeta* meta = types.Output(name))
      env[name] = Tensor(meta->dtype, meta->shape);  // an intermediate output, which is empty
  });
}

void RunOneOp(const OpDesc& op, const OpRegistry& ops, VarValues& env,
              const InterpretOptions& options) {
  const OpSpec& def = ops.Get(op.type());
  if (def.kind != OpKind::kCompute) return;
  if (LacksKeptInput(def, op)) {
    const OpDesc bound = WithKeptInputs(def, op, env);
    if (!LacksKeptInput(def, bound)) return RunOneOp(bound, ops, env, options);
  }
  if (const auto path = def.FileOf(op))
    RequireAllowed({&op, *path}, FileAccess(options.allow_files));
  ValueMetaTable metas(op, env);
  InferContext infer(def, op, metas);
  RunInfer(infer);
  if (def.Expands()) return RunExpansion(op, def, ops, metas, env, options);
  OneOp run(op, def, ops, metas, env, options);
  PrepareContext prepare(def, op, run);
  Kernel kernel = PrepareKernel(prepare, options.kernels);
  if (!kernel) kernel = OpsOfBlock(prepare, ops, options);
  // A kernel may skip an output that no op reads; allocate it all the same.
  op.ForEachOutput([&](const std::string& name) {
    if (metas.Output(name)) run.Write(name);
  });
  run.Run(kernel);
}

// Runs an op outside of a run: its strings live in an arena that ends with the op.
void RunAlone(const OpDesc& op, const OpRegistry& ops, VarValues& env,
              const InterpretOptions& options) {
  StringArena strings;
  const ScopedStrings scoped(strings);
  std::exception_ptr error;
  const auto own = [&](VarValue& value) {
    try {
      OwnStrings(value);
    } catch (...) {
      if (!error) error = std::current_exception();
      value = std::monostate();  // its elements would point to bytes that are freed
    }
  };
  try {
    RunOneOp(op, ops, env, options);
  } catch (...) {
    error = std::current_exception();
  }
  op.ForEachOutput([&](const std::string& name) {
    const auto found = env.find(name);
    if (found != env.end()) own(found->second);
  });
  if (op.HasSubBlock()) {
    for (auto& [name, value] : env) own(value);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace

void InterpretOp(const OpDesc& op, const OpRegistry& ops, VarValues& env,
                 const InterpretOptions& options) {
  const auto run = StringArena::Current() ? RunOneOp : RunAlone;
  NameOutOfMemory([&] { run(op, ops, env, options); }, [&] { return NameOf(op); });
}

void Interpret(const BlockDesc& block, const OpRegistry& ops, VarValues& env,
               const InterpretOptions& options) {
  for (size_t i = 0; i < block.NumOps(); ++i) {
    CheckTimeLimit("interpreting ops");
    InterpretOp(block.op(i), ops, env, options);
  }
}

}  // namespace coracle::inline internal
