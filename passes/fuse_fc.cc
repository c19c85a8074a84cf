// Fuses a product with a parameter matrix, the addition of a bias and an activation into one fc,
// which returns the sum if the activation's gradient reads it. Fuses the gradients of product,
// addition and relu, gelu or swish into one fc_gradients.

#include <coracle/framework/op/check/flow_types.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>
#include <coracle/passes/value_flow.h>

#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

namespace coracle::inline internal {
namespace {

const std::string kProduct = R"(
    product: Out=product = mul|matmul|matmul_v2(X=x, Y=w)
    add:     Out=sum     = elementwise_add(X=product, Y=bias))";
const std::string kActivation = R"(
    act:     Out=y       = relu|relu6|sigmoid|tanh|gelu|swish|silu|hard_swish(X=sum))";
const std::string kProductGrad = R"(
    add_grad:     X@GRAD=dproduct, Y@GRAD=dbias? = elementwise_add_grad(
                  Out@GRAD=dsum, Y=bias, ...)
    product_grad: X@GRAD=dx?, Y@GRAD=dw? = mul_grad|matmul_grad|matmul_v2_grad(
                  X=x, Y=w, Out@GRAD=dproduct))";
const std::string kReluGrad = R"(
    act_grad:     X@GRAD=dsum = relu_grad(Out=y, Out@GRAD=dy))";
const std::string kGradFromSum = R"(
    act_grad:     X@GRAD=dsum = gelu_grad|swish_grad|silu_grad(X=sum, Out@GRAD=dy))";

bool HasFloats(const OpDesc& op, std::initializer_list<std::pair<const char*, float>> values) {
  for (const auto& [name, value] : values) {
    if (op.GetAttr<float>(name, value) != value) return false;
  }
  return true;
}

// The name of the activation in fc; nothing if fc does not support its attrs.
std::optional<std::string> ActivationOf(const OpDesc& op) {
  std::string type = op.type();
  if (type.ends_with("_grad")) type.resize(type.size() - 5);
  bool fits = true;
  if (type == "gelu") return op.GetAttr<bool>("approximate", false) ? "gelu_tanh" : "gelu";
  if (type == "relu6") fits = HasFloats(op, {{"threshold", 6}});
  if (type == "swish") fits = HasFloats(op, {{"beta", 1}});
  if (type == "hard_swish") fits = HasFloats(op, {{"threshold", 6}, {"scale", 6}, {"offset", 3}});
  if (!fits) return std::nullopt;
  return type == "silu" ? "swish" : type;
}

bool IsMul(const OpDesc& product) { return product.type().rfind("mul", 0) == 0; }

// Whether it is a product of rows with an untransposed matrix.
bool IsPlain(const OpDesc& product) {
  if (IsMul(product)) return product.GetAttr<int32_t>("y_num_col_dims", 1) == 1;
  const bool second = product.type().rfind("matmul_v2", 0) == 0;
  return !product.GetAttr<bool>(second ? "trans_x" : "transpose_X", false) &&
         !product.GetAttr<bool>(second ? "trans_y" : "transpose_Y", false) &&
         product.GetAttr<float>("alpha", 1.0f) == 1.0f &&
         product.GetAttr<int32_t>("head_number", 1) == 1;
}

// The number of leading dims of X that are rows. For matmul, these are all dims but the last.
int32_t RowDims(const OpDesc& product) {
  return IsMul(product) ? product.GetAttr<int32_t>("x_num_col_dims", 1) : -1;
}

class FcFuser {
 public:
  FcFuser(ProgramDesc& program, const PassContext& context)
      : block_(program.Root()),
        ops_(context.ops),
        matcher_(program.Root(), context),
        flow_(program, context),
        rewrites_(program.Root()) {}

