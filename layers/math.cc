// Activations, arithmetic, reductions and changes of shape.

#include <coracle/layers/builder.h>
#include <coracle/layers/internal/layer_scope.h>
#include <fmt/format.h>

namespace coracle {

Variable Builder::Relu(const Variable& x, const OutputOptions& options) {
  return Unary("relu", x, {}, options);
}
Variable Builder::LeakyRelu(const Variable& x, float alpha, const OutputOptions& options) {
  return Unary("leaky_relu", x, {{"alpha", alpha}}, options);
}
Variable Builder::Sigmoid(const Variable& x, const OutputOptions& options) {
  return Unary("sigmoid", x, {}, options);
}
Variable Builder::Tanh(const Variable& x, const OutputOptions& options) {
  return Unary("tanh", x, {}, options);
}
Variable Builder::Gelu(const Variable& x, bool approximate, const OutputOptions& options) {
  return Unary("gelu", x, {{"approximate", approximate}}, options);
}
Variable Builder::Softmax(const Variable& x, int32_t axis, const OutputOptions& options) {
  return Unary("softmax", x, {{"axis", axis}}, options);
}
Variable Builder::LogSoftmax(const Variable& x, int32_t axis, const OutputOptions& options) {
  return Unary("log_softmax", x, {{"axis", axis}}, options);
}

Variable Builder::Add(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return Binary("elementwise_add", x, y, {{"axis", options.axis}}, OutputOf(options));
}
Variable Builder::Sub(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return Binary("elementwise_sub", x, y, {{"axis", options.axis}}, OutputOf(options));
}
Variable Builder::Mul(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return Binary("elementwise_mul", x, y, {{"axis", options.axis}}, OutputOf(options));
}
Variable Builder::Div(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return Binary("elementwise_div", x, y, {{"axis", options.axis}}, OutputOf(options));
}
Variable Builder::Max(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return Binary("elementwise_max", x, y, {{"axis", options.axis}}, OutputOf(options));
}
Variable Builder::Min(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return Binary("elementwise_min", x, y, {{"axis", options.axis}}, OutputOf(options));
}
Variable Builder::Matmul(const Variable& x, const Variable& y, const MatmulOptions& options) {
  return Binary("matmul", x, y,
                {{"transpose_X", options.transpose_x},
                 {"transpose_Y", options.transpose_y},
                 {"alpha", options.alpha}},
                OutputOf(options));
}
Variable Builder::Scale(const Variable& x, const ScaleOptions& options) {
  return Unary("scale", x,
               {{"scale", options.scale},
                {"bias", options.bias},
                {"bias_after_scale", options.bias_after_scale}},
               OutputOf(options));
}

Variable Builder::Sum(const std::vector<Variable>& x, const OutputOptions& options) {
  LayerScope layer(*this, "sum", options);
  const std::string out = layer.Out();
  Append("sum", {{"X", NamesOf(x)}}, {{"Out", {out}}});
  return layer.Finish(out);
}

Variable Builder::Reduce(const std::string& type, const Variable& x, const ReduceOptions& options) {
  const bool all = options.dim.empty();
  return Unary(type, x,
               {{"dim", all ? std::vector<int32_t>{0} : options.dim},
                {"keep_dim", options.keep_dim},
                {"reduce_all", all}},
               OutputOf(options));
}
Variable Builder::ReduceSum(const Variable& x, const ReduceOptions& options) {
  return Reduce("reduce_sum", x, options);
}
Variable Builder::ReduceMean(const Variable& x, const ReduceOptions& options) {
  return Reduce("reduce_mean", x, options);
}
Variable Builder::ReduceMax(const Variable& x, const ReduceOptions& options) {
  return Reduce("reduce_max", x, options);
}
Variable Builder::ReduceMin(const Variable& x, const ReduceOptions& options) {
  return Reduce("reduce_min", x, options);
}

Variable Builder::Cast(const Variable& x, DType dtype, const OutputOptions& options) {
  return Unary(
      "cast", x,
      {{"in_dtype", static_cast<int32_t>(x.dtype())}, {"out_dtype", static_cast<int32_t>(dtype)}},
      options);
}

// An op whose second output keeps the shape of X for its gradient.
Variable Builder::WithXShape(const char* type, const Variable& x, AttrList attrs,
                             const OutputOptions& options) {
  LayerScope layer(*this, type, options);
  const std::string out = layer.Out(), x_shape = layer.Temp();
  Append(type, {{"X", {x.name()}}}, {{"Out", {out}}, {"XShape", {x_shape}}}, std::move(attrs));
  Var(x_shape).desc().SetStopGradient(true);
  return layer.Finish(out);
}

Variable Builder::Reshape(const Variable& x, const std::vector<int32_t>& shape,
                          const OutputOptions& options) {
  return WithXShape("reshape2", x, {{"shape", shape}}, options);
}
Variable Builder::Flatten(const Variable& x, const FlattenOptions& options) {
  return WithXShape("flatten_contiguous_range", x,
                    {{"start_axis", options.start_axis}, {"stop_axis", options.stop_axis}},
                    OutputOf(options));
}
Variable Builder::Transpose(const Variable& x, const std::vector<int32_t>& axis,
                            const OutputOptions& options) {
  return WithXShape("transpose2", x, {{"axis", axis}}, options);
}
Variable Builder::Squeeze(const Variable& x, const std::vector<int32_t>& axes,
                          const OutputOptions& options) {
  return WithXShape("squeeze2", x, {{"axes", axes}}, options);
}
Variable Builder::Unsqueeze(const Variable& x, const std::vector<int32_t>& axes,
                            const OutputOptions& options) {
  return WithXShape("unsqueeze2", x, {{"axes", axes}}, options);
}

Variable Builder::Concat(const std::vector<Variable>& x, const ConcatOptions& options) {
  LayerScope layer(*this, "concat", OutputOf(options));
  const std::string out = layer.Out();
  Append("concat", {{"X", NamesOf(x)}}, {{"Out", {out}}}, {{"axis", options.axis}});
  return layer.Finish(out);
}

Variable Builder::Stack(const std::vector<Variable>& x, int32_t axis,
                        const OutputOptions& options) {
  LayerScope layer(*this, "stack", options);
  const std::string out = layer.Out();
  Append("stack", {{"X", NamesOf(x)}}, {{"Y", {out}}}, {{"axis", axis}});
  return layer.Finish(out);
}

std::vector<Variable> Builder::Split(const Variable& x, const SplitOptions& options) {
  const size_t parts = options.num > 0 ? static_cast<size_t>(options.num) : options.sections.size();
  constexpr size_t kMaxParts = 65536;
  if (parts == 0 || parts > kMaxParts) {
    ThrowInvalid(
        fmt::format("split: num or sections must give 1 to {} parts, got {}", kMaxParts, parts));
  }
  if (!options.outputs.empty() && options.outputs.size() != parts) {
    ThrowInvalid(
        fmt::format("split: {} outputs are named for {} parts", options.outputs.size(), parts));
  }
  OutputOptions result;
  result.name = options.name;
  LayerScope layer(*this, "split", result);
  std::vector<std::string> names;
  for (size_t i = 0; i < parts; ++i) {
    if (!options.outputs.empty()) RequireFreeOutput(*this, "split", options.outputs[i]);
    bool named = !options.outputs.empty() && !options.outputs[i].empty();
    names.push_back(named ? options.outputs[i] : layer.Temp());
  }
  Append("split", {{"X", {x.name()}}}, {{"Out", names}},
         {{"num", options.num}, {"sections", options.sections}, {"axis", options.axis}});
  std::vector<Variable> vars;
  for (const std::string& name : names) vars.push_back(Var(name));
  return vars;
}

Variable Builder::OneHot(const Variable& ids, int32_t depth, const OutputOptions& options) {
  return Unary("one_hot_v2", ids, {{"depth", depth}}, options);
}

}  // namespace coracle
