// Moves ops that only move or select elements to the side of the integers, so that quantizations
// and dequantizations meet each other and the ops that may compute in integers:
//
//   x = affine_dequantize(q), y = reshape2(x), z = conv2d(y)
//   a = transpose2(z), p = affine_quantize(a)
//
// is replaced by
//
//   q2 = reshape2(q), y = affine_dequantize(q2), z = conv2d(y)
//   p2 = affine_quantize(z), p = transpose2(p2)
//
// Then removes quantizations of what was dequantized with the same scale and zero point.

#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/check/flow_types.h>
#include <coracle/operators/quantize/quantized.h>
#include <coracle/passes/fuse_quantized.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/quantized_moves.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>

namespace coracle::inline internal {
namespace {

constexpr int kMaxDepth = 16;

// What both directions need: new variables of integers, and whether an op accepts them.
class IntegerMoves {
 public:
  IntegerMoves(ProgramDesc& program, const PassContext& context)
      : program_(program),
        context_(context),
        block_(program.Root()),
        flow_(program, context),
        types_(block_),
        rewrites_(block_) {
    InferAll(block_, context.ops, types_);
  }

 protected:
  std::string NewIntegers(const std::string& real, DType dtype) {
    const std::string name = context_.AddForm(program_, real, "@QUANTIZED", dtype);
    types_.Set(name, block_.FindVar(name)->meta());
    return name;
  }
  // Whether the op may run on these integers and gives integers of their dtype.
  bool Accepts(const OpDesc& made, DType dtype) {
    return types_.Infer(context_.ops.Get(made.type()), made) &&
           !made.AnyOutput([&](const std::string& name) {
             const VarMeta* meta = types_.Find(name);
             return !meta || meta->type != VarType::kLoDTensor || meta->dtype != dtype;
           });
  }
  // Makes the replacements in the program.
  void Finish() {
    if (rewrites_.Apply()) EliminateDeadCode(program_, context_);
  }
  // Whether no op reads an output other than Out.
  bool OnlyOutIsRead(const OpDesc& op) const {
    return !op.AnyOutput([&](const std::string& name, const std::string& slot) {
      return slot != "Out" && !flow_.IsUnread(name);
    });
  }
  std::optional<ElementMove> Moves(const OpDesc& op) const {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec || flow_.IsRecomputed(op) || !OnlyOutIsRead(op)) return std::nullopt;
    return MoveOf(op, *spec);
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const ValueFlow flow_;
  FlowTypes types_;
  Rewrites rewrites_;
};

// Moves dequantizations after moves.
class DequantizeMover : IntegerMoves {
 public:
  DequantizeMover(ProgramDesc& program, const PassContext& context)
      : IntegerMoves(program, context), values_(block_, context, flow_) {}

  void Run() {
    if (values_.empty()) return;
    std::as_const(block_).ForEachOp([&](const OpDesc& op) {
      if (const auto move = Moves(op)) Try(op, *move);
    });
    Finish();
  }

 private:
  struct Source {
    const OpDesc* dequantize;
    std::string integers;
    QuantizedForm form;
  };

  std::optional<Source> SourceOf(const std::string& var) const {
    if (auto found = sources_.find(var); found != sources_.end()) return found->second;
    const QuantizedValue* value = values_.Find(var);
    if (!value) return std::nullopt;
    return Source{value->dequantize, value->integers, value->form};
  }

  void Try(const OpDesc& op, const ElementMove& move) {
    std::vector<std::string> from;
    std::optional<Source> first;
    for (const std::string& name : op.Input(move.slot)) {
      const auto source = SourceOf(name);
      if (!source || (first && !MeansSame(first->form, source->form))) return;
      if (!first) first = source;
      from.push_back(source->integers);
    }
    if (!first || (move.orders && !first->form.HasPositiveScales())) return;
    const std::vector<std::string> outs = op.Output("Out");
    for (const std::string& out : outs)
      if (IsEmptyName(out) || !flow_.IsConstantInARun(out)) return;
    const auto axis = AxisAfter(op, first->form, from);
    if (!axis || !IsWanted(op, move, from[0], outs)) return;
    Move(op, move, *first, std::move(from), outs, *axis);
  }

