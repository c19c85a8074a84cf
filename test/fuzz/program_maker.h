#pragma once
// The generator of random programs: ops one by one, and blocks around them.

#include <coracle/backward/backward.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/test/fuzz/draw_op.h>
#include <coracle/test/fuzz/random_program.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace coracle {

inline const std::set<std::string>& PositiveTypes() {
  static const std::set<std::string> types = {"exp", "sigmoid", "softplus", "softmax"};
  return types;
}

// The ops of one program, drawn one by one into the builder's block.
class ProgramMaker {
 public:
  ProgramMaker(Choices& choose, const RandomProgramOptions& options, RandomProgram& made)
      : choose_(choose),
        options_(options),
        made_(made),
        net_(made.program, startup_),
        types_(!options.types.empty() ? options.types
               : options.smooth       ? SmoothWithBlocks()
                                      : DrawnTypes()),
        drawer_(choose, options.smooth) {
    drawer_.SetDType(options.dtype);
    if (options.large_dims) drawer_.UseLargeDims();
  }

  void Make() {
    AddOps(1 + choose_.Below(options_.max_ops), true);
    CollectComputed();
    if (options_.loss && !made_.computed.empty() && !choose_.OneIn(12)) AddLoss();
  }

 private:
  static constexpr int kAttempts = 8;
  static constexpr size_t kMaxDepth = 2;

  static std::vector<std::string> SmoothWithBlocks() {
    std::vector<std::string> types = SmoothTypes();
    for (const char* type : {"while", "conditional_block", "recurrent", "call"}) {
      for (int i = 0; i < 3; ++i) types.emplace_back(type);
    }
    return types;
  }

  BlockDesc& block() { return net_.block(); }
  const VarMeta& MetaOf(const std::string& name) { return block().FindVarRecursive(name)->meta(); }
  std::string NewName(const char* prefix) { return drawer_.NewName(prefix); }

  // --- variables ---

  void AddInput(const ProgramInput& input) {
    VarDesc& var = made_.program.Root().Var(input.name);
    var.SetMeta(input.meta);
    var.SetPersistable(input.persistable);
    if (input.persistable && IsFloating(input.meta.dtype)) var.SetIsParameter(true);
    var.SetStopGradient(input.constant || !IsFloating(input.meta.dtype));
    made_.inputs.push_back(input);
    if (input.constant) return;
    live_.insert(live_.begin(), {input.name, input.limit, input.positive, true});
  }

  // A floating-point tensor that exists, of any shape; a new one where there is none.
  std::string AnyFloat(bool ranked = false) {
    std::vector<std::string> fit;
    for (const Live& var : live_) {
      const VarMeta& meta = MetaOf(var.name);
      if (meta.type == VarType::kLoDTensor && IsFloating(meta.dtype) && meta.shape.IsKnown() &&
          (!ranked || (meta.shape.rank() > 0 && meta.shape[0] > 0)))
        fit.push_back(var.name);
    }
    if (!fit.empty() && (!may_capture_ || !choose_.OneIn(4))) return choose_.Of(fit);
    if (!may_capture_) ThrowInvalid("the function has no such variable");
    ProgramInput input;
    input.name = NewName("in");
    input.meta = {VarType::kLoDTensor, DType::kFloat32, drawer_.NewShape(ranked ? 1 : 0), 0};
    AddInput(input);
    return input.name;
  }

  // --- outputs ---

  const Live* FindLive(const std::string& name) const {
    const auto found =
        std::find_if(live_.begin(), live_.end(), [&](const Live& var) { return var.name == name; });
    return found == live_.end() ? nullptr : &*found;
  }
  bool IsLive(const std::string& name) const { return FindLive(name) != nullptr; }
  bool IsFed(const std::string& name) const {
    const Live* var = FindLive(name);
    return var && var->fed;
  }

