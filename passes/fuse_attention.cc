#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/match.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace coracle {
namespace {

constexpr const char* kAttention = "scaled_dot_product_attention";

// matmul or its gradient: matmul_v2 has other names for its attrs.
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
// X Y (or, with `transposed`, X Y^T) of one head, times AlphaOf.
bool IsProduct(const OpDesc& op, bool transposed) {
  return (IsFirstVersion(op) || IsSecondVersion(op)) && !Transposes(op, true) &&
         Transposes(op, false) == transposed && op.GetAttr<int32_t>("head_number", 1) == 1;
}
float AlphaOf(const OpDesc& op) {
  return IsFirstVersion(op) ? op.GetAttr<float>("alpha", 1.0f) : 1.0f;
}

// Probability, is_test and implementation, of dropout or its gradient.
std::tuple<float, bool, std::string> DropoutAttrs(const OpDesc& op) {
  return {op.GetAttr<float>("dropout_prob", 0.5f), op.GetAttr<bool>("is_test", false),
          op.GetAttr<std::string>("dropout_implementation", "downgrade_in_infer")};
}

// Axes of transpositions: of sequence and heads; of a tensor [B, S, 3, H, D] to [3, B, H, S, D].
const std::vector<int32_t> kHeads = {0, 2, 1, 3}, kThree = {2, 0, 3, 1, 4};

// An op between other ops of an attention, its gradient, and the variables that it passes on.
struct Link {
  OpDesc* op = nullptr;
  OpDesc* grad = nullptr;
  explicit operator bool() const { return op; }
};

// The ops of one attention, in this order; some may be absent. `turn`: transpositions of Q, K and V
// before it, and of its result; all of them or none. Or Q, K and V are cut from one tensor, which
// was transposed (`turn_all`); `sum` adds up its gradients. In inference Q may be scaled before the
// product (`scale_q`), and K transposed for it (`flip_k`).
struct Attention {
  Link scale_q, flip_k, match, scale, add, softmax, dropout, mix;
  Link turn_q, turn_k, turn_v, turn_out;
  Link turn_all, cut_q, cut_k, cut_v;
  OpDesc* sum = nullptr;

  bool trains() const { return mix.grad; }
  bool joint() const { return turn_all.op; }
  bool turned() const { return turn_out.op && !joint(); }
  const char* layout() const { return joint() ? "BS3HD" : turned() ? "BSHD" : "BHSD"; }
  std::vector<const OpDesc*> Forward() const {
    return Present({turn_all.op, cut_q.op, cut_k.op, cut_v.op, turn_q.op, turn_k.op, turn_v.op,
                    scale_q.op, flip_k.op, match.op, scale.op, add.op, softmax.op, dropout.op,
                    mix.op, turn_out.op});
  }
  std::vector<const OpDesc*> Backward() const {
    return Present({turn_out.grad, mix.grad, dropout.grad, softmax.grad, add.grad, scale.grad,
                    match.grad, turn_v.grad, turn_k.grad, turn_q.grad, cut_v.grad, cut_k.grad,
                    cut_q.grad, sum, turn_all.grad});
  }

  // What it reads and writes, as slots of the outermost ops. If joint, Q stands for all three.
  using Args = std::vector<std::string>;
  Args q() const { return joint() ? turn_all.op->Input("X") : Operand(turn_q, inner_q()); }
  Args k() const { return joint() ? Args() : Operand(turn_k, inner_k()); }
  Args v() const { return joint() ? Args() : Operand(turn_v, inner_v()); }
  // The same behind turns and cuts.
  const Args& inner_q() const { return scale_q ? scale_q.op->Input("X") : match.op->Input("X"); }
  const Args& inner_k() const { return flip_k ? flip_k.op->Input("X") : match.op->Input("Y"); }
  const Args& inner_v() const { return mix.op->Input("Y"); }
  const Args& out() const { return (turn_out ? turn_out : mix).op->Output("Out"); }
  // REQUIRES: trains().
  const Args& dout() const { return (turn_out ? turn_out : mix).grad->Input("Out@GRAD"); }
  Args dq() const {
    return joint() ? turn_all.grad->Output("X@GRAD") : Gradient(turn_q, match, "X@GRAD");
  }
  Args dk() const { return joint() ? Args() : Gradient(turn_k, match, "Y@GRAD"); }
  Args dv() const { return joint() ? Args() : Gradient(turn_v, mix, "Y@GRAD"); }

