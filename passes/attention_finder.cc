#include <coracle/passes/attention_checks.h>
#include <coracle/passes/attention_finder.h>

#include <numeric>
#include <optional>
#include <utility>

namespace coracle::inline internal {
namespace {

// Whether it is a matmul or its gradient. The attrs of matmul_v2 have other names.
bool IsFirstVersion(const OpDesc& op) {
  return op.type() == "matmul" || op.type() == "matmul_grad";
}
bool IsSecondVersion(const OpDesc& op) {
  return op.type() == "matmul_v2" || op.type() == "matmul_v2_grad";
}
bool Transposes(const OpDesc& product, bool x) {
  return IsFirstVersion(product) ? product.GetAttr<bool>(x ? "transpose_X" : "transpose_Y", false)
                                 : product.GetAttr<bool>(x ? "trans_x" : "trans_y", false);
}
// Whether it is X Y (or, with `transposed`, X Y^T) per head, times AlphaOf.
bool IsProduct(const OpDesc& op, bool transposed) {
  return (IsFirstVersion(op) || IsSecondVersion(op)) && !Transposes(op, true) &&
         Transposes(op, false) == transposed && op.GetAttr<int32_t>("head_number", 1) == 1;
}
float AlphaOf(const OpDesc& op) {
  return IsFirstVersion(op) ? op.GetAttr<float>("alpha", 1.0f) : 1.0f;
}

// Axes of transpositions: kHeads exchanges sequence and heads; kThree turns [B, S, 3, H, D] into
// [3, B, H, S, D].
const std::vector<int32_t> kHeads = {0, 2, 1, 3}, kThree = {2, 0, 3, 1, 4};

using Ints = std::vector<int32_t>;

OpDesc* OnlyWriter(const AttentionScene& scene, const std::string& var) {
  const auto writers = scene.block.Uses(var).writers;
  return writers.size() == 1 ? writers[0] : nullptr;
}

// The op of that type that reads the variable in that slot, if it is the only reader.
OpDesc* OnlyReader(const AttentionScene& scene, const std::string& var, const std::string& type,
                   const char* slot) {
  OpDesc* found = nullptr;
  for (OpDesc* op : scene.block.Uses(var).readers) {
    if (op->type() != type || OnlyVariable(op->Input(slot)) != var) continue;
    if (found) return nullptr;
    found = op;
  }
  return found;
}

bool OnlyScales(const OpDesc& op) {
  return op.GetAttr<float>("bias", 0.0f) == 0 && !op.HasInput("ScaleTensor") &&
         op.Input("X").size() == 1;
}

int32_t Axis(const OpDesc& op) { return op.GetAttr<int32_t>("axis", -1); }

// Whether it is this transposition or the gradient of one.
bool Transposes(const OpDesc* op, const Ints& axes) {
  return op && op->GetAttr<Ints>("axis", {}) == axes &&
         (op->type() == "transpose2" || op->type() == "transpose" ||
          op->type() == "transpose2_grad" || op->type() == "transpose_grad");
}

// Whether it transposes the last two axes.
bool Flips(const OpDesc* op) {
  if (!op) return false;
  Ints axes(op->GetAttr<Ints>("axis", {}).size());
  if (axes.size() < 2) return false;
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return Transposes(op, axes);
}

// Whether it is a slice of element i of the first axis, or the gradient of one.
bool Cuts(const OpDesc* op, int32_t i) {
  if (!op || (op->type() != "slice" && op->type() != "slice_grad")) return false;
  for (const char* slot : {"StartsTensor", "EndsTensor", "StartsTensorList", "EndsTensorList"}) {
    if (op->HasInput(slot)) return false;
  }
  return op->GetAttr<Ints>("axes", {}) == Ints{0} && op->GetAttr<Ints>("starts", {}) == Ints{i} &&
         op->GetAttr<Ints>("ends", {}) == Ints{i + 1} &&
         op->GetAttr<Ints>("decrease_axis", {}) == Ints{0};
}

// The op that writes `var`, if `reader` is its only reader, in one place, and is not a gradient
// op. The same must hold for all recomputed copies, because they are fused in the same way.
OpDesc* WriterForOne(const AttentionScene& scene, const std::string& var, const OpDesc& reader) {
  int places = 0;
  reader.ForEachInput([&](const std::string& name) { places += name == var; });
  if (places != 1) return nullptr;
  for (const std::string& same : scene.matcher.SameAs(var)) {
    const auto readers = scene.block.Uses(same).readers;
    if (scene.context.IsVisible(scene.block, same) || readers.size() > 1) return nullptr;
    if (!readers.empty() && readers[0]->type() != reader.type()) return nullptr;
  }
  return OnlyWriter(scene, var);
}

// Searches backwards from the softmax to the product of Q and K.
bool FindBefore(const AttentionScene& scene, AttentionOps& a) {
  OpDesc* op = OnlyWriter(scene, OnlyVariable(a.softmax.op->Input("X")));
  if (op && op->type() == "elementwise_add") {
    a.add.op = op;
    op = OnlyWriter(scene, OnlyVariable(op->Input("X")));
  }
  if (op && op->type() == "scale") {
    if (!OnlyScales(*op)) return false;
    a.scale.op = op;
    op = OnlyWriter(scene, OnlyVariable(op->Input("X")));
  }
  a.match.op = op;
  if (!op) return false;
  OpDesc* scale_q = WriterForOne(scene, OnlyVariable(op->Input("X")), *op);
  if (scale_q && scale_q->type() == "scale" && OnlyScales(*scale_q)) a.scale_q.op = scale_q;
  if (IsProduct(*op, true)) return true;
  a.flip_k.op = WriterForOne(scene, OnlyVariable(op->Input("Y")), *op);
  return IsProduct(*op, false) && Flips(a.flip_k.op);
}

// Searches forwards to the product of the weights and V.
bool FindAfter(const AttentionScene& scene, AttentionOps& a) {
  std::string weights = OnlyVariable(a.softmax.op->Output("Out"));
  a.dropout.op = OnlyReader(scene, weights, "dropout", "X");
  if (a.dropout) {
    if (a.dropout.op->HasInput("Seed")) return false;
    weights = OnlyVariable(a.dropout.op->Output("Out"));
  }
  a.mix.op = OnlyReader(scene, weights, "matmul", "X");
  if (!a.mix) a.mix.op = OnlyReader(scene, weights, "matmul_v2", "X");
  return a.mix && IsProduct(*a.mix.op, false) && AlphaOf(*a.mix.op) == 1;
}

// Whether the gradient ops belong to the forward ops.
bool GradientsFit(const AttentionScene& scene, const AttentionOps& a) {
  const auto same = [&](const std::vector<std::string>& x, const std::vector<std::string>& y) {
    return !OnlyVariable(x).empty() && !OnlyVariable(y).empty() &&
           scene.matcher.Original(OnlyVariable(x)) == scene.matcher.Original(OnlyVariable(y));
  };
  const OpDesc &match = *a.match.op, &match_grad = *a.match.grad, &mix = *a.mix.op;
  if (!same(match.Input("X"), match_grad.Input("X")) ||
      !same(match.Input("Y"), match_grad.Input("Y")) ||
      !same(mix.Input("Y"), a.mix.grad->Input("Y")))
    return false;
  if (!IsProduct(match_grad, true) || AlphaOf(match) != AlphaOf(match_grad)) return false;
  if (a.scale) {
    const OpDesc &scale = *a.scale.op, &grad = *a.scale.grad;
    if (grad.GetAttr<float>("scale", 1.0f) != scale.GetAttr<float>("scale", 1.0f) ||
        grad.GetAttr<float>("bias", 0.0f) != 0 || grad.HasInput("ScaleTensor"))
      return false;
  }
  // A trained mask needs the gradient of the scores.
  if (a.add && a.add.grad->HasOutput("Y@GRAD")) return false;
  if (a.add && Axis(*a.add.op) != Axis(*a.add.grad)) return false;
  if (a.softmax.grad->Input("Out") != a.softmax.op->Output("Out") ||
      Axis(*a.softmax.op) != Axis(*a.softmax.grad))
    return false;
  if (!a.dropout) return true;
  const OpDesc &dropout = *a.dropout.op, &dropout_grad = *a.dropout.grad;
  if (DropoutAttrs(dropout) != DropoutAttrs(dropout_grad)) return false;
  const auto mask = dropout_grad.Input("Mask");
  return mask.empty() || mask == dropout.Output("Mask");
}

// Searches from the gradient of the second product to the gradient of the first; succeeds also
// without gradients. In training, Q is the scaled queries, because the gradient of the scaling
// reads their gradient.
bool FindGradients(const AttentionScene& scene, AttentionOps& a) {
  const AttentionLink& last = a.dropout ? a.dropout : a.softmax;
  a.mix.grad =
      OnlyReader(scene, OnlyVariable(last.op->Output("Out")), a.mix.op->type() + "_grad", "X");
  if (!a.mix.grad) return true;
  a.scale_q = {};
  if (!IsProduct(*a.mix.grad, false) || AlphaOf(*a.mix.grad) != 1) return false;
  std::string gradient = OnlyVariable(a.mix.grad->Output("X@GRAD"));
  const auto step = [&](AttentionLink& link, const char* type, const char* in, const char* out) {
    if (!link) return true;
    link.grad = OnlyReader(scene, gradient, type, in);
    if (link.grad) gradient = OnlyVariable(link.grad->Output(out));
    return link.grad != nullptr;
  };
  return step(a.dropout, "dropout_grad", "Out@GRAD", "X@GRAD") &&
         step(a.softmax, "softmax_grad", "Out@GRAD", "X@GRAD") &&
         step(a.add, "elementwise_add_grad", "Out@GRAD", "X@GRAD") &&
         step(a.scale, "scale", "X", "Out") &&
         step(a.match, (a.match.op->type() + "_grad").c_str(), "Out@GRAD", "X@GRAD") &&
         GradientsFit(scene, a);
}

// Finds the transposition of the result and its gradient.
bool FindTurnOut(const AttentionScene& scene, AttentionOps& a) {
  const std::string out = OnlyVariable(a.mix.op->Output("Out"));
  for (const char* type : {"transpose2", "transpose"}) {
    if (!a.turn_out) a.turn_out.op = OnlyReader(scene, out, type, "X");
  }
  if (!Transposes(a.turn_out.op, kHeads)) return false;
  if (!a.trains()) return true;
  a.turn_out.grad = OnlyWriter(scene, OnlyVariable(a.mix.grad->Input("Out@GRAD")));
  return Transposes(a.turn_out.grad, kHeads) &&
         a.turn_out.grad->type() == a.turn_out.op->type() + "_grad";
}

// The form with [B, S, 3, H, D] transposed to [3, B, H, S, D] and cut into three.
std::optional<AttentionOps> Joint(const AttentionScene& scene, AttentionOps a) {
  struct Part {
    AttentionLink* cut;
    std::string operand;
    const AttentionLink* product;
    const char* gradient;
  };
  const Part parts[] = {{&a.cut_q, OnlyVariable(a.inner_q()), &a.match, "X@GRAD"},
                        {&a.cut_k, OnlyVariable(a.inner_k()), &a.match, "Y@GRAD"},
                        {&a.cut_v, OnlyVariable(a.inner_v()), &a.mix, "Y@GRAD"}};
  std::string all;
  for (int32_t i = 0; i < 3; ++i) {
    const Part& part = parts[i];
    part.cut->op = OnlyWriter(scene, part.operand);
    if (!Cuts(part.cut->op, i)) return std::nullopt;
    const std::string from = OnlyVariable(part.cut->op->Input("Input"));
    if (i > 0 && from != all) return std::nullopt;
    all = from;
  }
  a.turn_all.op = OnlyWriter(scene, all);
  if (!Transposes(a.turn_all.op, kThree)) return std::nullopt;
  const VarMeta* whole = scene.types.Find(OnlyVariable(a.turn_all.op->Input("X")));
  if (!whole || whole->shape.rank() != 5 || whole->shape[2] != 3 || !FindTurnOut(scene, a))
    return std::nullopt;
  if (!a.trains()) return a;
  std::vector<std::string> terms;
  for (int32_t i = 0; i < 3; ++i) {
    const Part& part = parts[i];
    part.cut->grad = OnlyReader(scene, OnlyVariable(part.product->grad->Output(part.gradient)),
                                "slice_grad", "Out@GRAD");
    if (!Cuts(part.cut->grad, i)) return std::nullopt;
    terms.push_back(OnlyVariable(part.cut->grad->Output("Input@GRAD")));
  }
  const auto readers = scene.block.Uses(terms[0]).readers;
  if (readers.size() != 1 || readers[0]->type() != "sum") return std::nullopt;
  a.sum = readers[0];
  std::vector<std::string> summed = a.sum->Input("X");
  std::sort(summed.begin(), summed.end());
  std::sort(terms.begin(), terms.end());
  if (summed != terms || terms[0].empty()) return std::nullopt;
  a.turn_all.grad = OnlyReader(scene, OnlyVariable(a.sum->Output("Out")),
                               a.turn_all.op->type() + "_grad", "Out@GRAD");
  if (!Transposes(a.turn_all.grad, kThree)) return std::nullopt;
  return a;
}

// The form with transpositions [B, S, H, D] -> [B, H, S, D] before and back after.
std::optional<AttentionOps> Turned(const AttentionScene& scene, AttentionOps a) {
  const auto before = [&](AttentionLink& turn, const std::string& var,
                          const std::string& gradient) {
    turn.op = OnlyWriter(scene, var);
    if (!Transposes(turn.op, kHeads)) return false;
    if (gradient.empty()) return true;
    turn.grad = OnlyReader(scene, gradient, turn.op->type() + "_grad", "Out@GRAD");
    return Transposes(turn.grad, kHeads);
  };
  const auto gradient = [&](const AttentionLink& product, const char* slot) {
    return a.trains() ? OnlyVariable(product.grad->Output(slot)) : "";
  };
  if (!before(a.turn_q, OnlyVariable(a.inner_q()), gradient(a.match, "X@GRAD")) ||
      !before(a.turn_k, OnlyVariable(a.inner_k()), gradient(a.match, "Y@GRAD")) ||
      !before(a.turn_v, OnlyVariable(a.inner_v()), gradient(a.mix, "Y@GRAD")))
    return std::nullopt;
  if (!FindTurnOut(scene, a)) return std::nullopt;
  return a;
}

}  // namespace

float AttentionOps::scale_of_scores() const {
  float scale = AlphaOf(*match.op);
  for (const AttentionLink& link : {scale_q, this->scale}) {
    if (link) scale *= link.op->GetAttr<float>("scale", 1.0f);
  }
  return scale;
}

std::vector<AttentionOps> AttentionsAround(OpDesc& softmax, const AttentionScene& scene) {
  AttentionOps a;
  a.softmax.op = &softmax;
  if (!FindBefore(scene, a) || !FindAfter(scene, a) || !FindGradients(scene, a) ||
      !HasUsualTypes(a, scene))
    return {};
  std::vector<AttentionOps> forms;
  for (const std::optional<AttentionOps>& form :
       {Joint(scene, a), Turned(scene, a), std::optional(a)}) {
    if (form && MayBeFused(*form, scene)) forms.push_back(*form);
  }
  return forms;
}

const OpDesc* PlaceFor(const std::vector<const OpDesc*>& ops, const AttentionScene& scene) {
  const auto before = [&](const OpDesc* a, const OpDesc* b) {
    return scene.block.IndexOf(*a) < scene.block.IndexOf(*b);
  };
  for (const OpDesc* place : {*std::max_element(ops.begin(), ops.end(), before),
                              *std::min_element(ops.begin(), ops.end(), before)}) {
    if (scene.matcher.MayRunAt(ops, *place)) return place;
  }
  return nullptr;
}

std::tuple<float, bool, std::string> DropoutAttrs(const OpDesc& op) {
  return {op.GetAttr<float>("dropout_prob", 0.5f), op.GetAttr<bool>("is_test", false),
          op.GetAttr<std::string>("dropout_implementation", "downgrade_in_infer")};
}

}  // namespace coracle::inline internal
