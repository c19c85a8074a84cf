// ONNX's dynamic quantisation multiplies integers first and the scales later:
//
//   i = quantized_matmul(X=q, Y=w, zero points), f = cast(i), r = elementwise_mul(s, ws),
//   y = elementwise_mul(f, r)
//
// is replaced by
//
//   x = affine_dequantize(q, s), v = affine_dequantize(w, ws), y = matmul_v2(x, v)
//
// so that the passes on convolutions and products see them: bias, activation, norm. Then
// fuse_quantized lets the whole compute in integers again.

#include <coracle/framework/op/check/flow_types.h>
#include <coracle/passes/match.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/unify_quantization.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace coracle::inline internal {
namespace {

// Longer sums may exceed int32.
constexpr int64_t kMostTerms = 33000;

// Finds the scales by which sums of integers are multiplied.
class SumScales {
 public:
  // The ops from the sums to their product with the scales.
  struct Chain {
    std::vector<const OpDesc*> ops;
    std::string x_scale, y_scale;  // "": 1
    std::string result;
  };

  SumScales(const BlockDesc& block, const PassContext& context, const ValueFlow& flow)
      : block_(block), context_(context), flow_(flow) {}

  bool IsRunScale(const std::string& var) const {
    const auto writers = std::as_const(block_).Uses(var).writers;
    return writers.size() == 1 && writers[0]->type() == "dynamic_scale" &&
           flow_.IsConstantInARun(var);
  }

  // Of the sums.
  int RankOf(const OpDesc& op) const {
    if (op.type() == "quantized_conv2d") return 4;
    const int x = flow_.CertainRank(op.Input("X")[0]), y = flow_.CertainRank(op.Input("Y")[0]);
    return x >= 2 && y >= 2 ? std::max(x, y) : -1;
  }

  // `columns`: the positions of the axis along which factors may lie.
  std::optional<Chain> ChainOf(const OpDesc& op, const std::string& sums, int64_t columns,
                               int axis) const {
    Chain chain;
    chain.ops = {&op};
    chain.result = sums;
    const OpDesc* cast = flow_.ReaderOf(sums);
    if (!cast || cast->type() != "cast" ||
        SpecOf(*cast).AttrOf<int32_t>(*cast, "out_dtype") != static_cast<int>(DType::kFloat32))
      return std::nullopt;
    chain.ops.push_back(cast);
    chain.result = cast->Output("Out")[0];
    Factors factors;
    while (const OpDesc* mul = flow_.ReaderOf(chain.result)) {
      if (!IsProductOfTwo(*mul) || !flow_.IsConstantInARun(mul->Output("Out")[0])) break;
      const bool first = mul->Input("X")[0] == chain.result;
      const std::string& other = mul->Input(first ? "Y" : "X")[0];
      Factors more = factors;
      if (other == chain.result || !AddFactors(other, &more) || more.frozen.size() > 1 ||
          more.of_a_run.size() + more.frozen.size() > 2)
        break;
      if (!more.frozen.empty() && more.frozen != factors.frozen) {
        const Shape& shape = context_.FrozenValue(more.frozen[0])->shape();
        // A wide first operand would decide the axes.
        if (!FitsColumns(*mul, shape, columns, axis, RankOf(op)) ||
            (!first && shape.numel() != 1) || (other != more.frozen[0] && shape.rank() > 1))
          break;
      }
      factors = more;
      chain.ops.push_back(mul);
      chain.result = mul->Output("Out")[0];
    }
    if (chain.ops.size() < 3) return std::nullopt;
    std::vector<std::string> scales = factors.of_a_run;
    scales.insert(scales.end(), factors.frozen.begin(), factors.frozen.end());
    const bool only_columns = factors.of_a_run.empty();
    chain.x_scale = only_columns ? "" : scales[0];
    chain.y_scale = only_columns ? scales[0] : scales.size() == 2 ? scales[1] : "";
    return chain;
  }

