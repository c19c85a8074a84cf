// A saved model as a layer: copies the ops that its fetches need into the model, with its
// parameters, which start with the saved values.

#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/op/name_attrs.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/layer_scope.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace coracle {
namespace {

using Names = std::vector<std::string>;
using NameMap = std::unordered_map<std::string, std::string>;

constexpr int kMaxDepth = 128;  // of blocks, as in Verify

const LayerFields<ProgramOptions>& ProgramLayer() {
  using O = ProgramOptions;
  static const auto layer =
      LayerFields<O>("program",
                     "A saved inference model: its ops in training form, with its parameters.")
          .Inputs("input", "its feeds")
          .File("file", &O::file, "a directory, a .pdmodel file or its prefix, or an .onnx file")
          .Field("feed", &O::feeds,
                 "variables of the model that take the inputs; default: its feeds")
          .Field("fetch", &O::fetches,
                 "variables of the model that are the results; default: its fetches")
          .Field("frozen", &O::frozen,
                 "regular expressions of parameters' names, which are not trained")
          .Field("trained", &O::trained, "if given, only parameters that match are trained")
          .Field("train_statistics", &O::train_statistics,
                 "normalise by the statistics of the batch, and update the running ones")
          .Field("train_dropout", &O::train_dropout, "drop elements while training")
          .Field("prefix", &O::prefix, "prefix of the names of its parameters and variables")
          .Result(LayerDef::Result::kSeveral);
  return layer;
}

class Patterns {
 public:
  explicit Patterns(const Names& texts) {
    for (const std::string& text : texts) all_.push_back({text, Regex(text), false});
  }
  bool empty() const { return all_.empty(); }
  bool Match(const std::string& name) {
    bool any = false;
    for (Pattern& pattern : all_) {
      if (!pattern.regex.MatchesAll(name)) continue;
      any = pattern.used = true;
    }
    return any;
  }
  // A pattern that matches nothing is a typing error that would train (or freeze) the
  // wrong parameters.
  void RequireUsed(const char* field, const Names& parameters) const {
    for (const Pattern& pattern : all_) {
      if (pattern.used) continue;
      throw Error(ErrorCode::kNotFound,
                  fmt::format("program: {} {} matches no parameter{}", field, Quote(pattern.text),
                              DidYouMean(pattern.text, parameters)));
    }
  }

 private:
  struct Pattern {
    std::string text;
    Regex regex;
    bool used;
  };
  std::vector<Pattern> all_;
};

// Maps the names of a block's variables, and falls back to the enclosing blocks.
class BlockNames {
 public:
  explicit BlockNames(const BlockNames* outer) : outer_(outer) {}
  bool Declares(const std::string& name) const { return names_.count(name) > 0; }
  void Set(const std::string& from, std::string to) { names_[from] = std::move(to); }
  const std::string& operator[](const std::string& name) const {
    const auto found = names_.find(name);
    if (found != names_.end()) return found->second;
    return outer_ ? (*outer_)[name] : name;
  }

 private:
  const BlockNames* outer_;
  NameMap names_;
};

class ProgramCopy {
 public:
  ProgramCopy(Builder& net, const std::vector<Variable>& x, const ProgramOptions& options)
      : net_(net), x_(x), options_(options), model_(LoadInferenceModel(options.file, values_)) {
    feeds_ = options.feeds.empty() ? model_.feed_names : options.feeds;
    fetches_ = options.fetches.empty() ? model_.fetch_names : options.fetches;
  }

  std::vector<Variable> Append() {
    Cut();
    BindFeeds();
    AppendParameters();
    BlockNames names = Declare();
    BlockDesc& to = net_.block();
    for (size_t i = 0; i < root().NumOps(); ++i) AppendOp(root().op(i), names, to);
    std::vector<Variable> results;
    for (const std::string& fetch : fetches_) results.push_back(net_.Var(names[fetch]));
    return results;
  }

 private:
  BlockDesc& root() { return model_.program.Root(); }

  VarDesc& Find(const std::string& name, const char* field) {
    if (VarDesc* var = root().FindVar(name)) return *var;
    Names known;
    for (size_t i = 0; i < root().NumVars(); ++i) known.push_back(root().var(i).name());
    throw Error(ErrorCode::kNotFound,
                fmt::format("program: {}: {} has no variable {}{}", field, options_.file,
                            Quote(name), DidYouMean(name, known)));
  }

  // Keeps only the ops between the feeds and the fetches.
  void Cut() {
    if (fetches_.empty())
      ThrowInvalid("program: the model fetches nothing; name variables in fetch");
    for (const std::string& name : feeds_) Find(name, "feed");
    for (const std::string& name : fetches_) Find(name, "fetch");
    root().RemoveOpsIf([](const OpDesc& op) { return op.type() == "fetch"; });
    model_.program.Prune(fetches_, feeds_);
    root().ForEachOp([&](const OpDesc& op) {
      if (op.type() != "feed") return;
      ThrowInvalid(fmt::format("program: no input corresponds to the feed {} of the model",
                               Quote(op.Output("Out").at(0))));
    });
  }