  // An existing variable to write instead of a new one: the one that is updated, or any.
  std::string Overwritten(const OpSpec& def, const DrawnOp& op, const Slot& slot,
                          const VarMeta& meta) {
    const VarDesc* var = nullptr;
    if (slot.name.size() > 3 && slot.name.ends_with("Out")) {
      const std::string input = slot.name.substr(0, slot.name.size() - 3);
      for (const Slot& given : op.inputs) {
        if (given.name == input && choose_.OneIn(2)) var = block().FindVarRecursive(given.args[0]);
      }
    } else if (def.type == "write_to_array") {
      for (const Live& live : live_) {
        if (MetaOf(live.name).type == VarType::kLoDTensorArray && choose_.OneIn(2))
          return live.name;
      }
    } else if (choose_.OneIn(8) && !live_.empty()) {
      var = block().FindVarRecursive(choose_.Of(live_).name);
    }
    if (!var || !(var->meta() == meta) || unchanged_.count(var->name())) return "";
    const bool own = block().FindVar(var->name()) == var;
    const bool outer = !own && may_write_outer_;
    if ((!own && !outer) || (IsFed(var->name()) && !var->persistable())) return "";
    return var->name();
  }

  void PlaceOutputs(const OpSpec& def, DrawnOp& op) {
    const bool positive = PositiveTypes().count(def.type) > 0;
    std::set<std::string> written;
    for (Slot& slot : op.outputs) {
      for (std::string& name : slot.args) {
        const auto meta = op.metas.find(name);
        if (meta == op.metas.end()) {
          block().Var(name);  // the rule says nothing of it
          continue;
        }
        std::string existing = Overwritten(def, op, slot, meta->second);
        // A live variable has a gradient.
        if (options_.smooth && OpDrawer::IsConstant(def, slot.name) && IsLive(existing))
          existing = "";
        if (existing.empty() || written.count(existing) > 0) {
          block().Var(name).SetMeta(meta->second);
          if (!options_.smooth || !OpDrawer::IsConstant(def, slot.name))
            live_.push_back({name, 0, positive, false});
        } else {
          name = existing;
          Forget(existing);
        }
        written.insert(name);
      }
    }
  }

  // Known values are forgotten.
  void Forget(const std::string& name) {
    for (Live& var : live_) {
      if (var.name == name) var.limit = 0, var.positive = false;
    }
  }

  // --- one op ---

  bool TryOp(const OpSpec& def) {
    auto drawn = drawer_.Draw(def, block(), live_, may_capture_);
    if (!drawn) return false;
    for (const ProgramInput& input : drawn->made) AddInput(input);
    PlaceOutputs(def, *drawn);
    if (def.type == "coalesce_tensor") {  // a rule of its own: nothing may change what it makes
      for (const Slot& slot : drawn->outputs) unchanged_.insert(slot.args.begin(), slot.args.end());
    }
    block().AppendOp(def.type, drawn->inputs, drawn->outputs, drawn->attrs);
    return true;
  }

  void AddOps(size_t count, bool with_blocks) {
    for (size_t i = 0; i < count && !choose_.empty(); ++i) {
      const std::string& type = choose_.Of(types_);
      if (AddComposite(type, with_blocks)) continue;
      const OpSpec* def = DefaultOps().Find(type);
      for (int attempt = 0; def && attempt < kAttempts && !TryOp(*def); ++attempt) {
      }
    }
  }

  // --- ops with blocks, and families that only make sense together ---