  void Run() {
    static const Pattern with_activation(kProduct + kActivation), plain(kProduct);
    static const Pattern relu_grad(kReluGrad + kProductGrad), plain_grad(kProductGrad);
    static const Pattern grad_from_sum(kGradFromSum + kProductGrad);
    for (const Match& m : matcher_.FindAll(with_activation)) {
      const auto activation = ActivationOf(m.op("act"));
      if (!activation || !IsLayer(m)) continue;
      Replace(m, m.op("act"), *activation);
    }
    for (const Match& m : matcher_.FindAll(plain)) {
      if (done_.count(&m.op("add")) > 0 || !IsLayer(m)) continue;
      if (!ReplaceWithActivation(m)) Replace(m, m.op("add"), "");
    }
    for (const Match& m : matcher_.FindAll(relu_grad)) {
      if (IsLayerGradient(m)) ReplaceGradient(m, "relu");
    }
    for (const Match& m : matcher_.FindAll(grad_from_sum)) {
      const auto activation = ActivationOf(m.op("act_grad"));
      if (activation && IsLayerGradient(m)) ReplaceGradient(m, *activation);
    }
    for (const Match& m : matcher_.FindAll(plain_grad)) {
      if (done_.count(&m.op("add_grad")) == 0 && IsLayerGradient(m)) ReplaceGradient(m, "");
    }
    rewrites_.Apply();
  }

 private:
  // Whether the weight is a matrix of floats and the bias has one number for each of its columns.
  bool AreParameters(const Match& m) const {
    const VarDesc *w = block_.FindVarRecursive(m["w"]), *bias = block_.FindVarRecursive(m["bias"]);
    const VarDesc* x = block_.FindVarRecursive(m["x"]);
    if (!w || !bias || !x || !bias->persistable()) return false;
    if (!w->persistable() && !IsQuantizedWeight(m["w"])) return false;
    const DType dtype = w->dtype();
    return (dtype == DType::kFloat32 || dtype == DType::kFloat64) && bias->dtype() == dtype &&
           x->dtype() == dtype && w->shape().rank() == 2 && w->shape()[0] > 0 &&
           w->shape()[1] > 0 && bias->shape().rank() == 1 && bias->shape()[0] == w->shape()[1];
  }

  // Whether it is made of frozen integers, which fuse_quantized or fold_dequantized will use.
  bool IsQuantizedWeight(const std::string& w) const {
    const auto writers = block_.Uses(w).writers;
    return writers.size() == 1 && writers[0]->type() == "affine_dequantize" &&
           writers[0]->Input("X").size() == 1 && matcher_.Constant(writers[0]->Input("X")[0]);
  }

  // Whether the bias is added along the last axis of the product for all feeds.
  bool IsAlongLast(const Match& m, const OpDesc& product, const OpDesc& add) const {
    const int32_t axis = add.GetAttr<int32_t>("axis", -1);
    const Shape* x = matcher_.ShapeOf(m["x"]);
    if (!x || x->rank() < 2) return false;
    if (axis == -1) return true;
    return axis == (IsMul(product) ? RowDims(product) : flow_.CertainRank(m["x"]) - 1);
  }

  bool IsLayer(const Match& m) const {
    return AreParameters(m) && IsPlain(m.op("product")) &&
           IsAlongLast(m, m.op("product"), m.op("add"));
  }
  bool IsLayerGradient(const Match& m) const {
    return AreParameters(m) && IsPlain(m.op("product_grad")) &&
           IsAlongLast(m, m.op("product_grad"), m.op("add_grad"));
  }

  // The attrs that every op may carry come from `like`.
  static OpDesc Made(const char* type, SlotList inputs, SlotList outputs, const OpDesc& product,
                     const OpDesc& like, const std::string& activation) {
    OpDesc made(type, std::move(inputs), std::move(outputs),
                {{"in_num_col_dims", RowDims(product)}, {"activation_type", activation}});
    CopyRemarks(like, made);
    if (const Attribute* from = like.FindAttr(kRecomputedFromAttr))
      made.SetAttr(kRecomputedFromAttr, *from);
    return made;
  }

  // Whether the op accepts its inputs, whose types may differ from the declared ones.
  bool Accepts(const OpDesc& made) {
    if (!types_) {
      types_.emplace(block_);
      InferAll(block_, ops_, *types_);
    }
    return types_->Infer(ops_.Get(made.type()), made);
  }

