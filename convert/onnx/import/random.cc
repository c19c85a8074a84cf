// Random tensors. The numbers are Coracle's: ONNX does not specify them for a seed.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace coracle::onnx {
namespace {

// The seed in Paddle's form: an integer, 0 for none.
int32_t SeedOf(NodeContext& node) {
  if (!node.HasAttr("seed")) return 0;
  const auto bits = std::bit_cast<int32_t>(node.Float("seed", 0.0f)) & 0x7fffffff;
  return bits == 0 ? 1 : bits;
}

// Attribute dtype, or `otherwise`.
DType DTypeAttr(NodeContext& node, DType otherwise) {
  if (!node.HasAttr("dtype")) return otherwise;
  const auto number = node.Int32("dtype");
  const std::optional<DType> dtype = FromDataType(number);
  if (!dtype) node.Refuse(fmt::format("random elements of type {}", DataTypeName(number)));
  return *dtype;
}

// An op that draws floats, in the shape of attribute shape or of input 0.
Variable Drawn(NodeContext& node, const std::string& type, const Shape& shape, DType dtype,
               AttrList attrs) {
  if (!IsFloating(dtype)) node.Refuse("random elements that are not floats");
  SlotList inputs;
  attrs.push_back({"dtype", static_cast<int32_t>(dtype)});
  attrs.push_back({"seed", SeedOf(node)});
  if (shape.IsKnown()) {
    attrs.push_back({"shape", shape.rank() == 0 ? std::vector<int64_t>{1} : shape.ToVector()});
  } else {
    const Variable like = node.Make("shape", {{"Input", {node.In(0).name()}}});
    inputs.push_back({"ShapeTensor", {like.name()}});
    attrs.push_back({"shape", shape.ToVector()});
  }
  return node.Make(type, inputs, std::move(attrs));
}

void SetDrawn(NodeContext& node, const std::string& type, AttrList attrs) {
  const bool like = node.op_type().ends_with("Like");
  node.Require(like || node.HasAttr("shape"), "attribute shape is missing");
  const Shape shape = like ? node.shape(0) : Shape(node.Ints("shape", {}));
  const DType dtype = DTypeAttr(node, like ? node.dtype(0) : DType::kFloat32);
  node.Set(0, Drawn(node, type, shape, dtype, std::move(attrs)), shape.rank() == 0);
}

void ImportNormal(NodeContext& node) {
  SetDrawn(node, "gaussian_random",
           {{"mean", node.Float("mean", 0.0f)}, {"std", node.Float("scale", 1.0f)}});
}

void ImportUniform(NodeContext& node) {
  SetDrawn(node, "uniform_random",
           {{"min", node.Float("low", 0.0f)}, {"max", node.Float("high", 1.0f)}});
}

Variable UnitUniform(NodeContext& node, const Shape& shape, DType dtype) {
  return Drawn(node, "uniform_random", shape, dtype, {{"min", 0.0f}, {"max", 1.0f}});
}

void ImportBernoulli(NodeContext& node) {
  const Variable x = node.In(0);
  const DType dtype = DTypeAttr(node, x.dtype());
  const Variable draws = node.HasAttr("seed") ? Less(UnitUniform(node, x.shape(), x.dtype()), x)
                                              : node.Unary("bernoulli", x);
  node.Set(0, node.Cast(draws, dtype), node.IsScalar(0));
}

// Draws classes by their log probabilities, which need not be normalised. With a seed: the number
// of partial sums of the probabilities that a uniform number has reached.
void ImportMultinomial(NodeContext& node) {
  const int32_t samples = node.Int32("sample_size", 1);
  node.Require(samples > 0, "attribute sample_size must be positive");
  const DType dtype = DTypeAttr(node, DType::kInt32);
  node.Require(node.rank(0) == 2, "the input must be a matrix");
  const Variable p = node.Unary("softmax", node.In(0), {{"axis", -1}});
  if (!node.HasAttr("seed")) {
    const Variable classes =
        node.Unary("multinomial", p, {{"num_samples", samples}, {"replacement", true}});
    return node.Set(0, node.Cast(classes, dtype));
  }
  const int64_t rows = p.shape()[0], classes = p.shape()[1];
  if (rows < 0 || classes < 1)
    node.RefuseUnknown("the shape", "which numbers attribute seed gives");
  const Variable sums = node.Reshape(node.Unary("cumsum", p, {{"axis", 1}}), {rows, 1, classes});
  const Variable draws = UnitUniform(node, {rows, samples, 1}, p.dtype());
  const Variable reached =
      GreaterEqual(draws, SliceOf(node, sums, 2, 0, std::max<int64_t>(classes - 1, 1)));
  const Variable count = Sum(node.Cast(reached, DType::kInt64), {2});
  node.Set(0, node.Cast(classes == 1 ? ZerosLike(count) : count, dtype));
}

}  // namespace

void AddRandomImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, int since, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = since,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = import == ImportMultinomial,
                   .foldable = false});
  };
  add("RandomNormal", "", 1, ImportNormal, "gaussian_random");
  add("RandomNormalLike", "T", 1, ImportNormal, "gaussian_random");
  add("RandomUniform", "", 1, ImportUniform, "uniform_random");
  add("RandomUniformLike", "T", 1, ImportUniform, "uniform_random");
  add("Bernoulli", "f", 15, ImportBernoulli, "bernoulli; uniform_random, less_than");
  add("Multinomial", "f", 7, ImportMultinomial, "softmax, multinomial");
}

}  // namespace coracle::onnx