 private:
  Args Operand(const Link& turn, const Args& inner) const {
    return turned() ? turn.op->Input("X") : inner;
  }
  Args Gradient(const Link& turn, const Link& product, const char* slot) const {
    if (!turned()) return product.grad->Output(slot);
    return turn.grad ? turn.grad->Output("X@GRAD") : Args();
  }
  static std::vector<const OpDesc*> Present(std::vector<const OpDesc*> ops) {
    ops.erase(std::remove(ops.begin(), ops.end(), nullptr), ops.end());
    return ops;
  }
};

// The only variable of a slot; "" if there is none, or more than one.
std::string Only(const std::vector<std::string>& args) {
  return args.size() == 1 && !IsEmptyName(args[0]) ? args[0] : "";
}

class Finder {
 public:
  Finder(BlockDesc& block, const PassContext& context, const Matcher& matcher)
      : block_(block), context_(context), matcher_(matcher) {}

  // The attention around a softmax, with the transpositions around it where possible.
  std::optional<Attention> Around(OpDesc& softmax) const {
    Attention a;
    a.softmax.op = &softmax;
    if (!FindBefore(a) || !FindAfter(a) || !FindGradients(a) || !HasUsualTypes(a))
      return std::nullopt;
    for (const std::optional<Attention>& more : {Joint(a), Turned(a)}) {
      if (more && MayBeFused(*more)) return more;
    }
    return MayBeFused(a) ? std::optional(a) : std::nullopt;
  }

  // The first of the places at which the ops may all run; nullptr if there is none.
  const OpDesc* PlaceFor(const std::vector<const OpDesc*>& ops) const {
    const auto before = [&](const OpDesc* a, const OpDesc* b) {
      return block_.IndexOf(*a) < block_.IndexOf(*b);
    };
    for (const OpDesc* place : {*std::max_element(ops.begin(), ops.end(), before),
                                *std::min_element(ops.begin(), ops.end(), before)}) {
      if (matcher_.MayRunAt(ops, *place)) return place;
    }
    return nullptr;
  }

 private:
  bool MayBeFused(const Attention& a) const {
    return InsideIsPrivate(a) && (!a.trains() || KeepsInputs(a)) && PlaceFor(a.Forward()) &&
           (!a.trains() || PlaceFor(a.Backward()));
  }

  OpDesc* Writer(const std::string& var) const {
    const auto writers = block_.Uses(var).writers;
    return writers.size() == 1 ? writers[0] : nullptr;
  }
  // The only reader of that type that reads the variable in that slot.
  OpDesc* Reader(const std::string& var, const std::string& type, const char* slot) const {
    OpDesc* found = nullptr;
    for (OpDesc* op : block_.Uses(var).readers) {
      if (op->type() != type || Only(op->Input(slot)) != var) continue;
      if (found) return nullptr;
      found = op;
    }
    return found;
  }