  // -1 for one scale; nullopt if the scales cannot follow.
  std::optional<int> AxisAfter(const OpDesc& op, const QuantizedForm& form,
                               const std::vector<std::string>& from) const {
    if (form.HasOneScale()) return -1;
    const auto& outs = op.Output("Out");
    const VarMeta *x = types_.Find(from[0]), *y = types_.Find(outs[0]);
    if (from.size() != 1 || outs.size() != 1 || !x || !y) return std::nullopt;
    return AxisAfterMove(op, context_.ops.Get(op.type()), x->shape, y->shape, form.axis);
  }

  // Whether the move saves work: the integers are a weight, nothing else reads the numbers, or an
  // op that may compute in integers follows.
  bool IsWanted(const OpDesc& op, const ElementMove& move, const std::string& integers,
                const std::vector<std::string>& outs) const {
    if (context_.FrozenValue(integers)) return true;
    const auto& reals = op.Input(move.slot);
    const auto is_only_reader = [&](const std::string& name) {
      return flow_.NumReaders(name) == 1;
    };
    return std::all_of(reals.begin(), reals.end(), is_only_reader) ||
           std::any_of(outs.begin(), outs.end(),
                       [&](const std::string& out) { return LeadsToIntegers(out); });
  }
  bool LeadsToIntegers(const std::string& var) const {
    std::unordered_set<std::string> seen;
    return LeadsToIntegers(var, 0, &seen);
  }
  bool LeadsToIntegers(const std::string& var, int depth,
                       std::unordered_set<std::string>* seen) const {
    if (depth > kMaxDepth || !seen->insert(var).second) return false;
    const auto readers = std::as_const(block_).Uses(var).readers;
    return std::any_of(readers.begin(), readers.end(), [&](const OpDesc* reader) {
      if (IsQuantizableProduct(*reader) || reader->type() == "affine_quantize") return true;
      const OpSpec* spec = context_.ops.Find(reader->type());
      if (!spec || (!spec->elementwise && !MoveOf(*reader, *spec)) ||
          reader->Output("Out").size() != 1)
        return false;
      return LeadsToIntegers(reader->Output("Out")[0], depth + 1, seen);
    });
  }

  void Move(const OpDesc& op, const ElementMove& move, const Source& first,
            std::vector<std::string> from, const std::vector<std::string>& outs, int axis) {
    const DType dtype = first.form.dtype;
    std::vector<std::string> to;
    for (const std::string& out : outs) to.push_back(NewIntegers(out, dtype));
    const OpDesc on_integers = OnIntegers(op, move, std::move(from), to);
    if (!Accepts(on_integers, dtype)) return Forget(to);
    std::vector<OpDesc> made = {on_integers};
    for (size_t i = 0; i < outs.size(); ++i) {
      OpDesc dequantize(*first.dequantize);
      dequantize.SetInput("X", {to[i]});
      dequantize.SetOutput("Out", {outs[i]});
      if (axis >= 0) dequantize.SetAttr("axis", static_cast<int32_t>(axis));
      made.push_back(dequantize);
      Source moved = {first.dequantize, to[i], first.form};
      moved.form.axis = axis;
      sources_[outs[i]] = std::move(moved);
    }
    rewrites_.Replace({&op}, op, made);
  }
  void Forget(const std::vector<std::string>& made) {
    for (const std::string& name : made) block_.RemoveVar(name);
  }

  const QuantizedValues values_;
  std::unordered_map<std::string, Source> sources_;  // by the result of a move
};

// Finds out which float32 variables can be neither nan nor infinite in any run: products of
// dequantized numbers, and functions of them that do not grow.
class FiniteNumbers {
 public:
  FiniteNumbers(const BlockDesc& block, const PassContext& context, const ValueFlow& flow)
      : context_(context), flow_(flow), values_(block, context, flow) {}

