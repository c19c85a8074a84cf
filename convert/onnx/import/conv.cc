// Convolutions with one, two and three spatial dims.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/windows.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;

struct Operands {
  Variable x, filter;
  Windows windows;
  bool one_dim = false;  // x has an additional height of 1
};

Operands OperandsOf(NodeContext& node) {
  const Shape x = node.shape(0), filter = node.shape(1);
  node.Require(filter.rank() == x.rank(), "filters must have the rank of the input");
  if (x.rank() > 5) node.Refuse("more than three spatial dimensions");
  const Ints kernel(filter.begin() + std::min(2, filter.rank()), filter.end());
  Operands o = {node.In(0), node.In(1), WindowsOf(node, x, kernel), x.rank() == 3};
  if (!o.one_dim) return o;
  return {WithHeight(node, o.x), WithHeight(node, o.filter), WithHeight(o.windows), true};
}

AttrList AttrsOf(const Windows& windows, int64_t groups) {
  AttrList attrs = {{"strides", ToInt32(windows.strides, "a window")},
                    {"dilations", ToInt32(windows.dilations, "a window")},
                    {"paddings", Interleaved(windows.before, windows.after)},
                    {"groups", ToInt32(groups, "attribute num_groups")}};
  if (windows.same) attrs.push_back({"padding_algorithm", std::string("SAME")});
  return attrs;
}

int64_t GroupsOf(NodeContext& node) {
  const int64_t groups = node.Int("group", 1);
  node.Require(groups >= 1 && groups <= (1 << 30),
               fmt::format("attribute group must be positive, got {}", groups));
  return groups;
}

// The result with the bias, in ONNX's rank.
Variable Result(NodeContext& node, Variable out, const Operands& o) {
  if (o.one_dim) out = WithoutHeight(node, out);
  if (node.HasInput(2)) {
    out = node.Make("elementwise_add", {{"X", {out.name()}}, {"Y", {node.In(2).name()}}},
                    {{"axis", 1}});
  }
  return out;
}

Variable Convolved(NodeContext& node) {
  const Operands o = OperandsOf(node);
  const int64_t groups = GroupsOf(node);
  const bool depthwise = groups > 1 && groups == o.x.shape()[1] && o.x.shape().rank() == 4;
  const char* type = o.x.shape().rank() == 5 ? "conv3d" : depthwise ? "depthwise_conv2d" : "conv2d";
  return Result(node,
                node.Make(type, {{"Input", {o.x.name()}}, {"Filter", {o.filter.name()}}},
                          AttrsOf(o.windows, groups), "Output"),
                o);
}

void ImportConv(NodeContext& node) {
  if (node.HasInput(2)) node.RoundOnce();
  node.Set(0, Convolved(node));
}

// The activation that an attribute names, with its parameters.
Variable Activated(NodeContext& node, const Variable& x) {
  const std::string name = node.String("activation", "");
  const std::vector<float> given = node.Floats("activation_params", {});
  const auto parameter = [&](size_t i, float otherwise) {
    return i < given.size() ? given[i] : otherwise;
  };
  if (name.empty()) return x;
  if (name == "Relu") return node.Unary("relu", x);
  if (name == "Tanh") return node.Unary("tanh", x);
  if (name == "Sigmoid") return node.Unary("sigmoid", x);
  if (name == "LeakyRelu") return node.Unary("leaky_relu", x, {{"alpha", parameter(0, 0.01f)}});
  if (name == "HardSigmoid") {
    return node.Unary("hard_sigmoid", x,
                      {{"slope", parameter(0, 0.2f)}, {"offset", parameter(1, 0.5f)}});
  }
  if (name == "Clip" && given.size() == 2)
    return node.Unary("clip", x, {{"min", given[0]}, {"max", given[1]}});
  node.Refuse(fmt::format("attribute activation of {}", Quote(name)));
}

void ImportFusedConv(NodeContext& node) {
  Variable y = Convolved(node);
  if (node.HasInput(3)) y = y + node.In(3);
  node.Set(0, Activated(node, y));
}

// --- ConvTranspose ---