  // From the softmax back to the product of Q and K.
  bool FindBefore(Attention& a) const {
    const Shape* shape = matcher_.ShapeOf(Only(a.softmax.op->Input("X")));
    const int32_t axis = a.softmax.op->GetAttr<int32_t>("axis", -1);
    if (!shape || (axis != -1 && axis != shape->rank() - 1)) return false;
    OpDesc* op = Writer(Only(a.softmax.op->Input("X")));
    if (op && op->type() == "elementwise_add") {
      a.add.op = op;
      op = Writer(Only(op->Input("X")));
    }
    if (op && op->type() == "scale") {
      if (!OnlyScales(*op)) return false;
      a.scale.op = op;
      op = Writer(Only(op->Input("X")));
    }
    a.match.op = op;
    if (!op) return false;
    OpDesc* scale_q = WriterForOne(Only(op->Input("X")));
    if (scale_q && scale_q->type() == "scale" && OnlyScales(*scale_q)) a.scale_q.op = scale_q;
    if (IsProduct(*op, true)) return true;
    a.flip_k.op = WriterForOne(Only(op->Input("Y")));
    return IsProduct(*op, false) && Flips(a.flip_k.op);
  }
  static bool OnlyScales(const OpDesc& op) {
    return op.GetAttr<float>("bias", 0.0f) == 0 && !op.HasInput("ScaleTensor") &&
           op.Input("X").size() == 1;
  }
  // The op that writes a variable which nobody but one op reads, as no gradient does.
  OpDesc* WriterForOne(const std::string& var) const {
    const bool one = block_.Uses(var).readers.size() == 1 && !context_.IsVisible(block_, var);
    return one ? Writer(var) : nullptr;
  }

  // On to the product of the weights and V.
  bool FindAfter(Attention& a) const {
    std::string weights = Only(a.softmax.op->Output("Out"));
    a.dropout.op = Reader(weights, "dropout", "X");
    if (a.dropout) {
      if (a.dropout.op->HasInput("Seed")) return false;
      weights = Only(a.dropout.op->Output("Out"));
    }
    a.mix.op = Reader(weights, "matmul", "X");
    if (!a.mix) a.mix.op = Reader(weights, "matmul_v2", "X");
    return a.mix && IsProduct(*a.mix.op, false) && AlphaOf(*a.mix.op) == 1;
  }

  // From the gradient of the second product to that of the first, if there are any.
  bool FindGradients(Attention& a) const {
    const Link& last = a.dropout ? a.dropout : a.softmax;
    a.mix.grad = Reader(Only(last.op->Output("Out")), a.mix.op->type() + "_grad", "X");
    if (!a.mix.grad) return true;
    if (!IsProduct(*a.mix.grad, false) || AlphaOf(*a.mix.grad) != 1) return false;
    std::string gradient = Only(a.mix.grad->Output("X@GRAD"));
    const auto step = [&](Link& link, const char* type, const char* in, const char* out) {
      if (!link) return true;
      link.grad = Reader(gradient, type, in);
      if (link.grad) gradient = Only(link.grad->Output(out));
      return link.grad != nullptr;
    };
    return step(a.dropout, "dropout_grad", "Out@GRAD", "X@GRAD") &&
           step(a.softmax, "softmax_grad", "Out@GRAD", "X@GRAD") &&
           step(a.add, "elementwise_add_grad", "Out@GRAD", "X@GRAD") &&
           step(a.scale, "scale", "X", "Out") &&
           step(a.match, (a.match.op->type() + "_grad").c_str(), "Out@GRAD", "X@GRAD") &&
           GradientsFit(a);
  }

