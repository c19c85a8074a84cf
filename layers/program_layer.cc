// A saved model as a layer: copies the ops that its fetches need into the model, with its
// parameters, which start with the saved values.

#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/check/name_attrs.h>
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
          .Result(LayerDef::Result::kSeveral)
          .Example("x: [-1, 8]", R"(input: "x" file: "encoder.pdmodel" output: "out")");
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

// Checks that the inputs fit the feeds of the model.
void CheckFeeds(const BlockDesc& root, const Names& feeds, const std::vector<Variable>& x) {
  if (x.size() != feeds.size()) {
    ThrowInvalid(fmt::format("program: the model takes {} inputs ({}), got {}", feeds.size(),
                             Join(feeds, ", "), x.size()));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const VarDesc* feed = root.FindVar(feeds[i]);
    if (!feed) continue;  // no op reads it
    const bool same_rank = feed->shape().rank() == x[i].shape().rank();
    if (feed->dtype() == x[i].dtype() && (same_rank || !feed->shape().rank())) continue;
    ThrowInvalid(fmt::format("program: {} is {} in the model, and its input {} is {}",
                             Quote(feeds[i]), feed->meta().ToString(), Quote(x[i].name()),
                             x[i].desc().meta().ToString()));
  }
}

// Whether `dim` is dim 0 of a feed whose input has another.
bool HasBatch(int64_t dim, const BlockDesc& root, const Names& feeds,
              const std::vector<Variable>& x) {
  for (size_t i = 0; i < feeds.size(); ++i) {
    const VarDesc* feed = root.FindVar(feeds[i]);
    if (!feed || feed->shape().rank() == 0 || x[i].shape().rank() == 0) continue;
    if (feed->shape()[0] == dim && x[i].shape()[0] != dim) return true;
  }
  return false;
}

// A reshape that fixes dim 0 contains the batch size of the export; 0 keeps the input's instead.
void FreeBatch(const OpDesc& op, const BlockDesc& root, const Names& feeds,
               const std::vector<Variable>& x, OpDesc& copy) {
  if (!op.HasInput("X") || !op.HasOutput("Out") || !op.type().starts_with("reshape")) return;
  auto shape = op.GetAttr<std::vector<int32_t>>("shape", {});
  if (shape.empty() || shape[0] <= 0) return;
  const BlockDesc& block = *op.block();
  const VarDesc* in = block.FindVarRecursive(op.Input("X").at(0));
  if (!in || in->shape().rank() == 0 || in->shape()[0] != shape[0]) return;
  if (!HasBatch(shape[0], root, feeds, x)) return;
  shape[0] = 0;
  copy.SetAttr("shape", shape);
}
// Ops that read running statistics have the inputs Mean and Variance, or scales of quantisation.
void SetTraining(const OpSpec* spec, const ProgramOptions& options, OpDesc& op) {
  const auto has = [&](const char* attr) {
    return op.HasAttr(attr) || (spec && spec->FindAttr(attr));
  };
  if (!has("is_test")) return;
  const bool statistics = (op.HasInput("Mean") && op.HasInput("Variance")) ||
                          op.HasInput("InScale") || op.HasOutput("OutScale");
  if (statistics) {
    op.SetAttr("is_test", !options.train_statistics);
    // Programs made for inference, such as those from ONNX, may use two attrs for this.
    if (options.train_statistics && has("use_global_stats")) op.SetAttr("use_global_stats", false);
  } else if (spec && spec->random) {
    op.SetAttr("is_test", !options.train_dropout);
  } else {
    op.SetAttr("is_test", false);
    if (has("dropout_prob") && !options.train_dropout) op.SetAttr("dropout_prob", 0.0f);
  }
}

// Adds outputs that an inference program may lack: running statistics are updated in place.
void AddOutputs(const OpSpec* spec, const std::string& prefix, Builder& net, OpDesc& op) {
  if (!spec) return;
  for (const SlotDef& slot : spec->outputs) {
    if (op.HasOutput(slot.name) && !op.Output(slot.name).empty()) continue;
    const bool state = slot.name == "MeanOut" || slot.name == "VarianceOut";
    if (state) {
      const std::string input = slot.name.substr(0, slot.name.size() - 3);
      if (op.HasInput(input)) op.SetOutput(slot.name, op.Input(input));
    } else if (slot.intermediate && !slot.variadic && !slot.optional) {
      op.SetOutput(slot.name, {net.FreshName(prefix + op.type() + ".tmp", 0)});
    }
  }
}

