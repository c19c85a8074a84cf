#include <coracle/convert/onnx/import/windows.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMost = 1 << 30;

// An attribute of one number for each dim.
Ints PerDim(NodeContext& node, const char* name, size_t rank, int64_t otherwise, int64_t least) {
  const Ints values = node.Ints(name, Ints(rank, otherwise));
  node.Require(values.size() == rank,
               fmt::format("attribute {} must have {} numbers, got {}", name, rank, values.size()));
  for (int64_t value : values) {
    node.Require(value >= least && value <= kMost,
                 fmt::format("attribute {} must lie in [{}, 2^30], got {}", name, least, value));
  }
  return values;
}

void SetPads(NodeContext& node, Windows* windows) {
  const size_t rank = windows->rank();
  const Ints pads = node.Ints("pads", Ints(2 * rank, 0));
  node.Require(pads.size() == 2 * rank,
               fmt::format("attribute pads must have {} numbers, got {}", 2 * rank, pads.size()));
  for (int64_t pad : pads)
    node.Require(pad >= 0 && pad <= kMost, fmt::format("a padding of {}", pad));
  windows->before.assign(pads.begin(), pads.begin() + static_cast<ptrdiff_t>(rank));
  windows->after.assign(pads.begin() + static_cast<ptrdiff_t>(rank), pads.end());
}

// Pads that give ceil(in / stride) windows; an odd element goes to the end (LOWER: to
// the beginning).
void SetSamePads(NodeContext& node, const Shape& input, bool upper, Windows* windows) {
  for (size_t i = 0; i < windows->rank(); ++i) {
    const int64_t in = input[static_cast<int>(i) + 2], stride = windows->strides[i];
    if (in < 0) {
      if (!upper || windows->IsDilated())
        node.RefuseUnknown("a spatial dimension", "the paddings of attribute auto_pad");
      windows->same = true;
      continue;
    }
    const int64_t count = (in + stride - 1) / stride;
    const int64_t pad = std::max<int64_t>(0, (count - 1) * stride + windows->Extent(i) - in);
    windows->before[i] = upper ? pad / 2 : pad - pad / 2;
    windows->after[i] = pad - windows->before[i];
  }
}

}  // namespace

int64_t Windows::Count(size_t i, int64_t in) const {
  const int64_t room = in + before[i] + after[i] - Extent(i);
  if (!ceil || room < 0) return room < 0 ? 0 : room / strides[i] + 1;
  const int64_t count = (room + strides[i] - 1) / strides[i] + 1;
  return (count - 1) * strides[i] >= in + before[i] ? count - 1 : count;
}

bool Windows::IsDilated() const {
  return std::any_of(dilations.begin(), dilations.end(), [](int64_t d) { return d != 1; });
}

Windows WindowsOf(NodeContext& node, const Shape& input, const Ints& kernel) {
  node.Require(input.rank() >= 3, fmt::format("the input must have at least one spatial dimension, "
                                              "got the shape {}",
                                              input.ToString()));
  const auto rank = static_cast<size_t>(input.rank() - 2);
  Windows windows;
  windows.kernel = kernel;
  if (kernel.empty() || node.HasAttr("kernel_shape"))
    windows.kernel = PerDim(node, "kernel_shape", rank, 0, 1);
  node.Require(windows.kernel.size() == rank && (kernel.empty() || windows.kernel == kernel),
               "attribute kernel_shape differs from the shape of the filters");
  for (int64_t size : windows.kernel)
    if (size < 1) node.RefuseUnknown("the filter's spatial shape", "the windows");
  windows.strides = PerDim(node, "strides", rank, 1, 1);
  windows.dilations = PerDim(node, "dilations", rank, 1, 1);
  windows.before.assign(rank, 0);
  windows.after.assign(rank, 0);
  const std::string auto_pad =
      node.OneOf("auto_pad", "NOTSET", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
  if (auto_pad == "NOTSET")
    SetPads(node, &windows);
  else
    node.attributes().Ignore("pads");
  if (auto_pad.starts_with("SAME")) SetSamePads(node, input, auto_pad == "SAME_UPPER", &windows);
  return windows;
}

std::vector<int32_t> Interleaved(const Ints& before, const Ints& after) {
  std::vector<int32_t> pads;
  for (size_t i = 0; i < before.size(); ++i) {
    pads.push_back(ToInt32(before[i], "a padding"));
    pads.push_back(ToInt32(after[i], "a padding"));
  }
  return pads;
}

Variable WithHeight(NodeContext& node, const Variable& x) {
  return node.WithXShape("unsqueeze2", x, {{"axes", std::vector<int32_t>{2}}});
}

Variable WithoutHeight(NodeContext& node, const Variable& x) {
  return node.WithXShape("squeeze2", x, {{"axes", std::vector<int32_t>{2}}});
}

Windows WithHeight(Windows windows) {
  for (Ints* ones : {&windows.kernel, &windows.strides, &windows.dilations})
    ones->insert(ones->begin(), 1);
  for (Ints* zeros : {&windows.before, &windows.after}) zeros->insert(zeros->begin(), 0);
  return windows;
}

}  // namespace coracle::onnx
