// Computes the elementwise ops after a convolution while its sums are in registers or in the cache:
//   y = act(conv(x, w) + bias + residual)

#include <coracle/operators/conv/conv_activation.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

namespace coracle::inline internal {
namespace {

// The sum with its operands in either order.
const Pattern& Sum(bool product_first) {
  static const std::string conv = R"(
    conv: Output=product = conv2d|depthwise_conv2d|conv3d(Input=x, Filter=w, Bias=bias?))";
  static const Pattern first(conv + R"(
    add:  Out=y = elementwise_add(X=product, Y=residual))");
  static const Pattern second(conv + R"(
    add:  Out=y = elementwise_add(X=residual, Y=product))");
  return product_first ? first : second;
}

const Pattern& Activated() {
  static const Pattern pattern(R"(
    conv: Output=product = conv2d|depthwise_conv2d|conv3d|conv2d_transpose|
          depthwise_conv2d_transpose|conv3d_transpose(
          Input=x, Filter=w, Bias=bias?, ResidualData=residual?)
    act:  Out=y = relu|relu6|leaky_relu|hard_swish|hard_sigmoid|swish|sigmoid|tanh|gelu|clip(
          X=product))");
  return pattern;
}

class EpilogueFuser {
 public:
  EpilogueFuser(ProgramDesc& program, const PassContext& context)
      : block_(program.Root()), context_(context), recomputed_(program) {}

  void Run() {
    for (const bool product_first : {true, false}) {
      ForEach(Sum(product_first), [&](const Match& m, OpDesc& conv) {
        if (!IsResidual(m) || (!product_first && LodRoot(m["residual"]) != LodRoot(m["x"])))
          return false;
        conv.SetInput("ResidualData", {m["residual"]});
        return true;
      });
    }
    ForEach(Activated(), [&](const Match& m, OpDesc& conv) {
      const std::optional<AttrList> attrs = FusedAttrsOf(m.op("act"));
      for (const NamedAttr& attr : attrs.value_or(AttrList())) conv.SetAttr(attr.name, attr.value);
      return attrs.has_value();
    });
  }

 private:
  // Replaces each match for which `fuse` completes a convolution.
  template <class F>
  void ForEach(const Pattern& pattern, F&& fuse) {
    const Matcher matcher(block_, context_);
    Rewrites rewrites(block_);
    for (const Match& m : matcher.FindAll(pattern)) {
      OpDesc conv = m.op("conv");
      if (!conv.GetAttr<std::string>("fuse_activation", "").empty()) continue;
      if (!IsReal(m["product"]) || !IsReal(m["y"])) continue;
      if (IsRecomputed(m["product"]) || IsRecomputed(m["y"])) continue;
      if (!fuse(m, conv)) continue;
      conv.SetOutput("Output", {m["y"]});
      rewrites.Replace(m, {conv});
    }
    rewrites.Apply();
  }

  // An original and its recomputed copy must have the same bits, so neither is fused.
  bool IsRecomputed(const std::string& written_once) const {
    return recomputed_.Contain(*block_.Uses(written_once).writers[0]);
  }

  // For bfloat16, the sums are rounded only once, at the end, which is more exact. For float16, the
  // single ops may overflow and the result must stay the same, so float16 is excluded.
  bool IsReal(const std::string& name) const {
    const std::optional<DType> dtype = DTypeOfTensor(block_, name);
    return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kBFloat16;
  }

  // Whether the shapes are equal as far as they are known. (If they differ in a run because one
  // operand is broadcast, the convolution's ResidualData is broadcast too.)
  bool IsResidual(const Match& m) const {
    const Shape& sums = block_.FindVarRecursive(m["product"])->shape();
    const VarDesc* residual = block_.FindVarRecursive(m["residual"]);
    if (!IsReal(m["residual"]) || residual->shape().rank() != sums.rank()) return false;
    for (int i = 0; i < sums.rank(); ++i) {
      const int64_t a = sums[i], b = residual->shape()[i];
      if (a != b && (a >= 0 || b == 1) && (b >= 0 || a == 1)) return false;
    }
    const auto axis = m.op("add").GetAttr<int32_t>("axis", -1);
    return axis == -1 || axis == 0;
  }

  // The variable from which the value gets its LoD, through ops on images and elements. The output
  // of a convolution has the LoD of Input, a sum has the LoD of X.
  std::string LodRoot(std::string name) const {
    for (size_t steps = 0; steps < block_.NumOps(); ++steps) {
      const auto writers = block_.Uses(name).writers;
      if (writers.size() != 1) break;
      const OpSpec* spec = context_.ops.Find(writers[0]->type());
      if (!spec || (spec->layout_attr.empty() && !spec->elementwise)) break;
      const std::string* source = nullptr;
      writers[0]->ForEachOutput([&](const std::string& out, const std::string& slot) {
        if (out == name) source = spec->LodSource(*writers[0], slot, 0);
      });
      if (!source || !SameRows(name, *source)) break;
      name = *source;
    }
    return name;
  }

  bool SameRows(const std::string& a, const std::string& b) const {
    const VarDesc *x = block_.FindVarRecursive(a), *y = block_.FindVarRecursive(b);
    return x && y && x->shape().rank() > 0 && y->shape().rank() > 0 &&
           x->shape()[0] == y->shape()[0];
  }

  BlockDesc& block_;
  const PassContext& context_;
  const RecomputedOps recomputed_;
};

}  // namespace

void FuseConvEpilogue(ProgramDesc& program, const PassContext& context) {
  EpilogueFuser(program, context).Run();
}

}  // namespace coracle::inline internal
