#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/op/check/block_use.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/internal/layer_scope.h>
#include <coracle/operators/control/conditional_block.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace coracle {
namespace {

// Directs ops to another block during its lifetime.
class InBlock {
 public:
  InBlock(Builder& net, BlockDesc& block) : net_(net), before_(net.block()), block_(block) {
    net_.SetBlock(block);
  }
  explicit InBlock(Builder& net)  // a new sub-block
      : InBlock(net, net.block().program().AppendBlock(net.block())) {}
  ~InBlock() { net_.SetBlock(before_); }
  InBlock(const InBlock&) = delete;
  InBlock& operator=(const InBlock&) = delete;
  BlockDesc& block() { return block_; }

 private:
  Builder& net_;
  BlockDesc& before_;
  BlockDesc& block_;
};

void RequireBool(Builder& net, const char* layer, const char* what, const Variable& condition) {
  NameIn(net, condition);
  const Shape& shape = condition.shape();
  const bool one = !shape.IsKnown() || shape.numel() == 1;
  if (condition.dtype() == DType::kBool && one) return;
  ThrowInvalid(fmt::format("{}: {} must hold one bool, and {} is {}", layer, what,
                           Quote(condition.name()), condition.desc().meta().ToString()));
}

template <class F>
void RequireBody(const char* layer, const F& body) {
  if (!body) ThrowInvalid(fmt::format("{}: the function that makes its ops is empty", layer));
}

std::string NewVar(Builder& net, const std::string& prefix, VarType type) {
  VarDesc& var = net.block().Var(net.block().program().UniqueName(prefix));
  var.SetType(type);
  return var.name();
}

void AppendConditional(Builder& net, const Variable& condition, const std::function<void()>& body) {
  BlockDesc* block = nullptr;
  {
    InBlock inside(net);
    block = &inside.block();
    body();
  }
  const OpDesc op = ConditionalBlockOp(*block, condition.name());
  net.Append(op.type(), op.inputs(), op.outputs(), op.attrs());
}

void RequireNames(const std::vector<std::string>& outputs, size_t results) {
  if (outputs.empty() || outputs.size() == results) return;
  ThrowInvalid(
      fmt::format("cond: {} results are named, the branches yield {}", outputs.size(), results));
}

VarDesc* NewResult(BlockDesc& block, const std::string& name) {
  if (VarDesc* var = block.TryAddVar(name)) return var;
  throw Error(ErrorCode::kAlreadyExists,
              fmt::format("cond: the block has a var {} already", Quote(name)));
}

// A variable of a block other than the current one, with the builder's Writer.
Variable VarOf(Builder& net, BlockDesc& block, const std::string& name) {
  const InBlock inside(net, block);
  return net.Var(name);
}

}  // namespace

void Assign(Builder& net, const Variable& x, const Variable& out) {
  const EditGuard guard(net.main(), net.startup());
  if (x.dtype() != out.dtype()) {
    ThrowInvalid(fmt::format("assign: {} must have the dtype of {}, {}, got {}", Quote(x.name()),
                             Quote(out.name()), ToString(out.dtype()), ToString(x.dtype())));
  }
  net.Append("assign", {{"X", {NameIn(net, x)}}}, {{"Out", {NameIn(net, out)}}});
}

Variable Increment(Builder& net, const Variable& x, float step) {
  const EditGuard guard(net.main(), net.startup());
  net.Append("increment", {{"X", {NameIn(net, x)}}}, {{"Out", {NameIn(net, x)}}}, {{"step", step}});
  return x;
}

Variable FillConstant(Builder& net, const Shape& shape, DType dtype, double value,
                      const std::string& output) {
  const EditGuard guard(net.main(), net.startup());
  const std::string name =
      output.empty() ? net.block().program().UniqueName("fill_constant") : output;
  net.Append("fill_constant", {}, {{"Out", {name}}}, FillAttrs(shape, dtype, value));
  return net.Var(name);
}