// The paddings follow from attribute output_shape, or, with auto_pad, from in * stride; a remainder
// is added at the end.
void FitOutput(NodeContext& node, const Shape& x, const std::string& auto_pad, Ints* added,
               Windows* windows) {
  Ints wanted = node.Ints("output_shape", {});
  const size_t rank = windows->rank();
  const bool same = auto_pad.starts_with("SAME");
  if (wanted.empty() && !same) return;
  const auto spatial = static_cast<size_t>(node.rank(0)) - 2;
  if (wanted.size() == spatial + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && spatial < rank) wanted.insert(wanted.begin(), 1);
  node.Require(wanted.empty() || wanted.size() == rank,
               fmt::format("attribute output_shape must have {} numbers", rank));
  for (size_t i = 0; i < rank; ++i) {
    const int64_t in = x[static_cast<int>(i) + 2];
    if (in < 0) node.RefuseUnknown("a spatial dimension", "the paddings");
    const int64_t out = wanted.empty() ? in * windows->strides[i] : wanted[i];
    const int64_t all = (in - 1) * windows->strides[i] + windows->Extent(i) + (*added)[i];
    const int64_t pad = std::max<int64_t>(0, all - out);
    if (out > all) (*added)[i] += out - all;
    windows->before[i] = auto_pad == "SAME_UPPER" ? pad / 2 : pad - pad / 2;
    windows->after[i] = pad - windows->before[i];
  }
}

// Paddle supports additions below the stride; larger ones become zeros at the end of the result.
Variable Transposed(NodeContext& node, const Operands& o, int64_t groups, const Ints& added) {
  AttrList attrs = AttrsOf(o.windows, groups);
  bool plain = true;
  for (size_t i = 0; i < added.size(); ++i) plain &= added[i] < o.windows.strides[i];
  if (plain) attrs.push_back({"output_padding", ToInt32(added, "a window")});
  const char* type = o.x.shape().rank() == 5 ? "conv3d_transpose" : "conv2d_transpose";
  const Variable out = node.Make(type, {{"Input", {o.x.name()}}, {"Filter", {o.filter.name()}}},
                                 std::move(attrs), "Output");
  if (plain) return out;
  Ints before(added.size() + 2, 0), after = {0, 0};
  after.insert(after.end(), added.begin(), added.end());
  return node.Unary("pad", out, {{"paddings", Interleaved(before, after)}});
}

void ImportConvTranspose(NodeContext& node) {
  const std::string auto_pad =
      node.OneOf("auto_pad", "NOTSET", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
  Operands o = OperandsOf(node);
  const size_t rank = static_cast<size_t>(node.rank(0)) - 2;
  Ints added = node.Ints("output_padding", Ints(rank, 0));
  node.Require(added.size() == rank && *std::min_element(added.begin(), added.end()) >= 0,
               fmt::format("attribute output_padding must be {} numbers >= 0", rank));
  if (o.one_dim) added.insert(added.begin(), 0);
  o.windows.same = false;
  FitOutput(node, o.x.shape(), auto_pad, &added, &o.windows);
  node.Set(0, Result(node, Transposed(node, o, GroupsOf(node), added), o));
}

}  // namespace

void AddConvImporters(NodeImporters& importers) {
  importers.Add({.op_type = "Conv",
                 .since = 1,
                 .takes = "f3+ f3+ f1?",
                 .import = ImportConv,
                 .maps_to = "conv2d, depthwise_conv2d or conv3d; elementwise_add"});
  importers.Add({.op_type = "FusedConv",
                 .since = 1,
                 .takes = "f3+ f3+ f1? f?",
                 .import = ImportFusedConv,
                 .maps_to = "conv2d and the activation",
                 .composed = true,
                 .domain = "com.microsoft"});
  importers.Add({.op_type = "ConvTranspose",
                 .since = 1,
                 .takes = "f3+ f3+ f1?",
                 .import = ImportConvTranspose,
                 .maps_to = "conv2d_transpose or conv3d_transpose; elementwise_add",
                 .composed = true});
}

}  // namespace coracle::onnx
