// Nodes that ONNX Runtime's optimizer writes for the networks of diffusion models, on images
// [batch, height, width, channels].

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

namespace coracle::onnx {
namespace {

// Groups of the channels of x normalised, times gamma (input 1) plus beta (input 2). An activation
// may follow.
Variable GroupsNormalised(NodeContext& node, const Variable& x) {
  const bool last = node.Flag("channels_last", true);
  const int64_t groups = node.Int("groups"), activation = node.Int("activation");
  const int64_t channels = x.shape()[last ? 3 : 1];
  node.Require(activation == 0 || activation == 1,
               fmt::format("attribute activation must be 0 or 1, got {}", activation));
  node.Require(
      groups >= 1 && (channels < 0 || channels % groups == 0),
      fmt::format("attribute groups must divide the channels ({}), got {}", channels, groups));
  const Variable image = last ? node.Transpose(x, {0, 3, 1, 2}) : x;
  const Variable gamma = node.Cast(node.In(1), x.dtype()), beta = node.Cast(node.In(2), x.dtype());
  Variable y = node.Make(
      "group_norm", {{"X", {image.name()}}, {"Scale", {gamma.name()}}, {"Bias", {beta.name()}}},
      {{"groups", ToInt32(groups, "attribute groups")}, {"epsilon", node.Float("epsilon", 1e-5f)}},
      "Y");
  if (activation == 1) y = node.Unary("swish", y, {{"beta", 1.0f}});
  return last ? node.Transpose(y, {0, 2, 3, 1}) : y;
}

void ImportGroupNorm(NodeContext& node) { node.Set(0, GroupsNormalised(node, node.In(0))); }

// Inputs x, gamma, beta, a summand of x: an image, or a number for each channel of a sample, and a
// bias of the channels. Output 1 is the sum.
void ImportSkipGroupNorm(NodeContext& node) {
  if (!node.Flag("channels_last", true)) {
    node.Refuse(
        "attribute channels_last of 0: transpose the images to [batch, height, width, channels] "
        "before the node and back after it, and set the attribute to 1");
  }
  Variable skip = node.In(3);
  if (node.rank(3) == 2)
    skip = node.WithXShape("unsqueeze2", skip, {{"axes", std::vector<int32_t>{1, 2}}});
  Variable sum = node.In(0) + skip;
  if (node.HasInput(4)) sum = sum + node.In(4);
  node.Set(0, GroupsNormalised(node, sum));
  if (node.Wants(1)) node.Set(1, sum);
}

// The sum of x, a bias of the last axis, and another x.
void ImportBiasAdd(NodeContext& node) { node.Set(0, node.In(0) + node.In(1) + node.In(2)); }

// gelu of X W plus a bias.
void ImportGemmFastGelu(NodeContext& node) {
  Variable y = node.Binary("matmul_v2", node.In(0), node.In(1));
  if (node.HasInput(2)) y = y + node.In(2);
  node.Set(0, node.Unary("gelu", y, {{"approximate", true}}));
}

}  // namespace

void AddDiffusionImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = true,
                   .domain = "com.microsoft"});
  };
  add("GroupNorm", "f4 f1 f1", ImportGroupNorm, "transpose2, group_norm, swish");
  add("SkipGroupNorm", "f4 f1 f1 f2-4 f1?", ImportSkipGroupNorm,
      "elementwise_add, transpose2, group_norm, swish");
  add("BiasAdd", "f3 f1 f3", ImportBiasAdd, "elementwise_add");
  add("GemmFastGelu", "f2+ f2 f1?", ImportGemmFastGelu, "matmul_v2, elementwise_add, gelu");
}

}  // namespace coracle::onnx