void While(Builder& net, const Variable& condition, const std::function<void()>& body,
           const WhileOptions& options) {
  const EditGuard guard(net.main(), net.startup());
  RequireBool(net, "while", "condition", condition);
  RequireBody("while", body);
  BlockDesc* block = nullptr;
  {
    InBlock inside(net);
    block = &inside.block();
    body();
  }
  const std::vector<std::string> written = OuterWrites(*block);
  if (std::find(written.begin(), written.end(), condition.name()) == written.end()) {
    ThrowInvalid(
        fmt::format("while: the body never writes its condition {}, so that the loop "
                    "would not end",
                    Quote(condition.name())));
  }
  net.Append(
      "while", {{"X", OuterReads(*block)}, {"Condition", {NameIn(net, condition)}}},
      {{"Out", written}, {"StepScopes", {NewVar(net, "while.step_scopes", VarType::kStepScopes)}}},
      {{"sub_block", BlockRef{block->idx()}}, {"is_test", options.is_test}});
}

void If(Builder& net, const Variable& condition, const std::function<void()>& body) {
  const EditGuard guard(net.main(), net.startup());
  RequireBool(net, "if", "condition", condition);
  RequireBody("if", body);
  AppendConditional(net, condition, body);
}

std::vector<Variable> Cond(Builder& net, const Variable& pred,
                           const std::function<std::vector<Variable>()>& then,
                           const std::function<std::vector<Variable>()>& otherwise,
                           const std::vector<std::string>& outputs) {
  const EditGuard guard(net.main(), net.startup());
  RequireBool(net, "cond", "pred", pred);
  RequireBody("cond", then);
  RequireBody("cond", otherwise);
  std::vector<Variable> results;
  BlockDesc& outer = net.block();
  If(net, pred, [&] {
    const std::vector<Variable> yielded = then();
    RequireNames(outputs, yielded.size());
    for (const Variable& x : yielded) {
      VarDesc* result = outputs.empty() ? &outer.Var(outer.program().UniqueName("cond.out"))
                                        : NewResult(outer, outputs[results.size()]);
      result->SetMeta(x.desc().meta());
      results.push_back(VarOf(net, outer, result->name()));
      Assign(net, x, results.back());
    }
  });
  If(net, net.Unary("logical_not", pred), [&] {
    const std::vector<Variable> other = otherwise();
    if (other.size() != results.size()) {
      ThrowInvalid(
          fmt::format("cond: both branches must have the same number of results, got {} "
                      "and {}",
                      results.size(), other.size()));
    }
    for (size_t i = 0; i < other.size(); ++i) {
      VarMeta meta = results[i].desc().meta();
      Assign(net, other[i], results[i]);
      // If the branches differ in a dim, it is known only after one has run.
      const Shape& shape = other[i].shape();
      if (shape.rank() == meta.shape.rank()) {
        for (int d = 0; d < shape.rank(); ++d) {
          if (shape[d] != meta.shape[d]) meta.shape[d] = -1;
        }
      }
      results[i].desc().SetMeta(meta);
    }
  });
  return results;
}

Switch& Switch::Case(const Variable& condition, const std::function<void()>& body) {
  const EditGuard guard(net_.main(), net_.startup());
  RequireBool(net_, "switch", "a condition", condition);
  RequireBody("switch", body);
  If(net_, none_yet_ ? net_.Binary("logical_and", none_yet_, condition) : condition, body);
  const Variable failed = net_.Unary("logical_not", condition);
  none_yet_ = none_yet_ ? net_.Binary("logical_and", none_yet_, failed) : failed;
  return *this;
}

void Switch::Default(const std::function<void()>& body) {
  const EditGuard guard(net_.main(), net_.startup());
  if (!none_yet_) ThrowInvalid("switch: there must be a case before the default");
  RequireBody("switch", body);
  If(net_, none_yet_, body);
}

// --- tensor arrays ---

Variable CreateArray(Builder& net, DType dtype, const std::string& output) {
  const EditGuard guard(net.main(), net.startup());
  const std::string name = output.empty() ? net.block().program().UniqueName("array") : output;
  VarDesc* var = net.block().TryAddVar(name);
  if (!var) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("create_array: the block has a var {} already", Quote(name)));
  }
  var->SetMeta({VarType::kLoDTensorArray, dtype, {}, 0});
  return net.Var(name);
}

void ArrayWrite(Builder& net, const Variable& x, const Variable& i, const Variable& array) {
  const EditGuard guard(net.main(), net.startup());
  net.Append("write_to_array", {{"X", {NameIn(net, x)}}, {"I", {NameIn(net, i)}}},
             {{"Out", {NameIn(net, array)}}});
}

