// QuantizeForTraining: inserts the ops that round operands in training.

#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/writer.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/passes/value_flow.h>
#include <coracle/quantize/fake_ops.h>
#include <coracle/quantize/op_kinds.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_set>

namespace coracle {
namespace {

using NameSet = std::unordered_set<std::string>;

void RequireValid(const QuantizeTrainingOptions& options) {
  for (const auto& [what, bits] : {std::pair{"weights", options.weight_bits},
                                   std::pair{"activations", options.activation_bits}}) {
    if (bits < 2 || bits > 8)
      ThrowInvalid(fmt::format("quantize: {} have 2 to 8 bits, got {}", what, bits));
  }
  if (!(options.moving_rate >= 0 && options.moving_rate < 1)) {
    ThrowInvalid(fmt::format("quantize: moving_rate must be at least 0 and below 1, got {:g}",
                             options.moving_rate));
  }
}

void RequireForward(const ProgramDesc& program) {
  program.ForEachOp([](const OpDesc& op) {
    if (HasRole(op, kBackward | kOptimize)) {
      ThrowInvalid(fmt::format(
          "quantize: the program already has the op {} of backward or an update; insert rounding "
          "before",
          Quote(op.type())));
    }
    if (IsQuantizing(op)) {
      ThrowInvalid(
          fmt::format("quantize: the program rounds already: it has the op {}, which "
                      "writes {}",
                      Quote(op.type()), Quote(op.FirstOutput())));
    }
  });
}

// A product whose operands are rounded.
struct RoundedProduct {
  size_t op;
  std::string data_slot, data, weight_slot, weight;
  int axis;  // of the weight's output channels
};

// Finds the products and the variables that are rounded for them.
class TrainingProducts {
 public:
  TrainingProducts(const ProgramDesc& program, const std::string& exclude) : root_(program.Root()) {
    if (!exclude.empty()) exclude_.emplace(exclude);
    for (int b = 1; b < program.NumBlocks(); ++b) {
      program.Block(b).ForEachOp([&](const OpDesc& op) {
        op.ForEachOutput([&](const std::string& name) { written_inside_.insert(name); });
      });
    }
  }

  std::vector<RoundedProduct> Find() {
    std::vector<RoundedProduct> found;
    for (size_t i = 0; i < root_.NumOps(); ++i) {
      std::optional<RoundedProduct> product = ProductOf(i);
      if (!product) continue;
      ++candidates_;
      if (!IsExcluded(*product)) found.push_back(std::move(*product));
    }
    if (found.empty()) {
      ThrowInvalid(
          candidates_ == 0
              ? std::string("quantize: the model has no product to quantise: no convolution or "
                            "matrix product of the "
                            "main block reads a float32 activation and a float32 parameter")
              : fmt::format("quantize: all {} products of the model are excluded", candidates_));
    }
    return found;
  }

 private:
  bool IsWeight(const std::string& name) const {
    return DTypeOfTensor(root_, name) == DType::kFloat32 && root_.FindVar(name)->is_parameter() &&
           root_.Uses(name).writers.empty() && !written_inside_.count(name);
  }
  bool IsActivation(const std::string& name) const {
    return DTypeOfTensor(root_, name) == DType::kFloat32 && !root_.FindVar(name)->persistable() &&
           root_.Uses(name).writers.size() <= 1 && !written_inside_.count(name);
  }

  std::optional<RoundedProduct> ProductOf(size_t i) const {
    const OpDesc& op = root_.op(i);
    if (KindOf(op) != QuantKind::kProduct) return std::nullopt;
    ProductSlots slots = SlotsOfProduct(op);
    if (op.Input(slots.data).size() != 1 || op.Input(slots.weight).size() != 1) return std::nullopt;
    const bool is_y = IsWeight(op.Input(slots.weight)[0]);
    if (!is_y && slots.weight_is_data) std::swap(slots.data, slots.weight);
    const std::string &x = op.Input(slots.data)[0], &w = op.Input(slots.weight)[0];
    if (!IsActivation(x) || !IsWeight(w)) return std::nullopt;
    const std::optional<ProductAxes> axes =
        AxesOfProduct(op, root_.FindVar(x)->shape(), root_.FindVar(w)->shape(), is_y);
    if (!axes || axes->channel > 1) return std::nullopt;
    return RoundedProduct{i, slots.data, x, slots.weight, w, axes->channel};
  }