  // False: not one of them.
  bool AddComposite(const std::string& type, bool with_blocks) {
    using Add = void (ProgramMaker::*)();
    static const std::map<std::string, Add> kComposites = {
        {"while", &ProgramMaker::AddWhile},
        {"conditional_block", &ProgramMaker::AddCond},
        {"recurrent", &ProgramMaker::AddRecurrent},
        {"call", &ProgramMaker::AddCall},
        {"fused_elementwise", &ProgramMaker::AddFused},
        {"fused_images", &ProgramMaker::AddFused},
        {"lod_rank_table", &ProgramMaker::AddSequences},
        {"lod_tensor_to_array", &ProgramMaker::AddSequences},
        {"array_to_lod_tensor", &ProgramMaker::AddSequences},
        {"shrink_rnn_memory", &ProgramMaker::AddSequences},
        {"max_sequence_len", &ProgramMaker::AddSequences},
        {"reorder_lod_tensor_by_rank", &ProgramMaker::AddSequences},
        {"tensor_array_to_tensor", &ProgramMaker::AddSequences},
        {"beam_search_decode", &ProgramMaker::AddBeams},
    };
    static const std::set<std::string> kOnSequences = {"lod_reset",
                                                       "row_conv",
                                                       "im2sequence",
                                                       "beam_search",
                                                       "filter_by_instag",
                                                       "match_matrix_tensor",
                                                       "var_conv_2d",
                                                       "lstm",
                                                       "lstmp",
                                                       "gru",
                                                       "fusion_lstm",
                                                       "fusion_gru",
                                                       "fused_embedding_fc_lstm",
                                                       "attention_lstm",
                                                       "fusion_seqconv_eltadd_relu",
                                                       "fusion_seqexpand_concat_fc",
                                                       "fusion_seqpool_concat",
                                                       "fusion_seqpool_cvm_concat",
                                                       "fused_embedding_seq_pool"};
    if (kOnSequences.count(type) || type.rfind("sequence_", 0) == 0) {
      if (depth_ == 0) AddSequenceOp(type);
      return true;
    }
    if (type == "scaled_dot_product_attention" && may_capture_ && choose_.OneIn(2)) {
      AddAttention();
      return true;
    }
    const auto found = kComposites.find(type);
    if (found == kComposites.end()) return false;
    if (!with_blocks || depth_ >= kMaxDepth) return true;
    BlockDesc& around = block();
    const bool may_write_outer = may_write_outer_, may_capture = may_capture_;
    ++depth_;
    try {
      (this->*found->second)();
    } catch (const Error& error) {
      // Nothing fits, or the layers refuse it.
      if (error.code() == ErrorCode::kInternal) throw;
      net_.SetBlock(around);
      may_write_outer_ = may_write_outer;
      may_capture_ = may_capture;
      std::erase_if(live_, [&](const Live& var) { return !around.FindVarRecursive(var.name); });
    }
    --depth_;
    return true;
  }

  // Ops of a sub-block; the variables that they define are gone after it.
  template <class Body>
  auto Inside(bool may_write_outer, const Body& body) {
    return [this, may_write_outer, &body] {
      const bool before = may_write_outer_;
      may_write_outer_ = may_write_outer;
      body();
      may_write_outer_ = before;
      std::erase_if(live_, [&](const Live& var) {
        return !block().parent() || !block().parent()->FindVarRecursive(var.name);
      });
    };
  }

  // A copy that may be written, of a floating-point tensor.
  Variable NewState() {
    const Variable state = net_.Unary("assign", net_.Var(AnyFloat()));
    live_.push_back({state.name()});
    return state;
  }

  // A floating-point variable of that type, computed if there is one.
  Variable Like(const Variable& var) {
    for (size_t i = live_.size(); i-- > 0;) {
      if (live_[i].name != var.name() && MetaOf(live_[i].name) == var.desc().meta())
        return net_.Var(live_[i].name);
    }
    return net_.Scale(var, {.scale = 0.5f, .bias = 0.25f});
  }

  Variable NewBool() {
    ProgramInput input;
    input.name = NewName("in");
    input.meta = {VarType::kLoDTensor, DType::kBool, {1}, 0};
    AddInput(input);
    return net_.Var(input.name);
  }

  // --- a gradient that is taken inside of a block ---