Variable ArrayRead(Builder& net, const Variable& array, const Variable& i,
                   const OutputOptions& options) {
  const EditGuard guard(net.main(), net.startup());
  return net.Make("read_from_array", {{"X", {NameIn(net, array)}}, {"I", {NameIn(net, i)}}}, {},
                  options);
}

Variable ArrayLength(Builder& net, const Variable& array) {
  const EditGuard guard(net.main(), net.startup());
  return net.Make("lod_array_length", {{"X", {NameIn(net, array)}}});
}

// --- StaticRnn ---

StaticRnn::StaticRnn(Builder& net, StaticRnnOptions options)
    : net_(net), options_(options), outer_(&net.block()) {}

void StaticRnn::Step(const std::function<void()>& body) {
  const EditGuard guard(net_.main(), net_.startup());
  if (inner_) ThrowInvalid("static_rnn: Step is called twice");
  RequireBody("static_rnn", body);
  try {
    {
      InBlock inside(net_);
      inner_ = &inside.block();
      body();
    }
    AppendOp();
  } catch (...) {  // the guard removes the block and variables that these members refer to
    inner_ = nullptr;
    inputs_.clear();
    memories_.clear();
    outputs_.clear();
    mask_ = {};
    throw;
  }
}

void StaticRnn::RequireInStep(const char* what) const {
  if (inner_ && &net_.block() == inner_) return;
  ThrowInvalid(fmt::format("static_rnn: {} must be called in the body of Step", what));
}

Variable StaticRnn::Local(const std::string& name, DType dtype, const Shape& shape) {
  VarDesc* var = inner_->TryAddVar(name);
  if (!var) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("static_rnn: the step has a var {} already", Quote(name)));
  }
  var->SetMeta({VarType::kLoDTensor, dtype, shape, 0});
  return VarOf(net_, *inner_, name);
}

Variable StaticRnn::StepInput(const Variable& sequence) {
  const EditGuard guard(net_.main(), net_.startup());
  RequireInStep("StepInput");
  NameSeenFrom(*outer_, sequence);
  const Shape& shape = sequence.shape();
  if (shape.rank() < 1) {
    ThrowInvalid(fmt::format("static_rnn: the input {} must have a first dimension, the steps",
                             Quote(sequence.name())));
  }
  Variable slice = Local(sequence.name(), sequence.dtype(),
                         Shape(std::span<const int64_t>(shape.begin() + 1, shape.end())));
  std::vector<std::string> inputs = inputs_;
  inputs.push_back(sequence.name());
  if (options_.lengths && !mask_) {
    const Variable mask = MakeMask(sequence);
    inputs.push_back(mask.name());
    mask_ = Local(mask.name(), mask.dtype(), {mask.shape()[1]});
  }
  inputs_ = std::move(inputs);
  return slice;
}

// Makes [steps, N]: 1 if a sequence is longer than the step, else 0, in the dtype of `sequence`.
Variable StaticRnn::MakeMask(const Variable& sequence) {
  Builder& net = net_;
  const InBlock inside(net, *outer_);
  const Variable zero = FillConstant(net, {1}, DType::kInt64, 0);
  const Variable one = FillConstant(net, {1}, DType::kInt64, 1);
  Variable steps;
  if (sequence.shape()[0] >= 0) {
    steps = FillConstant(net, {1}, DType::kInt64, static_cast<double>(sequence.shape()[0]));
  } else {
    Variable dims = net.Make("shape", {{"Input", {NameIn(net, sequence)}}});
    dims = net.Make("slice", {{"Input", {dims.name()}}},
                    {{"axes", std::vector<int32_t>{0}},
                     {"starts", std::vector<int32_t>{0}},
                     {"ends", std::vector<int32_t>{1}}});
    steps = net.Cast(dims, DType::kInt64);
  }
  Variable numbers = net.Make(
      "range", {{"Start", {zero.name()}}, {"End", {steps.name()}}, {"Step", {one.name()}}});
  numbers = net.Reshape(numbers, {-1, 1});
  Variable lengths = options_.lengths;
  if (lengths.dtype() != DType::kInt64) lengths = net.Cast(lengths, DType::kInt64);
  lengths = net.Reshape(lengths, {1, -1});
  return net.Cast(net.Binary("less_than", numbers, lengths), sequence.dtype());
}