  void BindFeeds() {
    if (x_.size() != feeds_.size()) {
      ThrowInvalid(fmt::format("program: the model takes {} inputs ({}), got {}", feeds_.size(),
                               Join(feeds_, ", "), x_.size()));
    }
    for (size_t i = 0; i < feeds_.size(); ++i) {
      const VarDesc* feed = root().FindVar(feeds_[i]);
      if (!feed) continue;  // no op reads it
      const bool same_rank = feed->shape().rank() == x_[i].shape().rank();
      if (feed->dtype() == x_[i].dtype() && (same_rank || !feed->shape().rank())) continue;
      ThrowInvalid(fmt::format("program: {} is {} in the model, and its input {} is {}",
                               Quote(feeds_[i]), feed->meta().ToString(), Quote(x_[i].name()),
                               x_[i].desc().meta().ToString()));
    }
  }

  bool IsFed(const std::string& name) const {
    return std::find(feeds_.begin(), feeds_.end(), name) != feeds_.end();
  }

  const Tensor& ValueOf(const VarDesc& var) const {
    if (var.type() == VarType::kLoDTensor) return values_.Get(var.name());
    ThrowInvalid(fmt::format("program: the persistable variable {} is not a dense tensor: {}",
                             Quote(var.name()), var.meta().ToString()));
  }

  void AppendParameters() {
    Patterns frozen(options_.frozen), trained(options_.trained);
    Names parameters;
    for (size_t i = 0; i < root().NumVars(); ++i) {
      const VarDesc& var = root().var(i);
      if (!var.persistable() || IsFed(var.name())) continue;
      const Tensor& value = ValueOf(var);
      const std::string name = options_.prefix + var.name();
      if (net_.main().Root().FindVar(name)) {
        throw Error(ErrorCode::kAlreadyExists,
                    fmt::format("program: the model's parameter {} has the name of another "
                                "variable; give a prefix",
                                Quote(name)));
      }
      const Setting initializer = ArrayInitializer(value);
      if (!var.is_parameter()) {
        net_.Statistic("", name, value.shape(), value.dtype(), initializer);
        continue;
      }
      parameters.push_back(var.name());
      const bool is_trained = trained.empty() || trained.Match(var.name());
      const bool is_frozen = frozen.Match(var.name());
      net_.Parameter(
          "", value.shape(), value.dtype(),
          {.name = name, .initializer = initializer, .trainable = is_trained && !is_frozen});
    }
    frozen.RequireUsed("frozen", parameters);
    trained.RequireUsed("trained", parameters);
  }

  // Declares the root's variables in the model and returns their names there.
  BlockNames Declare() {
    if (!options_.outputs.empty() && options_.outputs.size() != fetches_.size()) {
      ThrowInvalid(fmt::format("program: {} results are named, the layer yields {}",
                               options_.outputs.size(), fetches_.size()));
    }
    BlockNames names(nullptr);
    for (size_t i = 0; i < fetches_.size() && !options_.outputs.empty(); ++i) {
      RequireFreeOutput(net_, "program", options_.outputs[i]);
      names.Set(fetches_[i], options_.outputs[i]);
    }
    for (size_t i = 0; i < root().NumVars(); ++i) {
      const VarDesc& var = root().var(i);
      if (IsFed(var.name())) continue;
      if (var.persistable())
        names.Set(var.name(), options_.prefix + var.name());
      else
        DeclareIn(net_.block(), var, names);
    }
    for (size_t i = 0; i < feeds_.size(); ++i) names.Set(feeds_[i], x_[i].name());
    return names;
  }

  void DeclareIn(BlockDesc& block, const VarDesc& var, BlockNames& names) {
    if (!names.Declares(var.name()))
      names.Set(var.name(), net_.main().FreeName(options_.prefix + var.name()));
    VarDesc& copy = block.Var(names[var.name()]);
    copy.SetMeta(var.meta());
    copy.SetStopGradient(var.stop_gradient());
  }

  void AppendOp(const OpDesc& op, const BlockNames& names, BlockDesc& to) {
    auto copy = std::make_unique<OpDesc>(op.type(), op.inputs(), op.outputs(), op.attrs());
    const auto renamed = [&](const std::string& name) {
      return IsEmptyName(name) ? name : names[name];
    };
    copy->RemoveAttr(kOpCallstackAttr);
    FreeBatch(op, *copy);
    SetTraining(*copy);
    copy->RenameInputs(renamed);
    copy->RenameOutputs(renamed);
    if (op.HasSubBlock()) AppendBlocks(op, *copy, names, to);
    AddOutputs(*copy);
    net_.Append(copy->type(), copy->inputs(), copy->outputs(), copy->attrs());
  }