  // By the names of the weight and of the outputs up to the activation.
  bool IsExcluded(const RoundedProduct& product) const {
    if (!exclude_) return false;
    if (exclude_->MatchesPart(product.weight)) return true;
    std::string name = root_.op(product.op).FirstOutput();
    for (int follower = 0;; ++follower) {
      if (exclude_->MatchesPart(name)) return true;
      const VarUses uses = root_.Uses(name);
      if (follower == 3 || uses.readers.size() != 1) return false;
      const OpDesc& next = *uses.readers[0];
      if (KindOf(next) != QuantKind::kActivation && !IsSum(next) && !next.HasOutput("VarianceOut"))
        return false;
      name = next.FirstOutput();
    }
  }

  const BlockDesc& root_;
  std::optional<Regex> exclude_;
  NameSet written_inside_;
  size_t candidates_ = 0;
};

// What is rounded for the products, and which ops read it.
class RoundedSources {
 public:
  RoundedSources(const BlockDesc& root, const std::vector<RoundedProduct>& products) : root_(root) {
    for (const RoundedProduct& product : products) data_readers_[product.data].insert(product.op);
    for (const RoundedProduct& product : products) AddSource(product);
    for (size_t i = 0; i < root.NumOps(); ++i) FindSums(i);
  }

  const std::set<std::string>& names() const { return sources_; }
  // The variables whose rounded values the op reads.
  const NameSet& ReadBy(size_t op) const {
    static const NameSet none;
    const auto found = reads_rounded_.find(op);
    return found == reads_rounded_.end() ? none : found->second;
  }

 private:
  // The variable to round for the product: its data or, if ops that move elements made it for
  // products only, what they moved. Integers then flow through these ops.
  void AddSource(const RoundedProduct& product) {
    std::string source = product.data;
    while (const OpDesc* move = MoveBefore(source)) {
      source = DataInputs(*move)[0];
      reads_rounded_[root_.IndexOf(*move)].insert(source);
    }
    if (source == product.data) reads_rounded_[product.op].insert(source);
    sources_.insert(source);
  }
  const OpDesc* MoveBefore(const std::string& name) const {
    const VarUses uses = root_.Uses(name);
    if (uses.writers.size() != 1) return nullptr;
    const OpDesc& move = *uses.writers[0];
    if (KindOf(move) != QuantKind::kMove) return nullptr;
    const std::vector<std::string> data = DataInputs(move), moved = DataOutputs(move);
    if (data.size() != 1 || moved.size() != 1 || moved[0] != name) return nullptr;
    const VarDesc* from = root_.FindVar(data[0]);
    const bool simple = from && from->dtype() == DType::kFloat32 && !from->persistable() &&
                        root_.Uses(data[0]).writers.size() <= 1;
    if (!simple) return nullptr;
    for (const OpDesc* reader : uses.readers) {
      const size_t at = root_.IndexOf(*reader);
      const bool reads = data_readers_.count(name) > 0 && data_readers_.at(name).count(at) > 0;
      const bool moves = reads_rounded_.count(at) > 0;
      if (!reads && !moves && !IsSum(*reader)) return nullptr;
    }
    return &move;
  }

  // A sum of activations reads the rounded one if there is one: a residual that is kept in 8 bits.
  void FindSums(size_t i) {
    const OpDesc& op = root_.op(i);
    if (!IsSum(op)) return;
    for (const std::string& name : DataInputs(op))
      if (sources_.count(name)) reads_rounded_[i].insert(name);
  }

  const BlockDesc& root_;
  std::map<std::string, std::set<size_t>> data_readers_;
  std::map<size_t, NameSet> reads_rounded_;
  std::set<std::string> sources_;
};

// Writes the ops into the program.
class RoundingWriter {
 public:
  RoundingWriter(ProgramDesc& main, ProgramDesc& startup, const QuantizeTrainingOptions& options,
                 const OpRegistry& ops, const std::vector<RoundedProduct>& products)
      : main_(main),
        startup_(startup),
        root_(main.Root()),
        options_(options),
        products_(products),
        sources_(root_, products),
        writer_(root_, ops) {}

  QuantizeTrainingReport Run() {
    for (const RoundedProduct& product : products_) {
      report_.products.push_back(root_.op(product.op).FirstOutput());
      by_op_[product.op] = &product;
    }
    std::vector<std::unique_ptr<OpDesc>> old = root_.ReleaseOps();
    NameSet written;
    for (const auto& op : old)
      op->ForEachOutput([&](const std::string& name) { written.insert(name); });
    for (const std::string& source : sources_.names())
      if (!written.count(source)) RoundActivation(source);
    for (size_t i = 0; i < old.size(); ++i) {
      Rename(i, *old[i]);
      std::vector<std::string> outputs;
      old[i]->ForEachOutput([&](const std::string& name) { outputs.push_back(name); });
      root_.AppendOp(std::move(old[i]));
      for (const std::string& name : outputs)
        if (sources_.names().count(name) && !rounded_.count(name)) RoundActivation(name);
    }
    return std::move(report_);
  }