void RequireVariable(const BlockDesc& root, const std::string& name, const char* field,
                     const std::string& file) {
  if (root.FindVar(name)) return;
  Names known;
  for (size_t i = 0; i < root.NumVars(); ++i) known.push_back(root.var(i).name());
  throw Error(ErrorCode::kNotFound, fmt::format("program: {}: {} has no variable {}{}", field, file,
                                                Quote(name), DidYouMean(name, known)));
}

const Tensor& ValueOf(const VarDesc& var, const Scope& values) {
  if (var.type() == VarType::kLoDTensor) return values.Get(var.name());
  ThrowInvalid(fmt::format("program: the persistable variable {} is not a dense tensor: {}",
                           Quote(var.name()), var.meta().ToString()));
}

// The saved model, cut to the ops between the feeds and the fetches.
struct SavedModel {
  Scope values;
  InferenceModel model;
  Names feeds, fetches;

  const BlockDesc& root() const { return model.program.Root(); }
  bool IsFed(const std::string& name) const {
    return std::find(feeds.begin(), feeds.end(), name) != feeds.end();
  }
};

SavedModel LoadCut(const ProgramOptions& options) {
  SavedModel saved;
  saved.model = LoadInferenceModel(options.file, saved.values);
  saved.feeds = options.feeds.empty() ? saved.model.feed_names : options.feeds;
  saved.fetches = options.fetches.empty() ? saved.model.fetch_names : options.fetches;
  if (saved.fetches.empty())
    ThrowInvalid("program: the model fetches nothing; name variables in fetch");
  BlockDesc& root = saved.model.program.Root();
  for (const std::string& name : saved.feeds) RequireVariable(root, name, "feed", options.file);
  for (const std::string& name : saved.fetches) RequireVariable(root, name, "fetch", options.file);
  root.RemoveOpsIf(IsFetch);
  saved.model.program.Prune(saved.fetches, saved.feeds);
  root.ForEachOp([&](const OpDesc& op) {
    if (!IsFeed(op)) return;
    ThrowInvalid(fmt::format("program: no input corresponds to the feed {} of the model",
                             Quote(op.Output("Out").at(0))));
  });
  return saved;
}

// A copy of a saved model into the model that is built.
struct ModelCopy {
  const SavedModel& from;
  Builder& net;
  const std::vector<Variable>& x;
  const ProgramOptions& options;
};

void AppendParameters(const ModelCopy& copy) {
  const ProgramOptions& options = copy.options;
  Patterns frozen(options.frozen), trained(options.trained);
  Names parameters;
  for (size_t i = 0; i < copy.from.root().NumVars(); ++i) {
    const VarDesc& var = copy.from.root().var(i);
    if (!var.persistable() || copy.from.IsFed(var.name())) continue;
    const Tensor& value = ValueOf(var, copy.from.values);
    const std::string name = options.prefix + var.name();
    if (copy.net.main().Root().FindVar(name)) {
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("program: the model's parameter {} has the name of another "
                              "variable; give a prefix",
                              Quote(name)));
    }
    const Setting initializer = ArrayInitializer(value);
    if (!var.is_parameter()) {
      copy.net.Statistic("", name, value.shape(), value.dtype(), initializer);
      continue;
    }
    parameters.push_back(var.name());
    const bool is_trained = trained.empty() || trained.Match(var.name());
    const bool is_frozen = frozen.Match(var.name());
    copy.net.Parameter(
        "", value.shape(), value.dtype(),
        {.name = name, .initializer = initializer, .trainable = is_trained && !is_frozen});
  }
  frozen.RequireUsed("frozen", parameters);
  trained.RequireUsed("trained", parameters);
}

void Declare(const ModelCopy& copy, BlockDesc& block, const VarDesc& var, BlockNames& names) {
  if (!names.Declares(var.name()))
    names.Set(var.name(), copy.net.main().FreeName(copy.options.prefix + var.name()));
  VarDesc& declared = block.Var(names[var.name()]);
  declared.SetMeta(var.meta());
  declared.SetStopGradient(var.stop_gradient());
}