  // Made before the block, so that they are there when it does not run.
  std::optional<GradientInBlock> NewInner() {
    std::vector<std::string> inputs;
    for (const ProgramInput& input : made_.inputs) {
      if (!input.constant && input.meta.type == VarType::kLoDTensor &&
          input.meta.dtype == DType::kFloat32)
        inputs.push_back(input.name);
    }
    if (!options_.smooth || block().parent()) return {};
    GradientInBlock inner;
    if (inputs.empty()) {
      ProgramInput input;
      input.name = NewName("in");
      input.meta = {VarType::kLoDTensor, DType::kFloat32, drawer_.NewShape(0), 0};
      AddInput(input);
      inputs.push_back(input.name);
    }
    inner.input = choose_.Of(inputs);
    computed_outside_ = net_.Tanh(net_.Var(inner.input)).name();
    live_.push_back({computed_outside_});
    inner.gradient = net_.Scale(net_.Var(inner.input), {.scale = 0.0f}).name();
    inner.value = FillConstant(net_, {1}, DType::kFloat32, 0).name();
    return inner;
  }

  // Where backward refuses, the program is one without.
  void TakeInner(std::optional<GradientInBlock>& inner) {
    if (!inner) return;
    std::vector<Variable> terms = {net_.Mean(net_.Var(AnyFloat()))};
    if (choose_.OneIn(2)) terms.push_back(net_.Mean(net_.Var(computed_outside_)));
    if (choose_.OneIn(2)) terms.push_back(net_.Mean(net_.Var(inner->input)));
    const Variable value = net_.Sum(terms);
    const size_t first = block().NumOps();
    const int blocks = made_.program.NumBlocks();
    std::string gradient;
    try {
      gradient = Gradients({value}, {net_.Var(inner->input)})[0];
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      inner.reset();
      return;
    }
    // Nothing but ops to all that look at the program later.
    const auto set_roles = [](BlockDesc& in, size_t begin) {
      for (size_t i = begin; i < in.NumOps(); ++i) in.op(i).SetAttr(kOpRoleAttr, int32_t{kForward});
    };
    set_roles(block(), first);
    for (int b = blocks; b < made_.program.NumBlocks(); ++b) set_roles(made_.program.Block(b), 0);
    Assign(net_, value, net_.Var(inner->value));
    if (!gradient.empty()) Assign(net_, net_.Var(gradient), net_.Var(inner->gradient));
  }

  void AddWhile() {
    const Variable state = NewState();
    std::optional<GradientInBlock> inner = NewInner();
    const Variable i = FillConstant(net_, {1}, DType::kInt64, 0);
    const Variable n =
        FillConstant(net_, {1}, DType::kInt64, static_cast<double>(choose_.Below(4)));
    const Variable more = net_.Binary("less_than", i, n);
    Variable array;
    if (choose_.OneIn(3)) array = CreateArray(net_, state.dtype());
    const auto body = [&] {
      AddOps(1 + choose_.Below(3), true);
      if (array) ArrayWrite(net_, state, i, array);
      TakeInner(inner);
      Assign(net_, Like(state), state);
      Increment(net_, i);
      Assign(net_, net_.Binary("less_than", i, n), more);
    };
    While(net_, more, Inside(true, body));
    if (inner) made_.inner.push_back(*inner);
    Forget(state.name());
    live_.push_back({n.name(), 4});
    if (array) live_.push_back({array.name()});
  }

  void AddCond() {
    const Variable condition = NewBool();
    const Variable state = NewState();
    if (choose_.OneIn(2)) {
      std::optional<GradientInBlock> inner = NewInner();
      const auto body = [&] {
        AddOps(1 + choose_.Below(3), true);
        TakeInner(inner);
        Assign(net_, Like(state), state);
      };
      If(net_, condition, Inside(true, body));
      if (inner) made_.inner.push_back(*inner);
      return;
    }
    Variable result[2];
    const auto branch = [&](int k) {
      return [&, k]() -> std::vector<Variable> {
        const auto body = [&] {
          AddOps(choose_.Below(3), true);
          result[k] = net_.Scale(Like(state), {.scale = k == 0 ? 1.0f : -1.0f});
        };
        Inside(true, body)();
        return {result[k]};
      };
    };
    const std::vector<Variable> results = Cond(net_, condition, branch(0), branch(1));
    for (const Variable& var : results) live_.push_back({var.name()});
  }