 private:
  const OpSpec& SpecOf(const OpDesc& op) const { return context_.ops.Get(op.type()); }
  // The factors of a variable: scales of a run, and constants.
  struct Factors {
    std::vector<std::string> of_a_run, frozen;
  };
  bool AddFactors(const std::string& var, Factors* to) const {
    if (context_.FrozenValue(var)) {
      to->frozen.push_back(var);
    } else if (IsRunScale(var)) {
      to->of_a_run.push_back(var);
    } else {
      const auto writers = std::as_const(block_).Uses(var).writers;
      if (writers.size() != 1 || !IsProductOfTwo(*writers[0]) || !flow_.IsConstantInARun(var))
        return false;
      for (const char* slot : {"X", "Y"}) {
        const std::string& name = writers[0]->Input(slot)[0];
        if (context_.FrozenValue(name))
          to->frozen.push_back(name);
        else if (IsRunScale(name))
          to->of_a_run.push_back(name);
        else
          return false;
      }
    }
    return true;
  }
  static bool IsProductOfTwo(const OpDesc& op) {
    return op.type() == "elementwise_mul" && op.Input("X").size() == 1 &&
           op.Input("Y").size() == 1 && op.Output("Out").size() == 1;
  }

  // Whether a factor of that shape is one number, or one for each of the `columns`, which lie along
  // an axis of a product of `rank`.
  bool FitsColumns(const OpDesc& mul, const Shape& factor, int64_t columns, int axis,
                   int rank) const {
    if (factor.numel() == 1) return factor.rank() <= 1;
    if (factor.numel() != columns || rank < 0 || factor.rank() > rank) return false;
    const int begin = SpecOf(mul).AttrOf<int32_t>(mul, "axis");
    const int first = begin == -1 ? rank - factor.rank() : begin;
    const int at = axis - first;
    return at >= 0 && at < factor.rank() && factor[at] == columns;
  }

  const BlockDesc& block_;
  const PassContext& context_;
  const ValueFlow& flow_;
};

class SumRaiser {
 public:
  SumRaiser(ProgramDesc& program, const PassContext& context)
      : program_(program),
        context_(context),
        block_(program.Root()),
        flow_(program, context),
        matcher_(block_, context),
        scales_(block_, context, flow_),
        rewrites_(block_) {}

  void Run() {
    std::as_const(block_).ForEachOp([&](const OpDesc& op) {
      if (op.type() == "quantized_matmul") Try(op, "X", "Y", "Out");
      if (op.type() == "quantized_conv2d") Try(op, "Input", "Filter", "Output");
    });
    rewrites_.Apply();
  }

 private:
  void Try(const OpDesc& op, const char* x_slot, const char* y_slot, const char* out_slot) {
    const OpSpec& spec = context_.ops.Get(op.type());
    if (spec.AttrOf<int32_t>(op, "out_dtype") != static_cast<int32_t>(DType::kInt32) ||
        op.HasInput("Bias") || flow_.IsRecomputed(op))
      return;
    const std::string &x = op.Input(x_slot)[0], &y = op.Input(y_slot)[0];
    const bool conv = op.type() == "quantized_conv2d";
    const bool trans_y = !conv && spec.AttrOf<bool>(op, "trans_y");
    const Tensor* weights = context_.FrozenValue(y);
    if (!flow_.IsConstantInARun(x) || !weights || weights->shape().rank() < 2) return;
    const Shape& shape = weights->shape();
    const int y_axis = conv ? 0 : shape.rank() - (trans_y ? 2 : 1);
    const int64_t columns = shape[y_axis];
    if (weights->numel() == 0 || shape.numel() / columns > kMostTerms) return;
    const int rank = scales_.RankOf(op);
    const auto chain = scales_.ChainOf(op, op.Output(out_slot)[0], columns, conv ? 1 : rank - 1);
    if (!chain) return;
    std::vector<OpDesc> made;
    const std::string real_x = Dequantized(op, x_slot, chain->x_scale, 1, 0, &made);
    const std::string real_y =
        real_x.empty() ? "" : Dequantized(op, y_slot, chain->y_scale, columns, y_axis, &made);
    if (real_y.empty()) return;
    made.push_back(ProductOf(op, real_x, real_y, chain->result));
    if (matcher_.MayRunAt(chain->ops, *chain->ops.back()))
      rewrites_.Replace(chain->ops, *chain->ops.back(), made);
  }