  void Replace(const Match& m, const OpDesc& last, const std::string& activation) {
    const OpDesc fc = Made("fc", {{"Input", {m["x"]}}, {"W", {m["w"]}}, {"Bias", {m["bias"]}}},
                           {{"Out", last.Output("Out")}}, m.op("product"), last, activation);
    if (!Accepts(fc)) return;
    done_.insert(&m.op("add"));
    rewrites_.Replace(m, {fc});
  }

  // Also fuses an activation after it; if its gradient reads the sum, the fc returns that.
  bool ReplaceWithActivation(const Match& m) {
    const std::string& sum = m["sum"];
    const OpDesc &product = m.op("product"), &add = m.op("add");
    const OpDesc* act = nullptr;
    bool trains = false;
    for (const OpDesc* reader : block_.Uses(sum).readers) {
      const std::string& type = reader->type();
      if (type == "gelu" || type == "swish" || type == "silu") {
        if (act) return false;
        act = reader;
      }
      trains |= type == "gelu_grad" || type == "swish_grad" || type == "silu_grad";
    }
    const auto activation = act && trains ? ActivationOf(*act) : std::nullopt;
    if (!activation || IsCopy(add) != IsCopy(*act) || IsCopy(add) != IsCopy(product)) return false;
    const std::vector<const OpDesc*> ops = {&product, &add, act};
    const std::string& y = act->Output("Out")[0];
    if (!matcher_.IsWrittenOnce(y) || !matcher_.MayRunAt(ops, *act) ||
        block_.IndexOf(*act) < block_.IndexOf(add))
      return false;
    OpDesc fc = Made("fc", {{"Input", {m["x"]}}, {"W", {m["w"]}}, {"Bias", {m["bias"]}}},
                     {{"Out", {y}}, {"Z", {sum}}}, product, *act, *activation);
    if (IsCopy(add))
      fc.SetAttr(kRecomputedFromAttr,
                 std::vector<std::string>{matcher_.Original(y), matcher_.Original(sum)});
    if (!Accepts(fc)) return false;
    rewrites_.Replace(ops, *act, {fc});
    return true;
  }
  static bool IsCopy(const OpDesc& op) { return op.FindAttr(kRecomputedFromAttr) != nullptr; }

  void ReplaceGradient(const Match& m, const std::string& activation) {
    SlotList inputs = {{"Input", {m["x"]}}, {"W", {m["w"]}}, {"Bias", {m["bias"]}}}, outputs;
    if (m.Has("y")) inputs.push_back({"Out", {m["y"]}});
    if (m.Has("sum")) inputs.push_back({"Z", {m["sum"]}});
    inputs.push_back({"Out@GRAD", {m[activation.empty() ? "dsum" : "dy"]}});
    const std::array<std::pair<const char*, const char*>, 3> slots = {
        {{"Input@GRAD", "dx"}, {"W@GRAD", "dw"}, {"Bias@GRAD", "dbias"}}};
    for (const auto& [slot, name] : slots) {
      if (m.Has(name)) outputs.push_back({slot, {m[name]}});
    }
    if (!activation.empty()) outputs.push_back({"Z@GRAD", {m["dsum"]}});
    const OpDesc& last = m.op("product_grad");
    const OpDesc gradients = Made("fc_gradients", inputs, outputs, last, last, activation);
    if (!Accepts(gradients)) return;
    done_.insert(&m.op("add_grad"));
    rewrites_.Replace(m, {gradients});
  }

  BlockDesc& block_;
  const OpRegistry& ops_;
  Matcher matcher_;
  const ValueFlow flow_;
  std::optional<FlowTypes> types_;
  Rewrites rewrites_;
  std::unordered_set<const OpDesc*> done_;  // replaced additions and gradients of additions
};

}  // namespace

void FuseFc(ProgramDesc& program, const PassContext& context) { FcFuser(program, context).Run(); }

}  // namespace coracle::inline internal