  bool Has(const std::string& var) const { return Has(var, 0); }

 private:
  bool Has(const std::string& var, int depth) const {
    if (depth > kMaxDepth) return false;
    if (const Tensor* constant = context_.FrozenValue(var)) return IsSmall(*constant);
    if (IsDequantized(var)) return true;
    const OpDesc* op = flow_.IsTemporary(var) ? flow_.WriterOf(var) : nullptr;
    const OpSpec* spec = op ? context_.ops.Find(op->type()) : nullptr;
    if (!spec) return false;
    if (IsQuantizableProduct(*op)) return IsFiniteProduct(*op, depth);
    static const std::unordered_set<std::string> kBounded = {"relu",
                                                             "relu6",
                                                             "sigmoid",
                                                             "tanh",
                                                             "hard_sigmoid",
                                                             "hard_swish",
                                                             "elementwise_add",
                                                             "elementwise_sub",
                                                             "elementwise_max",
                                                             "elementwise_min"};
    if (kBounded.count(op->type()) == 0 && !MoveOf(*op, *spec)) return false;
    return !op->AnyInput([&](const std::string& name, const std::string& slot) {
      const bool numbers = slot == "X" || slot == "Y" || slot == "Input";
      return numbers && !Has(name, depth + 1);
    });
  }
  // Numbers of this size may be added and multiplied once without an overflow.
  static bool IsSmall(const Tensor& value) {
    constexpr int64_t kMostElements = 1 << 16;
    if (value.dtype() != DType::kFloat32 || value.numel() > kMostElements) return false;
    const auto* v = value.data<float>();
    return std::all_of(v, v + value.numel(), [](float x) { return x > -1e20f && x < 1e20f; });
  }
  bool IsDequantized(const std::string& var) const {
    const QuantizedValue* value = values_.Find(var);
    return value && std::all_of(value->form.scales.begin(), value->form.scales.end(),
                                [](float s) { return s > -1e9f && s < 1e9f; });
  }
  // Products of two dequantized operands; other inputs are added.
  bool IsFiniteProduct(const OpDesc& op, int depth) const {
    if (std::abs(op.GetAttr<float>("alpha", 1.0f)) > 1) return false;
    if (!op.GetAttr<std::string>("activation_type", "").empty() ||
        !op.GetAttr<std::string>("fuse_activation", "").empty())
      return false;
    return !op.AnyInput([&](const std::string& name, const std::string& slot) {
      const bool added = slot == "Bias" || slot == "ResidualData";
      return added ? !Has(name, depth + 1) : !IsDequantized(name);
    });
  }

  const PassContext& context_;
  const ValueFlow& flow_;
  const QuantizedValues values_;
};

// Moves quantizations before moves.
class QuantizeMover : IntegerMoves {
 public:
  QuantizeMover(ProgramDesc& program, const PassContext& context)
      : IntegerMoves(program, context), finite_(block_, context, flow_) {}

  void Run() {
    std::vector<const OpDesc*> ops;
    std::as_const(block_).ForEachOp([&](const OpDesc& op) { ops.push_back(&op); });
    for (size_t i = ops.size(); i-- > 0;) Visit(*ops[i]);
    Finish();
  }

 private:
  // A quantization that moves up: the op, and the variable that has its result.
  struct Pending {
    OpDesc quantize;
    std::string integers;
    QuantizedForm form;
  };

  void Visit(const OpDesc& op) {
    if (op.Output("Out").size() == 1) {
      const auto waiting = pending_.find(op.Output("Out")[0]);
      if (waiting != pending_.end()) return MoveUp(op, *Moves(op), Pending(waiting->second));
    }
    if (!QuantizesElements(op, context_) || flow_.IsRecomputed(op)) return;
    const auto form = FormWritten(block_, context_, op);
    const std::string& x = op.Input("X")[0];
    if (!form || !flow_.IsConstantInARun(op.Output("Out")[0]) || !MayPass(x, *form)) return;
    pending_.emplace(x, Pending{op, op.Output("Out")[0], *form});
    rewrites_.Replace({&op}, op, {});
  }