  void AddRecurrent() {
    const std::string sequence = AnyFloat(true);
    const Variable initial = NewState();
    StaticRnn rnn(net_, {.reverse = choose_.OneIn(2)});
    const auto body = [&] {
      const Variable step = rnn.StepInput(net_.Var(sequence));
      const Variable memory = rnn.Memory(initial);
      live_.push_back({step.name()});
      live_.push_back({memory.name()});
      AddOps(1 + choose_.Below(3), false);
      const Variable next = Like(memory);
      rnn.UpdateMemory(memory, next);
      rnn.StepOutput(net_.Scale(next, {.scale = 1.0f}));
    };
    rnn.Step(Inside(false, body));
    for (const Variable& out : rnn.Outputs()) live_.push_back({out.name()});
  }

  // A function of one or two arguments, called once or twice.
  void AddCall() {
    std::vector<std::string> arguments = {AnyFloat()}, parameters;
    if (choose_.OneIn(2)) arguments.push_back(AnyFloat());
    BlockDesc& outer = block();
    BlockDesc& function = made_.program.AppendBlock(outer);
    for (const std::string& argument : arguments) {
      const VarMeta meta = MetaOf(argument);
      parameters.push_back(NewName("p"));
      function.Var(parameters.back()).SetMeta(meta);
    }
    net_.SetBlock(function);
    std::string result;
    // A function that is differentiated sees its parameters only.
    std::vector<Live> around;
    const bool may_capture = may_capture_;
    if (options_.smooth || !choose_.OneIn(4)) {
      around.swap(live_);
      may_capture_ = false;
    }
    const auto body = [&] {
      for (const std::string& name : parameters) live_.push_back({name});
      AddOps(1 + choose_.Below(3), true);
      result = net_.Unary("tanh", net_.Var(OwnFloat(function, parameters[0]))).name();
    };
    Inside(false, body)();
    live_.insert(live_.end(), around.begin(), around.end());
    may_capture_ = may_capture;
    net_.SetBlock(outer);
    const VarMeta meta = function.FindVar(result)->meta();
    for (size_t n = 1 + choose_.Below(2); n > 0; --n) {
      const std::string out = NewName("v");
      outer.Var(out).SetMeta(meta);
      live_.push_back({out});
      const OpDesc& op = outer.AppendOp("call", {{"X", arguments}}, {{"Out", {out}}},
                                        {{"sub_block", BlockRef{function.idx()}},
                                         {"parameters", parameters},
                                         {"results", std::vector<std::string>{result}}});
      InferOp(outer, op, DefaultOps());
    }
  }

  // A group of elementwise ops, as passes make them; some are cut along their first dim, if they
  // can be.
  void AddFused() {
    if (options_.smooth) return;  // it has no gradient
    static const std::vector<std::string> kTypes = {"tanh", "square", "cast", "elementwise_add",
                                                    "elementwise_mul"};
    std::vector<std::string> arguments = {AnyFloat()};
    if (choose_.OneIn(2)) arguments.push_back(AnyFloat());
    BlockDesc& outer = block();
    BlockDesc& group = made_.program.AppendBlock(outer);
    std::vector<std::string> names;
    for (const std::string& argument : arguments) {
      names.push_back(NewName("p"));
      group.Var(names.back()).SetMeta(MetaOf(argument));
    }
    const std::vector<std::string> parameters = names;
    for (size_t n = 1 + choose_.Below(4); n > 0; --n) {
      const std::string& type = choose_.Of(kTypes);
      SlotList inputs = {{"X", {choose_.Of(names)}}};
      if (type.starts_with("elementwise")) inputs.push_back({"Y", {choose_.Of(names)}});
      AttrList attrs;
      if (type.starts_with("cast"))
        attrs = {{"out_dtype", static_cast<int32_t>(group.FindVar(names[0])->dtype())}};
      names.push_back(NewName("v"));
      Writer(group, DefaultOps()).Append(type, inputs, {{"Out", {names.back()}}}, attrs);
    }
    const std::string out = NewName("v");
    AttrList attrs = {{"sub_block", BlockRef{group.idx()}},
                      {"arguments", parameters},
                      {"results", std::vector<std::string>{names.back()}},
                      {"lod_from", std::vector<int32_t>{0}}};
    const bool images = choose_.OneIn(2);
    if (images) {
      std::vector<int32_t> cut = {0};
      if (arguments.size() > 1 && choose_.OneIn(2)) cut.push_back(1);
      attrs.push_back({"images", cut});
    }
    net_.Append(images ? "fused_images" : "fused_elementwise", {{"X", arguments}}, {{"Out", {out}}},
                attrs);
    live_.push_back({out});
  }

