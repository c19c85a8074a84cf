// In training, fuses y = relu(batch_norm(x)) and y = relu(batch_norm(x) + z), and, independently,
// their gradients: relu_grad, elementwise_add_grad and batch_norm_grad read only y, x and the saved
// statistics, so no op but the forward ops needs the values between x and y.

#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/freeze.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>

#include <algorithm>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

const std::vector<Pattern>& Forward() {
  // MeanOut and VarianceOut are Mean and Variance.
  static const std::string norm = R"(
    norm: Y=u, ... = batch_norm(X=x, Scale=scale, Bias=bias, ...))";
  static const std::vector<Pattern> patterns = {
      Pattern(norm + "act: Out=y = relu(X=u)"),
      Pattern(norm + "add: Out=s = elementwise_add(X=u, Y=z) act: Out=y = relu(X=s)"),
      Pattern(norm + "add: Out=s = elementwise_add(X=z, Y=u) act: Out=y = relu(X=s)")};
  return patterns;
}

const std::vector<Pattern>& Gradient() {
  static const std::string norm_grad = R"(
    norm: ... = batch_norm_grad(X=x, Scale=scale, Mean=mean?, Variance=variance?, SavedMean=saved_mean,
          SavedVariance=saved_variance, Y@GRAD=du))";
  static const std::vector<Pattern> patterns = {
      Pattern("act: X@GRAD=du = relu_grad(Out=y, Out@GRAD=dy)" + norm_grad), Pattern(R"(
    act: X@GRAD=ds = relu_grad(Out=y, Out@GRAD=dy)
    add: X@GRAD=du, Y@GRAD=dz? = elementwise_add_grad(X=u?, Y=z?, Out@GRAD=ds))" + norm_grad),
      Pattern(R"(
    act: X@GRAD=ds = relu_grad(Out=y, Out@GRAD=dy)
    add: X@GRAD=dz?, Y@GRAD=du = elementwise_add_grad(X=z?, Y=u?, Out@GRAD=ds))" +
              norm_grad)};
  return patterns;
}

// Makes the fused op with the attrs of batch_norm, except those that it does not have.
OpDesc MakeFused(const OpDesc& norm, const std::string& type) {
  OpDesc fused = norm;
  fused.SetType(type);
  fused.SetAttr("data_layout", norm.GetAttr<std::string>("data_layout", "NCHW"));
  for (const char* attr : {"is_test", "use_global_stats", "trainable_statistics"})
    fused.RemoveAttr(attr);
  return fused;
}

int32_t AxisOf(const Match& m) { return m.op("add").GetAttr<int32_t>("axis", -1); }

bool HaveSame(const char* attr, const OpDesc& a, const OpDesc& b) {
  const Attribute *x = a.FindAttr(attr), *y = b.FindAttr(attr);
  return x && y && *x == *y;
}

// If the fused op recomputes something, sets the originals of its own outputs.
void SetOriginals(const Match& m, OpDesc& fused) {
  const auto of = [](const OpDesc& op) {
    return op.GetAttr<std::vector<std::string>>(kRecomputedFromAttr, {});
  };
  const std::vector<std::string> y = of(m.op("act"));
  std::vector<std::string> from = of(m.op("norm"));
  if (y.size() != 1) return fused.RemoveAttr(kRecomputedFromAttr);
  size_t at = 0;
  ForEachPosition(fused.outputs(), [&](const std::string&, const std::string& slot) {
    if (slot == "Y" && at < from.size()) from[at] = y[0];
    ++at;
  });
  if (!from.empty()) fused.SetAttr(kRecomputedFromAttr, std::move(from));
}

bool IsImage(const OpSpec& spec, const OpDesc& op, const std::string& source,
             const std::string& output) {
  const auto listed = [&](const std::string& slot) {
    return std::find(spec.layout_slots.begin(), spec.layout_slots.end(), slot) !=
           spec.layout_slots.end();
  };
  return listed(output) && op.AnyInput([&](const std::string& name, const std::string& slot) {
    return name == source && listed(slot);
  });
}

class BatchNormFuser {
 public:
  BatchNormFuser(ProgramDesc& program, const PassContext& context)
      : context_(context), block_(program.Root()) {}

  // Fuses the gradients first, because elementwise_add_grad may read the shape of
  // batch_norm's result.
  void Run() {
    Fuse(Gradient(), [&](const Match& match) { return FusedGradient(match); });
    Fuse(Forward(), [&](const Match& match) { return FusedForward(match); });
  }

 private:
  template <class Make>
  void Fuse(const std::vector<Pattern>& patterns, Make&& make) {
    matcher_.emplace(block_, context_);
    Rewrites rewrites(block_);
    std::unordered_set<const OpDesc*> taken;  // if two batch_norms are added, one takes the sum
    for (const Pattern& pattern : patterns) {
      for (const Match& match : matcher_->FindAll(pattern)) {
        const bool sum = &pattern != &patterns[0];
        if (taken.count(&match.op("act")) || !HasKernelType(match) ||
            HasFixedStatistics(match.op("norm")) || (sum && AxisOf(match) != -1))
          continue;
        if (const std::optional<OpDesc> fused = make(match)) {
          rewrites.Replace(match, {*fused});
          taken.insert(&match.op("act"));
        }
      }
    }
    rewrites.Apply();
  }

  // float16 is excluded: values between the ops may be rounded to 0, and the mask of the gradients
  // depends on them. bfloat16 has the range of float32, so rounding keeps the sign.
  bool HasKernelType(const Match& m) const {
    const VarDesc* x = block_.FindVarRecursive(m["x"]);
    return x && (x->dtype() == DType::kFloat32 || x->dtype() == DType::kFloat64 ||
                 x->dtype() == DType::kBFloat16);
  }

