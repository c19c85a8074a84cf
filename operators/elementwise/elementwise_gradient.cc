#include <coracle/operators/elementwise/elementwise_gradient.h>
#include <coracle/operators/kernels/broadcast.h>

namespace coracle::inline internal {
namespace {

// Whether `part` certainly has the shape of the result of broadcasting it with `other`.
bool SurelyFull(const Shape& part, const Shape& other) {
  for (int i = 0; i < part.rank(); ++i) {
    if (other[i] != 1 && (part[i] == 1 || part[i] < 0)) return false;
  }
  return true;
}

}  // namespace

ElementwiseAxes::ElementwiseAxes(const GradientContext& g, const std::string& x,
                                 const std::string& y)
    : axis_(g.Attr<int32_t>("axis")),
      x_small_(!x.empty() && !y.empty() && g.MetaOf(x).shape.rank() < g.MetaOf(y).shape.rank()) {}

void AppendElementwiseGrad(GradientContext& g, const ElementwiseReads& reads) {
  const std::string x = g.Input("X"), y = g.Input("Y");
  const Shape &xs = g.MetaOf(x).shape, &ys = g.MetaOf(y).shape;
  const int32_t axis = g.Attr<int32_t>("axis");
  auto aligned = AlignShapes(xs, ys, axis);
  if (!aligned)
    throw InternalError("gradient of an elementwise op with shapes that cannot be broadcast");
  // Only an operand of the result's rank may be left out.
  const bool x_full = xs.rank() >= ys.rank() && SurelyFull(xs, aligned->y);
  const bool y_full = ys.rank() >= xs.rank() && aligned->y == ys && SurelyFull(ys, aligned->x);
  SlotList inputs;
  if (reads.x || !x_full) inputs.push_back({"X", {x}});
  if (reads.y || !y_full) inputs.push_back({"Y", {y}});
  if (reads.out) inputs.push_back({"Out", {g.Output("Out")}});
  inputs.push_back({"Out@GRAD", {g.OutputGrad("Out")}});
  g.Append(g.op().type() + "_grad", std::move(inputs),
           {{"X@GRAD", {g.InputGrad("X")}}, {"Y@GRAD", {g.InputGrad("Y")}}}, {{"axis", axis}});
}

void SetPowGradient(GradientContext& g, int32_t x_order, int32_t y_order) {
  const ElementwiseAxes axes(g);
  const Variable x = g.In("X"), y = g.In("Y");
  const auto derivative = [&](int32_t by_x, int32_t by_y) {
    AttrList attrs = axes.Original();
    attrs.push_back({"x_order", by_x});
    attrs.push_back({"y_order", by_y});
    return g.Make("elementwise_pow_derivative", {{"X", {x.name()}}, {"Y", {y.name()}}},
                  std::move(attrs));
  };
  // The gradient of a product sums to the operand's shape.
  const auto set = [&](const char* slot, const Variable& a, const Variable& b, AttrList axis) {
    g.Set(slot, g.Make("elementwise_mul_grad",
                       {{"X", {a.name()}}, {"Y", {b.name()}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
                       std::move(axis), std::string(slot) + "@GRAD"));
  };
  set("X", x, derivative(x_order + 1, y_order), axes.OfX());
  set("Y", derivative(x_order, y_order + 1), y, axes.OfY());
}

}  // namespace coracle::inline internal
