#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/certain_dims.h>
#include <coracle/passes/quantized_form.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace coracle::inline internal {
namespace {

using Ints = std::vector<int32_t>;

constexpr int kMaxDepth = 64;

class OnesFinder {
 public:
  OnesFinder(const BlockDesc& block, const PassContext& context, const ValueFlow& flow)
      : block_(block), context_(context), flow_(flow) {}

  bool IsOne(const std::string& var, int axis, int depth) const {
    if (const Tensor* value = context_.FrozenValue(var))
      return axis < value->shape().rank() && value->shape()[axis] == 1;
    if (depth >= kMaxDepth || !flow_.IsTemporary(var)) return false;
    const OpDesc& op = *block_.Uses(var).writers[0];
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec) return false;
    const auto x_is_one = [&](int at) {
      return op.Input("X").size() == 1 && IsOne(op.Input("X")[0], at, depth + 1);
    };
    const std::string& type = op.type();
    if (type == "unsqueeze" || type == "unsqueeze2") {
      const Ints axes = spec->AttrOf<Ints>(op, "axes");
      if (HasOtherInput(op, "X") || axes.size() != 1 || axes[0] < 0) return false;
      return axes[0] == axis || x_is_one(axis > axes[0] ? axis - 1 : axis);
    }
    if (type == "transpose" || type == "transpose2") {
      const Ints axes = spec->AttrOf<Ints>(op, "axis");
      return axis < static_cast<int>(axes.size()) && x_is_one(axes[static_cast<size_t>(axis)]);
    }
    if (HasOneStep(op, block_, context_)) return x_is_one(axis);
    if (type == "batch_norm") return op.Output("Y") == Only(var) && x_is_one(axis);
    if (IsConvolution(type) || type == "pool2d") return WindowIsOne(op, *spec, axis, depth);
    return spec->elementwise && op.Output("Out") == Only(var) && SumIsOne(op, *spec, axis, depth);
  }

 private:
  static bool IsConvolution(const std::string& type) {
    return type == "conv2d" || type == "depthwise_conv2d" || IsTransposed(type);
  }
  static bool IsTransposed(const std::string& type) {
    return type == "conv2d_transpose" || type == "depthwise_conv2d_transpose";
  }
  static std::vector<std::string> Only(const std::string& var) { return {var}; }

  // One position before the window, and a window of one position without padding.
  bool WindowIsOne(const OpDesc& op, const OpSpec& spec, int axis, int depth) const {
    const bool pool = op.type() == "pool2d";
    const std::vector<std::string>& in = op.Input(pool ? "X" : "Input");
    const std::string layout = spec.AttrOf<std::string>(op, spec.layout_attr);
    const int first = layout == "NHWC" ? 1 : 2, i = axis - first;
    if (in.size() != 1 || i < 0 || i > 1) return false;
    if (pool && (spec.AttrOf<bool>(op, "adaptive") || spec.AttrOf<bool>(op, "global_pooling")))
      return false;
    if (pool) {
      const Ints sizes = spec.AttrOf<Ints>(op, "ksize");
      if (sizes.size() != 2 || sizes[static_cast<size_t>(i)] != 1) return false;
    } else if (op.Input("Filter").size() != 1 || !IsOne(op.Input("Filter")[0], 2 + i, depth + 1)) {
      return false;
    }
    if (IsTransposed(op.type()) && ChoosesSize(op, spec)) return false;
    return PadsNothing(spec.AttrOf<Ints>(op, "paddings"), static_cast<size_t>(i)) &&
           (pool || !HasAnotherInput(op)) && IsOne(in[0], axis, depth + 1);
  }
  static bool ChoosesSize(const OpDesc& op, const OpSpec& spec) {
    const Ints added = spec.AttrOf<Ints>(op, "output_padding");
    return HasAnotherInput(op) || !spec.AttrOf<Ints>(op, "output_size").empty() ||
           std::any_of(added.begin(), added.end(), [](int32_t n) { return n != 0; });
  }
  // Whether it has inputs other than images, filter and bias.
  static bool HasAnotherInput(const OpDesc& op) {
    return op.AnyInput([](const std::string&, const std::string& slot) {
      return slot != "Input" && slot != "Filter" && slot != "Bias";
    });
  }
  static bool PadsNothing(const Ints& paddings, size_t i) {
    if (paddings.size() == 2) return paddings[i] == 0;
    return paddings.size() == 4 && paddings[2 * i] == 0 && paddings[2 * i + 1] == 0;
  }
  // An elementwise op of one variable, or of several that have certain ranks.
  bool SumIsOne(const OpDesc& op, const OpSpec& spec, int axis, int depth) const {
    const std::vector<std::string>&x = op.Input("X"), &y = op.Input("Y");
    if (x.size() != 1 || !IsOne(x[0], axis, depth + 1)) return false;
    if (!HasOtherInput(op, "X")) return true;
    const bool two = y.size() == 1 && !op.AnyInput([](const std::string&, const std::string& slot) {
      return slot != "X" && slot != "Y";
    });
    if (!two || !spec.FindAttr("axis")) return false;
    const int rank = flow_.CertainRank(x[0]), its = flow_.CertainRank(y[0]);
    if (rank < 0 || its < 0 || its > rank) return false;
    int begin = spec.AttrOf<int32_t>(op, "axis");
    if (begin < 0 || its == rank) begin = rank - its;
    return axis < begin || axis >= begin + its || IsOne(y[0], axis - begin, depth + 1);
  }

  const BlockDesc& block_;
  const PassContext& context_;
  const ValueFlow& flow_;
};

}  // namespace

bool IsCertainlyOne(const BlockDesc& block, const PassContext& context, const ValueFlow& flow,
                    const std::string& var, int axis) {
  return OnesFinder(block, context, flow).IsOne(var, axis, 0);
}

}  // namespace coracle::inline internal