Variable StaticRnn::Memory(const Variable& init, const std::string& given) {
  const EditGuard guard(net_.main(), net_.startup());
  RequireInStep("Memory");
  // In model text, `init` may have the name of a step input. The variable found here is then the
  // step, but the op reads the outer variable of that name: the whole sequence.
  NameIn(net_, init);
  const std::string name = given.empty() ? inner_->program().UniqueName("rnn.memory") : given;
  Variable memory = Local(name, init.dtype(), init.shape());
  memories_.push_back({init.name(), name, ""});
  return memory;
}

// The mask [N] as [N, 1, ...], with x's rank.
Variable StaticRnn::MaskFor(const Variable& x) {
  if (x.shape().rank() < 1) ThrowInvalid("static_rnn: with lengths, variables need a dimension N");
  if (x.shape().rank() == 1) return mask_;
  std::vector<int32_t> shape(static_cast<size_t>(x.shape().rank()), 1);
  shape[0] = -1;
  return net_.Reshape(mask_, shape);
}

// Keeps the previous value where the sequence has ended.
Variable StaticRnn::Masked(const Variable& next, const Variable& before) {
  const Variable mask = MaskFor(next);
  const Variable rest = net_.Scale(mask, {.scale = -1.0f, .bias = 1.0f});
  return net_.Add(net_.Mul(next, mask), net_.Mul(before, rest));
}

void StaticRnn::UpdateMemory(const Variable& memory, const Variable& next) {
  const EditGuard guard(net_.main(), net_.startup());
  RequireInStep("UpdateMemory");
  NameIn(net_, memory);
  auto found = std::find_if(memories_.begin(), memories_.end(),
                            [&](const MemoryVar& m) { return m.before == memory.name(); });
  if (found == memories_.end())
    ThrowInvalid(fmt::format("static_rnn: {} is not a memory", Quote(memory.name())));
  if (!found->after.empty())
    ThrowInvalid(fmt::format("static_rnn: the memory {} is updated twice", Quote(memory.name())));
  const Variable kept = mask_ ? Masked(next, memory) : next;
  found->after = net_.Make("rnn_memory_helper", {{"X", {NameIn(net_, kept)}}},
                           {{"dtype", static_cast<int32_t>(kept.dtype())}})
                     .name();
}

void StaticRnn::StepOutput(const Variable& x, const std::string& output) {
  const EditGuard guard(net_.main(), net_.startup());
  RequireInStep("StepOutput");
  const Variable shown = mask_ ? net_.Mul(x, MaskFor(x)) : x;
  const std::string name = output.empty() ? inner_->program().UniqueName("rnn.output") : output;
  VarDesc* stacked = outer_->TryAddVar(name);
  if (!stacked) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("static_rnn: the block has a var {} already", Quote(name)));
  }
  stacked->SetMeta(shown.desc().meta());
  Local(name, shown.dtype(), shown.shape());
  net_.Append("assign", {{"X", {NameIn(net_, shown)}}}, {{"Out", {name}}});
  outputs_.push_back(VarOf(net_, *outer_, name));
}

void StaticRnn::AppendOp() {
  std::vector<std::string> initial, before, after, outputs;
  for (const MemoryVar& memory : memories_) {
    if (memory.after.empty())
      ThrowInvalid(fmt::format("static_rnn: the memory {} is never updated", Quote(memory.before)));
    initial.push_back(memory.init);
    before.push_back(memory.before);
    after.push_back(memory.after);
  }
  for (const Variable& output : outputs_) outputs.push_back(output.name());
  net_.Append(
      "recurrent",
      {{"inputs", inputs_}, {"initial_states", initial}, {"parameters", OuterReads(*inner_)}},
      {{"outputs", outputs},
       {"step_scopes", {NewVar(net_, "rnn.step_scopes", VarType::kStepScopes)}}},
      {{"ex_states", before},
       {"states", after},
       {"sub_block", BlockRef{inner_->idx()}},
       {"reverse", options_.reverse},
       {"has_states", !memories_.empty()}});
}

}  // namespace coracle