  // Appends the blocks that the op runs; called before the op is appended.
  void AppendBlocks(const OpDesc& op, OpDesc& copy, const BlockNames& names, BlockDesc& to) {
    if (++depth_ > kMaxDepth)
      ThrowInvalid(fmt::format("program: more than {} blocks are nested", kMaxDepth));
    std::unordered_map<std::string, std::string> inner_names;
    copy.RenumberSubBlocks([&](int idx) {
      const ProgramDesc& program = model_.program;
      if (idx <= op.block()->idx() || idx >= program.NumBlocks()) {
        ThrowInvalid(
            fmt::format("program: {} names the block {}, which it cannot run", op.type(), idx));
      }
      const BlockDesc& from = program.Block(idx);
      BlockDesc& inner = net_.main().AppendBlock(to);
      BlockNames own(&names);
      for (size_t i = 0; i < from.NumVars(); ++i) {
        const std::string& name = from.var(i).name();
        DeclareIn(inner, from.var(i), own);
        inner_names[name] = own[name];
      }
      net_.SetBlock(inner);
      for (size_t i = 0; i < from.NumOps(); ++i) AppendOp(from.op(i), own, inner);
      net_.SetBlock(to);
      return inner.idx();
    });
    RenameInAttrs(copy, [&](const std::string& name) {
      const auto found = inner_names.find(name);
      return found == inner_names.end() ? names[name] : found->second;
    });
    --depth_;
  }

  // A reshape that fixes dim 0 contains the batch size of the export; 0 keeps the input's instead.
  void FreeBatch(const OpDesc& op, OpDesc& copy) {
    if (!op.HasInput("X") || !op.HasOutput("Out") || !op.type().starts_with("reshape")) return;
    auto shape = op.GetAttr<std::vector<int32_t>>("shape", {});
    if (shape.empty() || shape[0] <= 0) return;
    const BlockDesc& block = *op.block();
    const VarDesc* x = block.FindVarRecursive(op.Input("X").at(0));
    if (!x || x->shape().rank() == 0 || x->shape()[0] != shape[0]) return;
    if (!HasBatch(shape[0])) return;
    shape[0] = 0;
    copy.SetAttr("shape", shape);
  }
  // Whether `dim` is dim 0 of a feed whose input has another.
  bool HasBatch(int64_t dim) {
    for (size_t i = 0; i < feeds_.size(); ++i) {
      const VarDesc* feed = root().FindVar(feeds_[i]);
      if (!feed || feed->shape().rank() == 0 || x_[i].shape().rank() == 0) continue;
      if (feed->shape()[0] == dim && x_[i].shape()[0] != dim) return true;
    }
    return false;
  }

  // Ops that read running statistics have the inputs Mean and Variance, or scales of quantisation.
  void SetTraining(OpDesc& op) const {
    const OpSpec* spec = net_.ops().Find(op.type());
    const auto has = [&](const char* attr) {
      return op.HasAttr(attr) || (spec && spec->FindAttr(attr));
    };
    if (!has("is_test")) return;
    const bool statistics = (op.HasInput("Mean") && op.HasInput("Variance")) ||
                            op.HasInput("InScale") || op.HasOutput("OutScale");
    if (statistics) {
      op.SetAttr("is_test", !options_.train_statistics);
      // Programs made for inference, such as those from ONNX, may use two attrs for this.
      if (options_.train_statistics && has("use_global_stats"))
        op.SetAttr("use_global_stats", false);
    } else if (op.type() == "dropout") {
      op.SetAttr("is_test", !options_.train_dropout);
    } else {
      op.SetAttr("is_test", false);
      if (has("dropout_prob") && !options_.train_dropout) op.SetAttr("dropout_prob", 0.0f);
    }
  }

  // Adds outputs that an inference program may lack: running statistics are updated in place.
  void AddOutputs(OpDesc& op) {
    const OpSpec* spec = net_.ops().Find(op.type());
    if (!spec) return;
    for (const SlotDef& slot : spec->outputs) {
      if (op.HasOutput(slot.name) && !op.Output(slot.name).empty()) continue;
      const bool state = slot.name == "MeanOut" || slot.name == "VarianceOut";
      if (state) {
        const std::string input = slot.name.substr(0, slot.name.size() - 3);
        if (op.HasInput(input)) op.SetOutput(slot.name, op.Input(input));
      } else if (slot.intermediate && !slot.variadic && !slot.optional) {
        op.SetOutput(slot.name, {net_.FreshName(options_.prefix + op.type() + ".tmp", 0)});
      }
    }
  }

  Builder& net_;
  const std::vector<Variable>& x_;
  const ProgramOptions& options_;
  Scope values_;
  InferenceModel model_;
  Names feeds_, fetches_;
  int depth_ = 0;
};

}  // namespace

std::vector<Variable> Builder::Program(const std::vector<Variable>& x,
                                       const ProgramOptions& options) {
  const EditGuard guard(*main_, *startup_);
  return ProgramCopy(*this, x, options).Append();
}

std::vector<LayerDef> ProgramLayers() {
  return {
      ProgramLayer().Build([](Builder& net, const LayerArgs& args, const ProgramOptions& options) {
        return net.Program(args.Vars("input"), options);
      })};
}

}  // namespace coracle
