// Lets layers of an inference program compute in bfloat16. Runs after the fusions, so a layer has
// its bias, residual and activation, and its weight the scales of a batch_norm.
//
// Convolutions read and write bfloat16; between them, elementwise ops and ops on images do, too. A
// product only gets a weight of bfloat16: its kernel rounds the rows that it reads, and adds bias
// and activation to float32 sums.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/flow_types.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/passes/half_rewrite.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>

namespace coracle::inline internal {
namespace {

// Whether rounding keeps finite numbers finite: numbers above 3.39e38 become infinite.
bool StaysFinite(const Tensor& wide, const Tensor& half) {
  const std::span<const float> from = wide.span<float>();
  const std::span<const bfloat16> to = half.span<bfloat16>();
  for (size_t i = 0; i < from.size(); ++i) {
    if (std::isfinite(from[i]) && !std::isfinite(static_cast<float>(to[i]))) return false;
  }
  return true;
}

bool IsOne(const OpDesc& op, std::string_view slot) {
  return !OnlyVariable(op.Input(slot)).empty();
}

// Whether it multiplies rows by the matrix as it is.
bool IsPlain(const OpDesc& op) {
  if (op.type() == "mul") return op.GetAttr<int32_t>("y_num_col_dims", 1) == 1;
  const bool second = op.type() == "matmul_v2";
  return !op.GetAttr<bool>(second ? "trans_x" : "transpose_X", false) &&
         !op.GetAttr<bool>(second ? "trans_y" : "transpose_Y", false) &&
         op.GetAttr<float>("alpha", 1.0f) == 1.0f && op.GetAttr<int32_t>("head_number", 1) == 1;
}

// The product as an fc with a frozen float32 matrix that is large enough; nothing otherwise.
std::optional<OpDesc> AsFc(const OpDesc& op, const BlockDesc& block, const PassContext& context) {
  const bool fc = op.type() == "fc";
  const char *x = fc ? "Input" : "X", *w = fc ? "W" : "Y";
  if (!fc && op.type() != "mul" && op.type() != "matmul" && op.type() != "matmul_v2") return {};
  if (!IsOne(op, x) || !IsOne(op, w)) return {};
  const Tensor* weight = context.FrozenValue(op.Input(w)[0]);
  const VarDesc* data = block.FindVarRecursive(op.Input(x)[0]);
  if (!weight || weight->dtype() != DType::kFloat32 || weight->shape().rank() != 2) return {};
  if (!data || data->dtype() != DType::kFloat32 || context.FrozenValue(op.Input(x)[0])) return {};
  constexpr int64_t kFewest = 4096;  // elements; smaller products take the same time
  if (weight->numel() < kFewest) return {};
  if (fc) {
    const bool plain = !op.GetAttr<bool>("padding_weights", false) && op.Output("Z").empty();
    return plain ? std::optional(op) : std::nullopt;
  }
  if (op.Output("Out").size() != 1 || !IsPlain(op) || data->shape().rank() < 2) return {};
  const int32_t rows = op.type() == "mul" ? op.GetAttr<int32_t>("x_num_col_dims", 1) : -1;
  OpDesc made("fc", {{"Input", op.Input(x)}, {"W", op.Input(w)}}, {{"Out", op.Output("Out")}},
              {{"in_num_col_dims", rows}});
  CopyRemarks(op, made);
  return made;
}

// The casts get the origins of the ops that they convert for.
void SetCastOrigins(BlockDesc& block) {
  const OpDesc* before = nullptr;
  for (size_t i = 0; i < block.NumOps(); ++i) {
    OpDesc& op = block.op(i);
    if (op.type() != "cast" || op.HasAttr(kOpOriginAttr)) {
      before = &op;
      continue;
    }
    const OpDesc* from = before && before->Writes(op.Input("X")[0]) ? before : nullptr;
    for (size_t j = i + 1; !from && j < block.NumOps(); ++j)
      if (block.op(j).Reads(op.Output("Out")[0])) from = &block.op(j);
    if (from) AddOrigins(*from, op);
  }
}

class BFloat16User {
 public:
  BFloat16User(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()) {}

  void Run() {
    RewriteConvolutions();
    NarrowProducts();  // last: rewriting would widen its weights
  }

 private:
  // --- products ---

  void NarrowProducts() {
    ValueFlow flow(program_, context_);
    std::unordered_set<std::string> wide;
    block_.ForEachOp([&](OpDesc& op) {
      std::optional<OpDesc> made = AsFc(op, block_, context_);
      if (!made || IsKept(op) || flow.IsRecomputed(op)) return;
      const std::string w = made->Input("W")[0], half = HalfOf(w);
      if (half.empty()) return;
      made->SetInput("W", {half});
      wide.insert(w);
      flow.Replace(op, std::move(*made));
    });
    flow.Apply();
    for (const std::string& w : wide) {
      if (block_.Uses(w).readers.empty() && !context_.captured.count(w)) context_.ReleaseFrozen(w);
    }
  }

  // The weight in bfloat16; "" if that would not be finite.
  const std::string& HalfOf(const std::string& w) {
    const auto [it, added] = halves_.try_emplace(w);
    if (!added) return it->second;
    const Tensor& wide = *context_.FrozenValue(w);
    Tensor half = wide.Cast(DType::kBFloat16);
    if (!StaysFinite(wide, half)) return it->second;
    it->second = context_.AddFrozenForm(program_, w, ".cast_bf16", std::move(half));
    return it->second;
  }

  // --- convolutions ---

