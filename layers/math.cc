// Activations, arithmetic and reductions.

#include <coracle/framework/ir/edit_guard.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/layer_scope.h>

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
  const EditGuard guard(*main_, *startup_);
  return Binary("matmul", x, y,
                {{"transpose_X", options.transpose_x},
                 {"transpose_Y", options.transpose_y},
                 {"alpha", options.alpha}},
                OutputOf(options));
}
Variable Builder::Scale(const Variable& x, const ScaleOptions& options) {
  const EditGuard guard(*main_, *startup_);
  return Unary("scale", x,
               {{"scale", options.scale},
                {"bias", options.bias},
                {"bias_after_scale", options.bias_after_scale}},
               OutputOf(options));
}

Variable Builder::Sum(const std::vector<Variable>& x, const OutputOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, "sum", options);
  const std::string out = layer.Out();
  Append("sum", {{"X", NamesIn(*this, x)}}, {{"Out", {out}}});
  return layer.Finish(out);
}

Variable Builder::Reduce(const std::string& type, const Variable& x, const ReduceOptions& options) {
  const EditGuard guard(*main_, *startup_);
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
  const EditGuard guard(*main_, *startup_);
  return Unary("cast", x, CastAttrs(x.dtype(), dtype), options);
}

std::vector<LayerDef> internal::MathLayers() {
  struct CastOptions {
    DType dtype = DType::kFloat32;
  };
  std::vector<LayerDef> layers = {
      LayerFields<MatmulOptions>("matmul", "alpha x y, batched over the leading dims.")
          .Input("x", "tensor [..., m, k]")
          .Input("y", "tensor [..., k, n]")
          .Field("transpose_x", &MatmulOptions::transpose_x, "swap the last two dims of x")
          .Field("transpose_y", &MatmulOptions::transpose_y, "swap the last two dims of y")
          .Field("alpha", &MatmulOptions::alpha, "multiplies the product")
          .Build(&Builder::Matmul),
      LayerFields<OutputOptions>("sum", "Sum of tensors of one shape, element by element.")
          .Inputs("input", "one or more tensors")
          .Example("x: [-1, 8]; y: [-1, 8]", R"(input: ["x", "y"] output: "out")")
          .BuildOfMany(&Builder::Sum),
      LayerFields<CastOptions>("cast", "The elements as another type.")
          .Input("input", "tensor of any shape")
          .Field("dtype", &CastOptions::dtype, "type of the result", kRequired)
          .Build([](Builder& net, const LayerArgs& args, const CastOptions& options) {
            return std::vector<Variable>{net.Cast(args.Var("input"), options.dtype, args.output)};
          })};
  for (const std::string name : {"sum", "mean", "max", "min"}) {
    const std::string type = "reduce_" + name;
    layers.push_back(
        LayerFields<ReduceOptions>(type, "The " + name + " over some dims or all.")
            .Input("input", "tensor of any shape")
            .Field("dim", &ReduceOptions::dim, "dims to reduce; none: all")
            .Field("keep_dim", &ReduceOptions::keep_dim, "keep them as dims of 1")
            .Build([type](Builder& net, const LayerArgs& args, const ReduceOptions& options) {
              return std::vector<Variable>{net.Reduce(type, args.Var("input"), options)};
            }));
  }
  return layers;
}

}  // namespace coracle