  // Whether a move writes `var` only for the quantization, which may run before it.
  bool MayPass(const std::string& var, const QuantizedForm& form) {
    const OpDesc* writer = flow_.IsTemporary(var) ? flow_.WriterOf(var) : nullptr;
    if (!writer || flow_.NumReaders(var) != 1) return false;
    const auto move = Moves(*writer);
    if (!move || writer->Output("Out") != std::vector<std::string>{var} ||
        (move->orders && !form.HasPositiveScales()))
      return false;
    std::vector<std::string> from = writer->Input(move->slot);
    // A maximum with a nan is nan. Among integers, the nan would be the least one.
    if (move->orders && !std::all_of(from.begin(), from.end(),
                                     [&](const std::string& name) { return finite_.Has(name); }))
      return false;
    const std::unordered_set<std::string> distinct(from.begin(), from.end());
    if (distinct.size() != from.size() ||
        !std::all_of(from.begin(), from.end(),
                     [&](const std::string& name) { return MayQuantize(name, *writer); }))
      return false;
    // Tries it on variables of the types that the new ones will have.
    std::vector<std::string> trial;
    for (const std::string& name : from) trial.push_back(NewIntegers(name, form.dtype));
    const std::string out = NewIntegers(var, form.dtype);
    const bool accepted = Accepts(OnIntegers(*writer, *move, trial, {out}), form.dtype);
    trial.push_back(out);
    for (const std::string& name : trial) block_.RemoveVar(name);
    return accepted;
  }

  // A weight, or a value that only this move reads. A selection may need few elements of a value,
  // so its source must be an op that may write integers.
  bool MayQuantize(const std::string& var, const OpDesc& move) const {
    if (DTypeOfTensor(block_, var) != DType::kFloat32) return false;
    if (context_.FrozenValue(var)) return true;
    const OpDesc* writer = flow_.IsTemporary(var) ? flow_.WriterOf(var) : nullptr;
    if (!writer || flow_.NumReaders(var) != 1) return false;
    const OpSpec &spec = context_.ops.Get(move.type()), *its = context_.ops.Find(writer->type());
    return spec.rows.effect.rule == RowRule::kMoves || IsQuantizableProduct(*writer) ||
           (its && (its->elementwise || MoveOf(*writer, *its)));
  }

  void MoveUp(const OpDesc& op, const ElementMove& move, const Pending& waiting) {
    std::vector<std::string> from;
    std::vector<OpDesc> made;
    for (const std::string& name : op.Input(move.slot)) {
      from.push_back(NewIntegers(name, waiting.form.dtype));
      if (!context_.FrozenValue(name) && MayPass(name, waiting.form)) {
        pending_.emplace(name, Pending{waiting.quantize, from.back(), waiting.form});
        continue;
      }
      OpDesc quantize(waiting.quantize);
      quantize.SetInput("X", {name});
      quantize.SetOutput("Out", {from.back()});
      made.push_back(quantize);
    }
    made.push_back(OnIntegers(op, move, std::move(from), {waiting.integers}));
    for (OpDesc& one : made) AddOrigins(waiting.quantize, one);
    rewrites_.Replace({&op}, op, made);
  }

  const FiniteNumbers finite_;
  std::unordered_map<std::string, Pending> pending_;  // by the result of the move
};

// Replaces int8 by uint8 where a quantization writes it for dequantizations alone: adds 128 to all
// integers and to the zero points, so that the numbers stay the same. Products of uint8 and int8
// are what processors have; for int8 alone, kernels would add and subtract 128 themselves.
class UnsignedWriter {
 public:
  UnsignedWriter(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()), flow_(program, context) {}

  void Run() {
    std::as_const(block_).ForEachOp([&](const OpDesc& op) {
      if (IsWrittenForReals(op)) Shift(op);
    });
    flow_.Apply();
    for (const std::string& name : shifted_) block_.FindVar(name)->SetDType(DType::kUInt8);
  }

