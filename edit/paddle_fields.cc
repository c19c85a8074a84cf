#include <coracle/edit/paddle_fields.h>
#include <coracle/framework/io/extensions.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/context/inner_gradient.h>
#include <coracle/framework/op/recomputed.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>

namespace coracle::inline internal {
namespace {

// Types that only Coracle has: results of passes, and ops that Paddle expresses in other ways.
constexpr std::string_view kOwnTypes[] = {
    "call",
    "clip_statistics",
    "elementwise_pow_derivative",
    "fc_gradients",
    "fused_elementwise",
    "fused_images",
    "fused_residual_layer_norm",
    "fused_residual_layer_norm_gradients",
    "fused_softmax_with_cross_entropy",
    "lion",
    "prevent_gradient",
    "scaled_dot_product_attention",
    "stop_gradient",
    "total_norm",
    "unset_in_array",
    "view_dtype",
};

// Links between ops, written and read by backward, and the compiler's origins.
constexpr std::string_view kOwnAttrs[] = {kForwardOpAttr, kRecomputedFromAttr, kOuterReadsAttr,
                                          kOuterInputsAttr, kOpOriginAttr};
constexpr std::string_view kMarks[] = {kTrainingStageAttr, kTrainingPartAttr, kTrainingOfAttr};

bool IsOwnType(std::string_view type) {
  while (type.ends_with("_grad")) type.remove_suffix(std::string_view("_grad").size());
  return std::find(std::begin(kOwnTypes), std::end(kOwnTypes), type) != std::end(kOwnTypes);
}

// Names what Paddle's form of the op lacks, or returns "". Nobody has verified the program yet.
std::string OwnFormOf(const OpDesc& op) {
  Attribute number;
  if (op.type() == "gaussian_random") {
    const Attribute* share = op.FindAttr("share");
    const bool some = share && ConvertAttribute(*share, AttrType::kFloat, &number) &&
                      std::get<float>(number) != 1;
    return some ? "gaussian_random with a share" : "";
  }
  if (op.type() != "clip_by_norm") return "";
  const Attribute* axis = op.FindAttr("axis");
  if (axis && ConvertAttribute(*axis, AttrType::kInt, &number) && std::get<int32_t>(number) >= 0)
    return "clip_by_norm with an axis";
  return op.HasInput("MaxNorm") ? "clip_by_norm with MaxNorm" : "";
}

class FieldRemover {
 public:
  explicit FieldRemover(ProgramDesc& program) : program_(program) {}

  std::vector<LeftOut> Run() {
    if (program_.random_seed != 0) Note("random seed of the program", "", true);
    program_.random_seed = 0;
    program_.version_in_legacy_field = false;
    FileFields::SetUnknown(program_, Remaining(FileFields::Unknown(program_)));
    for (int b = 0; b < program_.NumBlocks(); ++b) {
      BlockDesc& block = program_.Block(b);
      FileFields::SetUnknown(block, Remaining(FileFields::Unknown(block)));
      for (size_t i = 0; i < block.NumVars(); ++i) CleanVar(block.var(i));
      block.ForEachOp([&](OpDesc& op) { CleanOp(op); });
    }
    return std::move(left_out_);
  }

 private:
  void Note(const std::string& what, const std::string& of, bool matters) {
    const auto [it, added] = index_.try_emplace(what, left_out_.size());
    if (added) left_out_.push_back({what, {}, matters});
    if (!of.empty() && seen_[what].insert(of).second) left_out_[it->second].of.push_back(of);
  }

  std::string Remaining(const std::string& fields) {
    std::string kept = WithoutExtensions(fields);
    if (kept != fields) Note("fields of unknown extensions", "", true);
    return kept;
  }

  void CleanVar(VarDesc& var) {
    const FileFields::Wire* wire = FileFields::WireOf(var);
    if (wire && !wire->unknown_fields.empty())
      FileFields::MutableWire(var).unknown_fields = Remaining(wire->unknown_fields);
    const TrainingAttr& training = var.training();
    if (training.IsDefault()) return;
    const auto note = [&](bool has, const char* what, bool matters = true) {
      if (has) Note(what, var.name(), matters);
    };
    note(training.error_clip != nullptr, "error clip");
    note(training.gradient_clip.has_value(), "gradient clip");
    note(training.regularizer.has_value(), "regularizer");
    note(training.learning_rate != 1.0, "learning rate");
    note(!training.trainable, "trainable = false");
    // The startup program already contains its ops.
    note(training.initializer.has_value(), "initializer", false);
    note(!training.creation_site.empty(), "place in the text", false);
    var.MutableTraining() = TrainingAttr();
  }

  void CleanOp(OpDesc& op) {
    if (!FileFields::Unknown(op).empty())
      FileFields::SetUnknown(op, Remaining(FileFields::Unknown(op)));
    for (const std::string_view name : kOwnAttrs) {
      if (op.HasAttr(name)) RemoveAttr(op, name, "attr " + std::string(name));
    }
    for (const std::string_view name : kMarks) {
      if (op.HasAttr(name)) RemoveAttr(op, name, "mark of the training step");
    }
  }

  void RemoveAttr(OpDesc& op, std::string_view name, const std::string& what) {
    Note(what, op.type(), false);
    op.RemoveAttr(name);
  }

  ProgramDesc& program_;
  std::vector<LeftOut> left_out_;
  std::unordered_map<std::string, size_t> index_;  // in left_out_, by what
  std::unordered_map<std::string, std::unordered_set<std::string>> seen_;
};

}  // namespace

std::vector<LeftOut> KeepPaddleFields(ProgramDesc& program) { return FieldRemover(program).Run(); }

std::vector<std::pair<std::string, int64_t>> OpsUnknownToPaddle(const ProgramDesc& program) {
  std::vector<std::pair<std::string, int64_t>> found;
  std::unordered_map<std::string, size_t> index;
  program.ForEachOp([&](const OpDesc& op) {
    const std::string own = IsOwnType(op.type()) ? op.type() : OwnFormOf(op);
    if (own.empty()) return;
    const auto [it, added] = index.try_emplace(own, found.size());
    if (added) found.emplace_back(own, 0);
    ++found[it->second].second;
  });
  return found;
}

}  // namespace coracle::inline internal