  // The same op on real numbers.
  OpDesc ProductOf(const OpDesc& op, const std::string& x, const std::string& y,
                   const std::string& out) const {
    const bool conv = op.type() == "quantized_conv2d";
    OpDesc made = conv ? OpDesc("conv2d", {{"Input", {x}}, {"Filter", {y}}}, {{"Output", {out}}})
                       : OpDesc("matmul_v2", {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}});
    const std::vector<const char*> attrs =
        conv ? std::vector<const char*>{"strides",   "paddings", "padding_algorithm",
                                        "dilations", "groups",   "data_format"}
             : std::vector<const char*>{"trans_x", "trans_y"};
    for (const char* name : attrs)
      if (const Attribute* value = op.FindAttr(name)) made.SetAttr(name, *value);
    return made;
  }

  // Appends the dequantization of an input. "" if its parameters do not suit.
  std::string Dequantized(const OpDesc& op, const std::string& slot, const std::string& scale,
                          int64_t columns, int axis, std::vector<OpDesc>* made) {
    const std::string& from = op.Input(slot)[0];
    const std::string zero_slot = slot + "ZeroPoint";
    const std::string zero = op.HasInput(zero_slot) ? op.Input(zero_slot)[0] : "";
    const Tensor* zeros = zero.empty() ? nullptr : context_.FrozenValue(zero);
    if (!zero.empty() && !zeros && !scales_.IsRunScale(zero)) return "";
    const Tensor* scales = scale.empty() ? nullptr : context_.FrozenValue(scale);
    if (scales && scales->dtype() != DType::kFloat32) return "";
    const int64_t count = std::max(scales ? scales->numel() : 1, zeros ? zeros->numel() : 1);
    if (count != 1 && count != columns) return "";
    OpDesc dequantize("affine_dequantize", {{"X", {from}}}, {}, {{"axis", int32_t{axis}}});
    dequantize.SetInput("Scale", {scale.empty() || scales ? Spread(scale, scales, count) : scale});
    if (!zero.empty())
      dequantize.SetInput("ZeroPoint", {zeros ? Spread(zero, zeros, count) : zero});
    const std::string out = context_.AddForm(program_, from, "@REAL", DType::kFloat32);
    dequantize.SetOutput("Out", {out});
    made->push_back(dequantize);
    return out;
  }

  // A constant with `count` elements: those of `value`, or its only one, or ones.
  std::string Spread(const std::string& name, const Tensor* value, int64_t count) {
    if (value && value->shape() == Shape{count}) return name;
    Tensor all = Tensor::Zeros(value ? value->dtype() : DType::kFloat32, {count});
    const size_t size = SizeOf(all.dtype());
    const float one = 1;
    for (int64_t i = 0; i < count; ++i) {
      const auto* from = value ? static_cast<const uint8_t*>(value->raw())
                               : reinterpret_cast<const uint8_t*>(&one);
      if (value && value->numel() > 1) from += static_cast<size_t>(i) * size;
      std::copy_n(from, size, static_cast<uint8_t*>(all.raw()) + static_cast<size_t>(i) * size);
    }
    return context_.AddFrozen(program_, (name.empty() ? "one" : name) + "@STEPS", std::move(all));
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const ValueFlow flow_;
  const Matcher matcher_;
  const SumScales scales_;
  Rewrites rewrites_;
};

}  // namespace

void RaiseSums(ProgramDesc& program, const PassContext& context) {
  const auto sums = [](const OpDesc& op) {
    return op.type() == "quantized_matmul" || op.type() == "quantized_conv2d";
  };
  if (AnyOp(program.Root(), sums)) SumRaiser(program, context).Run();
}

}  // namespace coracle::inline internal