  void RewriteConvolutions() {
    HalfRewriteOptions options{&context_.ops};
    const std::unordered_set<const OpDesc*> low = LowOps();
    if (low.empty()) return;
    options.white = {"conv2d"};
    options.sub_blocks = false;
    options.float32_vars.assign(context_.fetches.begin(), context_.fetches.end());
    for (const auto* names : {&context_.feeds, &context_.captured})
      options.float32_vars.insert(options.float32_vars.end(), names->begin(), names->end());
    options.keeps_float = [&](const OpDesc& op) { return low.count(&op) == 0; };
    options.note_made = [&](const std::string& made, const std::string& from) {
      context_.NoteMade(made, from);
    };
    const auto biases = RemoveBiases();
    RewriteForHalves(program_, options);
    for (const auto& [op, bias] : biases) op->SetInput("Bias", {bias});
    SetCastOrigins(block_);
    FoldConstants(program_, context_);  // weights
  }

  // The convolutions that compute in bfloat16, and the ops between them. An op whose results reach
  // no such convolution would only round them.
  std::unordered_set<const OpDesc*> LowOps() const {
    std::unordered_set<const OpDesc*> low;
    std::unordered_set<std::string> read_low;  // by convolutions of `low` or ops before them
    for (size_t i = block_.NumOps(); i-- > 0;) {
      const OpDesc& op = block_.op(i);
      const bool reaches =
          op.AnyOutput([&](const std::string& name) { return read_low.count(name) > 0; });
      if (!(IsNarrow(op) && (Pays(op) || reaches)) && !(reaches && Follows(op))) continue;
      low.insert(&op);
      op.ForEachInput([&](const std::string& name) { read_low.insert(name); });
    }
    return low;
  }

  // Removes the biases of convolutions, which stay float32: a folded batch_norm may make them much
  // larger than the results.
  std::vector<std::pair<OpDesc*, std::string>> RemoveBiases() {
    std::vector<std::pair<OpDesc*, std::string>> biases;
    block_.ForEachOp([&](OpDesc& op) {
      const bool convolves =
          op.type() == "conv2d" || op.type() == "depthwise_conv2d" || op.type() == "conv3d";
      if (!convolves || !IsOne(op, "Bias")) return;
      const VarDesc* bias = block_.FindVarRecursive(op.Input("Bias")[0]);
      if (!bias || bias->dtype() != DType::kFloat32) return;
      biases.emplace_back(&op, op.Input("Bias")[0]);
      op.RemoveInput("Bias");
    });
    return biases;
  }

  // Whether it is a convolution with a frozen filter that may be rounded.
  bool IsNarrow(const OpDesc& op) const {
    if (op.type() != "conv2d" || !IsOne(op, "Filter") || IsKept(op)) return false;
    const Tensor* filter = context_.FrozenValue(op.Input("Filter")[0]);
    return filter && filter->dtype() == DType::kFloat32 && filter->shape().rank() == 4 &&
           StaysFinite(*filter, filter->Cast(DType::kBFloat16));
  }

  // Whether the convolution gains more than the conversion of its inputs and outputs costs, by its
  // products for each number that it reads or writes. Winograd's method, which only float32 has,
  // needs a quarter of the products.
  bool Pays(const OpDesc& op) const {
    const OpSpec& spec = context_.ops.Get(op.type());
    const Shape& filter = context_.FrozenValue(op.Input("Filter")[0])->shape();
    const auto strides = spec.AttrOf<std::vector<int32_t>>(op, "strides");
    double step = 1;
    for (const int32_t stride : strides) step *= stride;
    const auto out = static_cast<double>(filter[0]), in = static_cast<double>(filter[1]);
    const auto window = static_cast<double>(filter[2] * filter[3]);
    const double groups = std::max<double>(1, spec.AttrOf<int32_t>(op, "groups"));
    const bool winograd = filter[2] == 3 && filter[3] == 3 && step == 1;
    constexpr double kFewest = 64;
    return in * window * out / (in * groups * step + out) >= (winograd ? 4 : 1) * kFewest;
  }

  // Whether the op may compute in bfloat16 between convolutions: if each result depends on few
  // numbers and has no sum over many.
  bool Follows(const OpDesc& op) const {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec || spec->precision != OpPrecision::kFollowsInputs || spec->random || IsKept(op))
      return false;
    return spec->elementwise || spec->permutes || !spec->layout_attr.empty() ||
           !spec->alias.empty();
  }

  // Whether the user wants it in float32.
  bool IsKept(const OpDesc& op) const {
    if (context_.float32_ops.empty()) return false;
    const std::vector<OpOrigin> origins = OriginsOf(op);
    return std::any_of(origins.begin(), origins.end(), [&](const OpOrigin& origin) {
      return std::binary_search(context_.float32_ops.begin(), context_.float32_ops.end(), origin);
    });
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  std::map<std::string, std::string> halves_;  // of weights
};

void WarnOfSlowProducts() {
  static std::once_flag once;
  std::call_once(once, [] {
    LogMessage(MessageLevel::kWarning,
               "this machine computes products of bfloat16 no faster than those of float32, so "
               "the program computes in float32");
  });
}

}  // namespace

void UseBfloat16(ProgramDesc& program, const PassContext& context) {
  if (context.precision != DType::kBFloat16 || !context.frozen) return;
  if (!BFloat16ProductsPay()) return WarnOfSlowProducts();
  BFloat16User(program, context).Run();
}

}  // namespace coracle::inline internal