  // Whether gradient ops are those of the forward ops.
  bool GradientsFit(const Attention& a) const {
    const auto same = [&](const std::vector<std::string>& x, const std::vector<std::string>& y) {
      return !Only(x).empty() && !Only(y).empty() &&
             matcher_.Original(Only(x)) == matcher_.Original(Only(y));
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
    // A mask that is trained needs the gradient of the scores.
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
  static int32_t Axis(const OpDesc& op) { return op.GetAttr<int32_t>("axis", -1); }

  using Ints = std::vector<int32_t>;
  // A transposition, or the gradient of one.
  static bool Transposes(const OpDesc* op, const Ints& axes) {
    return op && op->GetAttr<Ints>("axis", {}) == axes &&
           (op->type() == "transpose2" || op->type() == "transpose" ||
            op->type() == "transpose2_grad" || op->type() == "transpose_grad");
  }

  // A transposition of the last two axes.
  static bool Flips(const OpDesc* op) {
    if (!op) return false;
    Ints axes(op->GetAttr<Ints>("axis", {}).size());
    if (axes.size() < 2) return false;
    std::iota(axes.begin(), axes.end(), 0);
    std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
    return Transposes(op, axes);
  }

  // The transposition of the result, and its gradient.
  bool FindTurnOut(Attention& a) const {
    const std::string out = Only(a.mix.op->Output("Out"));
    for (const char* type : {"transpose2", "transpose"}) {
      if (!a.turn_out) a.turn_out.op = Reader(out, type, "X");
    }
    if (!Transposes(a.turn_out.op, kHeads)) return false;
    if (!a.trains()) return true;
    a.turn_out.grad = Writer(Only(a.mix.grad->Input("Out@GRAD")));
    return Transposes(a.turn_out.grad, kHeads) &&
           a.turn_out.grad->type() == a.turn_out.op->type() + "_grad";
  }

  // slice: element i of the first axis; or its gradient.
  static bool Cuts(const OpDesc* op, int32_t i) {
    if (!op || (op->type() != "slice" && op->type() != "slice_grad")) return false;
    for (const char* slot : {"StartsTensor", "EndsTensor", "StartsTensorList", "EndsTensorList"}) {
      if (op->HasInput(slot)) return false;
    }
    return op->GetAttr<Ints>("axes", {}) == Ints{0} && op->GetAttr<Ints>("starts", {}) == Ints{i} &&
           op->GetAttr<Ints>("ends", {}) == Ints{i + 1} &&
           op->GetAttr<Ints>("decrease_axis", {}) == Ints{0};
  }
  // [B, S, 3, H, D] -> [3, B, H, S, D], cut into three.
  std::optional<Attention> Joint(Attention a) const {
    struct Part {
      Link* cut;
      std::string operand;
      const Link* product;
      const char* gradient;
    };
    const Part parts[] = {{&a.cut_q, Only(a.inner_q()), &a.match, "X@GRAD"},
                          {&a.cut_k, Only(a.inner_k()), &a.match, "Y@GRAD"},
                          {&a.cut_v, Only(a.inner_v()), &a.mix, "Y@GRAD"}};
    std::string all;
    for (int32_t i = 0; i < 3; ++i) {
      const Part& part = parts[i];
      part.cut->op = Writer(part.operand);
      if (!Cuts(part.cut->op, i)) return std::nullopt;
      const std::string from = Only(part.cut->op->Input("Input"));
      if (i > 0 && from != all) return std::nullopt;
      all = from;
    }
    a.turn_all.op = Writer(all);
    if (!Transposes(a.turn_all.op, kThree)) return std::nullopt;
    const Shape* shape = matcher_.ShapeOf(Only(a.turn_all.op->Input("X")));
    if (!shape || shape->rank() != 5 || (*shape)[2] != 3 || !FindTurnOut(a)) return std::nullopt;
    if (!a.trains()) return a;
    std::vector<std::string> terms;
    for (int32_t i = 0; i < 3; ++i) {
      const Part& part = parts[i];
      part.cut->grad =
          Reader(Only(part.product->grad->Output(part.gradient)), "slice_grad", "Out@GRAD");
      if (!Cuts(part.cut->grad, i)) return std::nullopt;
      terms.push_back(Only(part.cut->grad->Output("Input@GRAD")));
    }
    const auto readers = block_.Uses(terms[0]).readers;
    if (readers.size() != 1 || readers[0]->type() != "sum") return std::nullopt;
    a.sum = readers[0];
    std::vector<std::string> summed = a.sum->Input("X");
    std::sort(summed.begin(), summed.end());
    std::sort(terms.begin(), terms.end());
    if (summed != terms || terms[0].empty()) return std::nullopt;
    a.turn_all.grad =
        Reader(Only(a.sum->Output("Out")), a.turn_all.op->type() + "_grad", "Out@GRAD");
    if (!Transposes(a.turn_all.grad, kThree)) return std::nullopt;
    return a;
  }

  // [B, S, H, D] -> [B, H, S, D] before, and back.
  std::optional<Attention> Turned(Attention a) const {
    const auto before = [&](Link& turn, const std::string& var, const std::string& gradient) {
      turn.op = Writer(var);
      if (!Transposes(turn.op, kHeads)) return false;
      if (gradient.empty()) return true;
      turn.grad = Reader(gradient, turn.op->type() + "_grad", "Out@GRAD");
      return Transposes(turn.grad, kHeads);
    };
    const auto gradient = [&](const Link& product, const char* slot) {
      return a.trains() ? Only(product.grad->Output(slot)) : "";
    };
    if (!before(a.turn_q, Only(a.inner_q()), gradient(a.match, "X@GRAD")) ||
        !before(a.turn_k, Only(a.inner_k()), gradient(a.match, "Y@GRAD")) ||
        !before(a.turn_v, Only(a.inner_v()), gradient(a.mix, "Y@GRAD")))
      return std::nullopt;
    if (!FindTurnOut(a)) return std::nullopt;
    return a;
  }

  // Floats of known ranks, and a mask that is added to the last dims.
  bool HasUsualTypes(const Attention& a) const {
    const VarDesc* q = block_.FindVarRecursive(Only(a.inner_q()));
    if (!q || (q->dtype() != DType::kFloat32 && q->dtype() != DType::kFloat64)) return false;
    const auto fits = [&](const std::string& name, int least) {
      const VarDesc* var = block_.FindVarRecursive(name);
      return var && var->type() == VarType::kLoDTensor && var->dtype() == q->dtype() &&
             var->shape().rank() >= least && var->shape().rank() <= 4;
    };
    if (!fits(q->name(), 2) || !fits(Only(a.inner_k()), 2) || !fits(Only(a.inner_v()), 2) ||
        !fits(Only(a.mix.op->Output("Out")), 2))
      return false;
    if (a.trains() && !AreAlike(a)) return false;
    if (!a.add) return true;
    const std::string scores = Only(a.add.op->Input("X")), mask = Only(a.add.op->Input("Y"));
    if (!fits(scores, 2) || !fits(mask, 1)) return false;
    const int32_t axis = a.add.op->GetAttr<int32_t>("axis", -1);
    return axis == -1 || matcher_.ShapeOf(scores)->rank() == matcher_.ShapeOf(mask)->rank();
  }

  // Whether Q, K and V have as many batches and heads, as far as is known: gradients of operands
  // that are repeated are computed slowly by the fused op.
  bool AreAlike(const Attention& a) const {
    const Shape& q = *matcher_.ShapeOf(Only(a.inner_q()));
    const Shape& k = *matcher_.ShapeOf(Only(a.inner_k()));
    const Shape& v = *matcher_.ShapeOf(Only(a.inner_v()));
    if (q.rank() != k.rank() || q.rank() != v.rank()) return false;
    for (int i = 0; i < q.rank() - 2; ++i) {
      if (!InferContext::Matches(q[i], k[i]) || !InferContext::Matches(q[i], v[i])) return false;
    }
    return true;
  }

  // What the ops hand on to each other is no operand, and seen by nobody else; so is whatever they
  // write besides the results.
  bool InsideIsPrivate(const Attention& a) const {
    for (const OpDesc* op : a.Forward()) {
      for (const auto& operand : {a.q(), a.k(), a.v()}) {
        if (!operand.empty() && op->Writes(Only(operand))) return false;
      }
      if (a.add && op->Writes(Only(a.add.op->Input("Y")))) return false;
    }
    std::vector<const OpDesc*> all = a.Forward();
    const std::vector<const OpDesc*> backward = a.Backward();
    all.insert(all.end(), backward.begin(), backward.end());
    const auto inside = [&](const OpDesc* op) {
      return std::find(all.begin(), all.end(), op) != all.end();
    };
    for (const OpDesc* op : all) {
      const bool seen = op->AnyOutput([&](const std::string& var) {
        if (!matcher_.IsWrittenOnce(var)) return true;
        if (IsResult(a, var)) return false;
        const auto readers = block_.Uses(var).readers;
        return context_.IsVisible(block_, var) ||
               !std::all_of(readers.begin(), readers.end(), inside);
      });
      if (seen) return false;
    }
    return true;
  }
  static bool IsResult(const Attention& a, const std::string& var) {
    if (Only(a.out()) == var) return true;
    return a.trains() && (Only(a.dq()) == var || Only(a.dk()) == var || Only(a.dv()) == var);
  }

  // What the fused gradient reads holds then what it held in the forward part.
  bool KeepsInputs(const Attention& a) const {
    const OpDesc* place = PlaceFor(a.Forward());
    if (!place) return false;
    // From where the fused op stands to the last op of its gradient.
    const std::pair<size_t, size_t> span = {block_.IndexOf(*place), Span(a).second};
    const auto kept = [&](const std::string& var) {
      const auto writers = block_.Uses(var).writers;
      return !context_.captured.count(var) &&
             std::none_of(writers.begin(), writers.end(), [&](const OpDesc* op) {
               const size_t at = block_.IndexOf(*op);
               return at >= span.first && at <= span.second && var != Only(a.out());
             });
    };
    // The gradient's own name may be that of a copy that was computed again.
    const auto same = [&](const std::string& var, const std::string& again) {
      return var == again ? kept(var)
                          : matcher_.IsWrittenOnce(again) && !context_.captured.count(again);
    };
    for (const auto& operand : {a.q(), a.k(), a.v()}) {
      if (!operand.empty() && !kept(Only(operand))) return false;
    }
    if (!a.turned() && !a.joint()) {
      const OpDesc &match = *a.match.grad, &mix = *a.mix.grad;
      if (!same(Only(a.q()), Only(match.Input("X"))) ||
          !same(Only(a.k()), Only(match.Input("Y"))) || !same(Only(a.v()), Only(mix.Input("Y"))))
        return false;
    }
    return kept(Only(a.out())) && (!a.add || kept(Only(a.add.op->Input("Y"))));
  }
  // The places of its first and last op.
  std::pair<size_t, size_t> Span(const Attention& a) const {
    std::pair<size_t, size_t> span = {block_.NumOps(), 0};
    for (const auto& ops : {a.Forward(), a.Backward()}) {
      for (const OpDesc* op : ops) {
        const size_t at = block_.IndexOf(*op);
        span = {std::min(span.first, at), std::max(span.second, at)};
      }
    }
    return span;
  }

  BlockDesc& block_;
  const PassContext& context_;
  const Matcher& matcher_;
};

// The fused ops of one attention.
class Writing {
 public:
  Writing(BlockDesc& block, const PassContext& context, const Matcher& matcher)
      : block_(block), context_(context), matcher_(matcher) {}

  OpDesc Forward(const Attention& a) {
    OpDesc op(kAttention, Inputs(a, a.q(), a.k(), a.v()), {{"Out", a.out()}}, Attrs(a));
    if (a.dropout) {
      op.SetAttr("fix_seed", a.dropout.op->GetAttr<bool>("fix_seed", false));
      op.SetAttr("seed", a.dropout.op->GetAttr<int32_t>("seed", 0));
      op.SetAttr("random_name", matcher_.Original(Only(a.dropout.op->Output("Out"))));
    }
    const std::string out = Only(a.out());
    if (a.trains()) {
      op.SetOutput("SoftmaxStats", {block_.program().FreeName(out + "@SOFTMAX_STATS")});
      op.SetOutput("Weights", {block_.program().FreeName(out + "@WEIGHTS")});
      if (a.dropout) op.SetOutput("SeedOffset", {block_.program().FreeName(out + "@SEED_OFFSET")});
    }
    if (matcher_.Original(out) != out)
      op.SetAttr(kRecomputedFromAttr, std::vector<std::string>{matcher_.Original(out)});
    CopyCommonAttrs(*a.mix.op, op);
    InferOp(block_, op, context_.ops);
    return op;
  }

  OpDesc Backward(const Attention& a, const OpDesc& forward) {
    // The gradients' own names of the operands may be those of recomputed copies.
    OpDesc op(std::string(kAttention) + "_grad",
              a.turned() || a.joint() ? Inputs(a, a.q(), a.k(), a.v())
                                      : Inputs(a, a.match.grad->Input("X"),
                                               a.match.grad->Input("Y"), a.mix.grad->Input("Y")),
              {}, Attrs(a));
    op.SetInput("Out", forward.Output("Out"));
    for (const char* slot : {"SoftmaxStats", "Weights", "SeedOffset"}) {
      if (forward.HasOutput(slot)) op.SetInput(slot, forward.Output(slot));
    }
    op.SetInput("Out@GRAD", a.dout());
    const auto pass = [&](const char* slot, const std::vector<std::string>& to) {
      if (!Only(to).empty()) op.SetOutput(slot, to);
    };
    pass("Q@GRAD", a.dq());
    pass("K@GRAD", a.dk());
    pass("V@GRAD", a.dv());
    CopyCommonAttrs(*a.match.grad, op);
    return op;
  }

 private:
  using Args = std::vector<std::string>;
  static SlotList Inputs(const Attention& a, const Args& q, const Args& k, const Args& v) {
    SlotList inputs = {{"Q", q}};
    if (!a.joint()) inputs.insert(inputs.end(), {{"K", k}, {"V", v}});
    if (a.add) inputs.push_back({"Mask", a.add.op->Input("Y")});
    return inputs;
  }
  static AttrList Attrs(const Attention& a) {
    float scale = AlphaOf(*a.match.op);
    for (const Link& link : {a.scale_q, a.scale}) {
      if (link) scale *= link.op->GetAttr<float>("scale", 1.0f);
    }
    AttrList attrs = {{"scale", scale},
                      {"layout", std::string(a.layout())},
                      {"keeps_lod", !a.turned() && !a.joint()}};
    if (!a.dropout) return attrs;
    const auto [probability, is_test, way] = DropoutAttrs(*a.dropout.op);
    attrs.push_back({"dropout_prob", probability});
    attrs.push_back({"is_test", is_test});
    attrs.push_back({"dropout_implementation", way});
    return attrs;
  }
  static void CopyCommonAttrs(const OpDesc& from, OpDesc& to) {
    for (const char* name :
         {kOpRoleAttr, kOpNamescopeAttr, kOpCallstackAttr, kOpDeviceAttr, kForwardOpAttr}) {
      if (const Attribute* attr = from.FindAttr(name)) to.SetAttr(name, *attr);
    }
  }

  BlockDesc& block_;
  const PassContext& context_;
  const Matcher& matcher_;
};

}  // namespace

void FuseAttention(ProgramDesc& program, const PassContext& context) {
  BlockDesc& block = program.Root();
  const Matcher matcher(block, context);
  const Finder finder(block, context, matcher);
  // A softmax and the ops that compute it again are fused alike, or their bits would differ.
  std::map<std::string, size_t> softmaxes;
  std::map<std::string, std::vector<Attention>> found;
  block.ForEachOp([&](OpDesc& op) {
    if (op.type() != "softmax") return;
    const std::string original = matcher.Original(Only(op.Output("Out")));
    ++softmaxes[original];
    if (const std::optional<Attention> attention = finder.Around(op))
      found[original].push_back(*attention);
  });
  Rewrites rewrites(block);
  Writing writing(block, context, matcher);
  for (const auto& [original, copies] : found) {
    if (copies.size() != softmaxes[original]) continue;
    for (const Attention& a : copies) {
      const OpDesc forward = writing.Forward(a);
      rewrites.Replace(a.Forward(), *finder.PlaceFor(a.Forward()), {forward});
      if (!a.trains()) continue;
      rewrites.Replace(a.Backward(), *finder.PlaceFor(a.Backward()),
                       {writing.Backward(a, forward)});
    }
  }
  rewrites.Apply();
}

}  // namespace coracle