  // The last floating-point tensor that the block computes.
  std::string OwnFloat(const BlockDesc& owner, const std::string& otherwise) {
    for (size_t i = live_.size(); i-- > 0;) {
      const VarDesc* var = owner.FindVar(live_[i].name);
      if (var && var->type() == VarType::kLoDTensor && IsFloating(var->dtype())) return var->name();
    }
    return otherwise;
  }

  // Sequences of different lengths, taken apart into steps and put together again.
  void AddSequences();
  // One step of a beam search, decoded.
  void AddBeams();
  // An input whose rows are sequences of these lengths; `limit` > 0: indices.
  std::string SequenceInput(const std::vector<uint64_t>& lengths, int64_t width, int64_t limit = 0);
  std::string PlainInput(const Shape& shape, int64_t limit = 0);
  // The inputs of a recurrent op, or one that joins several ops, on sequences of these lengths: D
  // is 2. False: it is not one.
  bool AddRecurrentInputs(const std::string& type, const std::vector<uint64_t>& lengths,
                          SlotList& ins, AttrList& attrs);
  // Sequences of the absolute values of others.
  std::string PositiveSequences(const std::vector<uint64_t>& lengths, int64_t width);
  // softmax(Q K^T) V of single ops, with operands of its own.
  void AddAttention();
  // An op on sequences, with inputs of its own.
  void AddSequenceOp(const std::string& type);

  // --- the end ---

  void CollectComputed() {
    for (const Live& var : live_) {
      const VarMeta& meta = MetaOf(var.name);
      if (!var.fed && meta.type == VarType::kLoDTensor && IsFloating(meta.dtype))
        made_.computed.push_back(var.name);
    }
  }

  // The sum of the means of a few results, the last one among them.
  void AddLoss() {
    std::vector<std::string> terms;
    std::set<std::string> used;
    for (int k = 0; k < 3; ++k) {
      const std::string& name = k == 0 ? made_.computed.back() : choose_.Of(made_.computed);
      const VarMeta& meta = MetaOf(name);
      if (meta.dtype != DType::kFloat32 || !used.insert(name).second) continue;
      const std::string mean = NewName("mean");
      net_.Append("mean", {{"X", {name}}}, {{"Out", {mean}}});
      terms.push_back(mean);
    }
    if (terms.empty()) return;
    made_.loss = "loss";
    net_.Append("sum", {{"X", terms}}, {{"Out", {made_.loss}}},
                {{std::string(kOpRoleAttr), static_cast<int32_t>(kForward | kLoss)}});
  }

  Choices& choose_;
  const RandomProgramOptions& options_;
  RandomProgram& made_;
  ProgramDesc startup_;
  Builder net_;
  std::vector<std::string> types_;
  OpDrawer drawer_;
  std::vector<Live> live_;
  std::set<std::string> unchanged_;  // no op may write these
  std::string computed_outside_;     // of the input of an inner gradient
  size_t depth_ = 0;
  bool may_write_outer_ = true;
  bool may_capture_ = true;  // read variables around the block
};

}  // namespace coracle