  std::optional<OpDesc> FusedForward(const Match& m) const {
    const bool sum = m.Has("z");
    if (m.op("norm").HasInput("MomentumTensor")) return std::nullopt;
    // The sum has the LoD of its X, but the fused op has the LoD of batch_norm's X.
    if (sum && m.op("add").Input("X")[0] == m["z"] && !HaveOneLod(m)) return std::nullopt;
    OpDesc fused =
        MakeFused(m.op("norm"), sum ? "fused_bn_add_activation" : "fused_batch_norm_act");
    if (sum) fused.SetInput("Z", {m["z"]});
    fused.SetOutput("Y", {m["y"]});
    SetOriginals(m, fused);
    return fused;
  }

  std::optional<OpDesc> FusedGradient(const Match& m) const {
    const bool sum = m.Has("ds");
    OpDesc fused =
        MakeFused(m.op("norm"), sum ? "fused_bn_add_activation_grad" : "fused_batch_norm_act_grad");
    fused.RemoveInput("Mean");
    fused.RemoveInput("Variance");
    fused.SetInput("Y", {m["y"]});
    fused.SetInput("Y@GRAD", {m["dy"]});
    if (m.Has("z")) fused.SetInput("Z", {OfSameShape(m["z"], m.op("add"))});
    if (m.Has("dz")) fused.SetOutput("Z@GRAD", {m["dz"]});
    const OpDesc* forward = sum ? nullptr : ForwardNorm(m);
    if (forward) {
      fused.SetInput("Bias", forward->Input("Bias"));
      fused.SetAttr("mask_from_x", true);
    }
    return fused;
  }

  // The batch_norm whose result became y; nullptr unless the gradient certainly reads the values
  // that it read and wrote.
  const OpDesc* ForwardNorm(const Match& m) const {
    const OpDesc &act_grad = m.op("act"), &norm_grad = m.op("norm");
    const OpDesc* act = matcher_->WriterBefore(m["y"], act_grad);
    if (!act || act->type() != "relu") return nullptr;
    const OpDesc* norm = matcher_->WriterBefore(act->Input("X")[0], *act);
    if (!norm || norm->type() != "batch_norm" || HasFixedStatistics(*norm)) return nullptr;
    for (const char* slot : {"X", "Scale"})
      if (norm->Input(slot) != norm_grad.Input(slot)) return nullptr;
    for (const char* slot : {"SavedMean", "SavedVariance"}) {
      if (norm->Output(slot) != norm_grad.Input(slot)) return nullptr;
      if (matcher_->WriterBefore(norm_grad.Input(slot)[0], norm_grad) != norm) return nullptr;
    }
    for (const char* attr : {"epsilon", "data_layout"})
      if (!HaveSame(attr, *norm, norm_grad)) return nullptr;
    for (const char* slot : {"X", "Scale", "Bias"})
      if (IsWrittenBetween(norm->Input(slot)[0], *norm, norm_grad)) return nullptr;
    return norm;
  }
  bool IsWrittenBetween(const std::string& var, const OpDesc& first, const OpDesc& last) const {
    const auto writers = block_.Uses(var).writers;
    return context_.captured.count(var) > 0 ||
           std::any_of(writers.begin(), writers.end(), [&](const OpDesc* op) {
             return block_.IndexOf(*op) >= block_.IndexOf(first) &&
                    block_.IndexOf(*op) <= block_.IndexOf(last);
           });
  }

  // A variable with the shape of z, which is all that the gradient needs. batch_norm's input has
  // that shape and is kept for the gradient of that batch_norm, so z need not be kept.
  std::string OfSameShape(const std::string& z, const OpDesc& reader) const {
    const OpDesc* norm = matcher_->WriterBefore(z, reader);
    if (!norm || norm->type() != "batch_norm" || norm->Output("Y") != std::vector{z}) return z;
    const std::string& x = norm->Input("X")[0];
    return matcher_->WriterBefore(x, *norm) ? x : z;
  }

  // The variables from which an image that `reader` reads got its LoD, itself first, through ops
  // that make as many images as they read, or that repeat a single one. Stops after kLongest steps:
  // blocks of residual nets are short, but programs may be long.
  std::vector<std::string> LodPath(const std::string& image, const OpDesc& reader) const {
    constexpr size_t kLongest = 64;
    std::vector<std::string> path;
    std::string var = image;
    const OpDesc* writer = &reader;
    while (path.size() < kLongest) {
      const OpDesc* next = matcher_->WriterBefore(var, *writer);
      // For a variable with several values, it is unknown which one this is.
      if (next || (block_.Uses(var).writers.empty() && !context_.captured.count(var)))
        path.push_back(var);
      const OpSpec* spec = next ? context_.ops.Find(next->type()) : nullptr;
      if (!spec) break;
      std::string output;
      next->ForEachOutput([&](const std::string& name, const std::string& slot) {
        if (name == var) output = slot;
      });
      const std::string* source = spec->LodSource(*next, output, 0);
      if (!source || !(spec->elementwise || IsImage(*spec, *next, *source, output))) break;
      var = *source;
      writer = next;
    }
    return path;
  }
  bool HaveOneLod(const Match& m) const {
    const std::vector<std::string> x = LodPath(m["x"], m.op("norm"));
    const std::vector<std::string> z = LodPath(m["z"], m.op("add"));
    return std::find_first_of(x.begin(), x.end(), z.begin(), z.end()) != x.end();
  }

  const PassContext& context_;
  BlockDesc& block_;
  std::optional<Matcher> matcher_;
};

}  // namespace

void FuseBatchNormActivation(ProgramDesc& program, const PassContext& context) {
  BatchNormFuser(program, context).Run();
}

}  // namespace coracle::inline internal