 private:
  void Rename(size_t i, OpDesc& op) {
    const auto product = by_op_.find(i);
    if (product != by_op_.end()) {
      const RoundedProduct& p = *product->second;
      const std::string rounded = RoundedWeight(p);
      op.SetInput(p.weight_slot, {rounded});
    }
    const NameSet& reads = sources_.ReadBy(i);
    if (reads.empty()) return;
    op.RenameInputs([&](const std::string& name) {
      return reads.count(name) && rounded_.count(name) ? rounded_.at(name) : name;
    });
  }

  void RequireFree(const std::string& name) const {
    if (!root_.FindVar(name)) return;
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("quantize: the model already has a variable {}", Quote(name)));
  }
  std::string NewState(const std::string& name) {
    RequireFree(name);
    return MakeState(main_, startup_, name, DType::kFloat32, {1}, 0);
  }
  std::string NewStep(const std::string& name, int64_t count, const VarDesc* weight) {
    RequireFree(name);
    MakeState(main_, startup_, name, DType::kFloat32, {count}, 1);
    for (ProgramDesc* program : {&main_, &startup_}) {
      VarDesc& var = *program->Root().FindVar(name);
      var.SetIsParameter(true);
      var.SetStopGradient(weight && weight->stop_gradient());
      if (weight && !weight->training().trainable) var.MutableTraining().trainable = false;
    }
    report_.learned_steps.push_back(name);
    return name;
  }

  void RoundActivation(const std::string& x) {
    const std::string out = main_.FreeName(x + "@ROUNDED");
    rounded_[x] = out;
    const RangeNames names(x);
    for (const std::string& state : {names.range, names.sum, names.count}) NewState(state);
    const AttrList bits = {{"bit_length", options_.activation_bits}};
    if (options_.learned_step) {
      const std::string step = NewStep(StepName(x), 1, nullptr);
      writer_.Append(kFakeLearned, {{"X", {x}}, {"Step", {step}}}, {{"Out", {out}}}, bits);
      return;
    }
    writer_.Append(kFakeAverage,
                   {{"X", {x}},
                    {"InScale", {names.range}},
                    {"InAccum", {names.sum}},
                    {"InState", {names.count}}},
                   {{"Out", {out}},
                    {"OutScale", {names.range}},
                    {"OutAccum", {names.sum}},
                    {"OutState", {names.count}}},
                   {{"bit_length", options_.activation_bits},
                    {"moving_rate", static_cast<float>(options_.moving_rate)},
                    {"is_test", false}});
  }

  const std::string& RoundedWeight(const RoundedProduct& product) {
    std::string& out = weights_[{product.weight, product.axis}];
    if (!out.empty()) return out;
    const std::string& w = product.weight;
    out = main_.FreeName(w + "@ROUNDED");
    const VarDesc weight = *root_.FindVar(w);
    if (options_.learned_step) {
      const bool again = root_.FindVar(StepName(w)) != nullptr;
      const std::string name = again ? StepName(w, product.axis) : StepName(w);
      const std::string step = NewStep(name, weight.shape()[product.axis], &weight);
      writer_.Append(kFakeLearned, {{"X", {w}}, {"Step", {step}}}, {{"Out", {out}}},
                     {{"bit_length", options_.weight_bits}, {"quant_axis", product.axis}});
    } else {
      writer_.Append(kFakeChannel, {{"X", {w}}},
                     {{"Out", {out}}, {"OutScale", {main_.FreeName(w + "@SCALES")}}},
                     {{"bit_length", options_.weight_bits}, {"quant_axis", product.axis}});
    }
    if (weight.stop_gradient()) root_.FindVar(out)->SetStopGradient(true);
    return out;
  }

  ProgramDesc &main_, &startup_;
  BlockDesc& root_;
  const QuantizeTrainingOptions& options_;
  const std::vector<RoundedProduct>& products_;
  const RoundedSources sources_;
  Writer writer_;
  QuantizeTrainingReport report_;
  std::map<size_t, const RoundedProduct*> by_op_;
  std::map<std::string, std::string> rounded_;
  std::map<std::pair<std::string, int>, std::string> weights_;
};

}  // namespace

QuantizeTrainingReport QuantizeForTraining(ProgramDesc& main, ProgramDesc& startup,
                                           const QuantizeTrainingOptions& options) {
  RequireValid(options);
  RequireForward(main);
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  const std::vector<RoundedProduct> products = TrainingProducts(main, options.exclude).Find();
  const EditGuard guard(main, startup);
  return RoundingWriter(main, startup, options, ops, products).Run();
}

}  // namespace coracle