 private:
  bool IsWrittenForReals(const OpDesc& op) const {
    const auto form = FormWritten(block_, context_, op);
    if (!form || form->dtype != DType::kInt8 || !form->HasOneScale() || flow_.IsRecomputed(op) ||
        !flow_.IsTemporary(op.Output("Out")[0]))
      return false;
    const auto readers = std::as_const(block_).Uses(op.Output("Out")[0]).readers;
    return !readers.empty() &&
           std::all_of(readers.begin(), readers.end(), [&](const OpDesc* reader) {
             return !flow_.IsRecomputed(*reader) && QuantizesElements(*reader, context_) &&
                    FormRead(block_, context_, *reader).has_value();
           });
  }

  void Shift(const OpDesc& quantize) {
    const std::string& out = quantize.Output("Out")[0];
    OpDesc made(quantize);
    made.SetAttr("out_dtype", static_cast<int32_t>(DType::kUInt8));
    const OpSpec& spec = context_.ops.Get(quantize.type());
    const auto least = spec.AttrOf<int64_t>(quantize, "qmin");
    const auto most = spec.AttrOf<int64_t>(quantize, "qmax");
    if (least != 0 || most != 0) {
      made.SetAttr("qmin", least + kShift);
      made.SetAttr("qmax", most + kShift);
    }
    made.SetInput("ZeroPoint", {Shifted(*FormWritten(block_, context_, quantize))});
    for (const OpDesc* reader : std::as_const(block_).Uses(out).readers) {
      OpDesc dequantize(*reader);
      dequantize.SetInput("ZeroPoint", {Shifted(*FormRead(block_, context_, *reader))});
      flow_.Replace(*reader, dequantize);
    }
    flow_.Replace(quantize, made);
    shifted_.push_back(out);
  }

  std::string Shifted(const QuantizedForm& form) {
    const int32_t zero = form.ZeroPoint() + kShift;
    auto [found, added] = zeros_.try_emplace(zero);
    if (!added) return found->second;
    Tensor value(DType::kUInt8, {1});
    value.data<uint8_t>()[0] = static_cast<uint8_t>(zero);
    found->second = context_.AddFrozen(program_, form.scale + "@ZERO", std::move(value));
    return found->second;
  }

  static constexpr int32_t kShift = 128;
  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  ValueFlow flow_;
  std::unordered_map<int32_t, std::string> zeros_;
  std::vector<std::string> shifted_;
};

// Readers of integers that were dequantized and quantized again read the first ones, if both forms
// are the same: every integer comes back.
void RemoveRoundTrips(ProgramDesc& program, const PassContext& context) {
  const BlockDesc& block = program.Root();
  ValueFlow flow(program, context);
  const QuantizedValues values(block, context, flow);
  block.ForEachOp([&](const OpDesc& op) {
    const auto form = FormWritten(block, context, op);
    if (!form || flow.IsRecomputed(op)) return;
    const QuantizedValue* value = values.Find(op.Input("X")[0]);
    const std::string& out = op.Output("Out")[0];
    if (!value || !MeansSame(value->form, *form) || !form->HasWholeRange() ||
        !form->HasPositiveScales() || !flow.MayStandFor(value->integers, op, out))
      return;
    flow.Forward(out, value->integers);
    flow.Remove(op);
  });
  if (flow.Apply()) EliminateDeadCode(program, context);
}

}  // namespace

void MoveQuantization(ProgramDesc& program, const PassContext& context) {
  const auto quantizes = [](const OpDesc& op) {
    return op.type() == "affine_quantize" || op.type() == "affine_dequantize";
  };
  if (!context.frozen || !AnyOp(program.Root(), quantizes)) return;
  if (IntegerProductsPay()) UnsignedWriter(program, context).Run();
  DequantizeMover(program, context).Run();
  FoldConstants(program, context);
  QuantizeMover(program, context).Run();
  RemoveRoundTrips(program, context);
}

}  // namespace coracle::inline internal