// Declares the root's variables in the model and returns their names there.
BlockNames DeclareRoot(const ModelCopy& copy) {
  const ProgramOptions& options = copy.options;
  const Names &feeds = copy.from.feeds, &fetches = copy.from.fetches;
  if (!options.outputs.empty() && options.outputs.size() != fetches.size()) {
    ThrowInvalid(fmt::format("program: {} results are named, the layer yields {}",
                             options.outputs.size(), fetches.size()));
  }
  BlockNames names(nullptr);
  for (size_t i = 0; i < fetches.size() && !options.outputs.empty(); ++i) {
    RequireFreeOutput(copy.net, "program", options.outputs[i]);
    names.Set(fetches[i], options.outputs[i]);
  }
  for (size_t i = 0; i < copy.from.root().NumVars(); ++i) {
    const VarDesc& var = copy.from.root().var(i);
    if (copy.from.IsFed(var.name())) continue;
    if (var.persistable())
      names.Set(var.name(), options.prefix + var.name());
    else
      Declare(copy, copy.net.block(), var, names);
  }
  for (size_t i = 0; i < feeds.size(); ++i) names.Set(feeds[i], NameIn(copy.net, copy.x[i]));
  return names;
}

void AppendBlocks(const ModelCopy& copy, const OpDesc& op, OpDesc& appended,
                  const BlockNames& names, BlockDesc& to, int depth);

// Appends the op to the block, and the blocks that it runs. `depth`: the nesting of blocks.
void AppendOp(const ModelCopy& copy, const OpDesc& op, const BlockNames& names, BlockDesc& to,
              int depth) {
  auto appended = std::make_unique<OpDesc>(op.type(), op.inputs(), op.outputs(), op.attrs());
  const auto renamed = [&](const std::string& name) {
    return IsEmptyName(name) ? name : names[name];
  };
  appended->RemoveAttr(kOpCallstackAttr);
  // In the model that is built, all these ops are forward ops.
  if (RoleOf(op) != kForward) appended->RemoveAttr(kOpRoleAttr);
  appended->RemoveAttr(kOpRoleVarAttr);
  const OpSpec* spec = copy.net.ops().Find(op.type());
  FreeBatch(op, copy.from.root(), copy.from.feeds, copy.x, *appended);
  SetTraining(spec, copy.options, *appended);
  appended->RenameInputs(renamed);
  appended->RenameOutputs(renamed);
  if (op.HasSubBlock()) AppendBlocks(copy, op, *appended, names, to, depth + 1);
  AddOutputs(spec, copy.options.prefix, copy.net, *appended);
  copy.net.Append(appended->type(), appended->inputs(), appended->outputs(), appended->attrs());
}

void AppendBlocks(const ModelCopy& copy, const OpDesc& op, OpDesc& appended,
                  const BlockNames& names, BlockDesc& to, int depth) {
  if (depth > kMaxDepth)
    ThrowInvalid(fmt::format("program: more than {} blocks are nested", kMaxDepth));
  NameMap inner_names;
  appended.RenumberSubBlocks([&](int idx) {
    const ProgramDesc& program = copy.from.model.program;
    if (idx <= op.block()->idx() || idx >= program.NumBlocks()) {
      ThrowInvalid(
          fmt::format("program: {} names the block {}, which it cannot run", op.type(), idx));
    }
    const BlockDesc& from = program.Block(idx);
    BlockDesc& inner = copy.net.main().AppendBlock(to);
    BlockNames own(&names);
    for (size_t i = 0; i < from.NumVars(); ++i) {
      const std::string& name = from.var(i).name();
      Declare(copy, inner, from.var(i), own);
      inner_names[name] = own[name];
    }
    copy.net.SetBlock(inner);
    for (size_t i = 0; i < from.NumOps(); ++i) AppendOp(copy, from.op(i), own, inner, depth);
    copy.net.SetBlock(to);
    return inner.idx();
  });
  RenameInAttrs(appended, [&](const std::string& name) {
    const auto found = inner_names.find(name);
    return found == inner_names.end() ? names[name] : found->second;
  });
}

}  // namespace

std::vector<Variable> Builder::Program(const std::vector<Variable>& x,
                                       const ProgramOptions& options) {
  const EditGuard guard(*main_, *startup_);
  const SavedModel saved = LoadCut(options);
  CheckFeeds(saved.root(), saved.feeds, x);
  const ModelCopy copy = {saved, *this, x, options};
  AppendParameters(copy);
  const BlockNames names = DeclareRoot(copy);
  BlockDesc& to = block();
  for (size_t i = 0; i < saved.root().NumOps(); ++i)
    AppendOp(copy, saved.root().op(i), names, to, 0);
  std::vector<Variable> results;
  for (const std::string& fetch : saved.fetches) results.push_back(Var(names[fetch]));
  return results;
}

std::vector<LayerDef> internal::ProgramLayers() {
  return {
      ProgramLayer().Build([](Builder& net, const LayerArgs& args, const ProgramOptions& options) {
        return net.Program(args.Vars("input"), options);
      })};
}

}  // namespace coracle
