#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

bool IsConvolution(std::string_view type) {
  return type == "conv2d" || type == "depthwise_conv2d" || type == "conv3d";
}
bool IsGradient(std::string_view type) {
  return type == "conv2d_grad" || type == "depthwise_conv2d_grad" || type == "conv3d_grad";
}

bool IsCastToBFloat16(const OpDesc& op) {
  return op.type() == "cast" &&
         op.GetAttr<int32_t>("out_dtype", -1) == static_cast<int32_t>(DType::kBFloat16);
}

class FilterWidener {
 public:
  FilterWidener(ProgramDesc& program, const PassContext& context)
      : context_(context),
        block_(program.Root()),
        flow_(program, context),
        dtypes_(program, context) {}

  void Run() {
    block_.ForEachOp([&](OpDesc& op) {
      if (op.type() == "cast") Widen(op);
    });
    flow_.Apply();
  }

 private:
  // A gradient op that will write `wide`, and the cast that made it from the op's result.
  struct Gradient {
    const OpDesc *op, *cast;
    std::string wide;
  };

  void Widen(const OpDesc& cast) {
    if (flow_.IsRecomputed(cast) || cast.Input("X").size() != 1 || cast.Output("Out").size() != 1)
      return;
    const std::string &wide = cast.Input("X")[0], &half = cast.Output("Out")[0];
    if (DTypeOfTensor(block_, wide) != DType::kFloat32 ||
        DTypeOfTensor(block_, half) != DType::kBFloat16 || !IsCertain(wide))
      return;
    if (!flow_.MayStandFor(wide, cast, half)) return;
    std::vector<Gradient> gradients;
    for (const OpDesc* reader : block_.Uses(half).readers) {
      if (!ReadsAsFilter(*reader, half) || !AddGradient(*reader, gradients)) return;
    }
    for (const Gradient& gradient : gradients) {
      OpDesc with = *gradient.op;
      with.SetInput("Filter", {wide});
      with.SetOutput("Filter@GRAD", {gradient.wide});
      flow_.Replace(*gradient.op, std::move(with));
      flow_.Remove(*gradient.cast);
    }
    flow_.Forward(half, wide);
    flow_.Remove(cast);
  }

  // The op that updates a parameter checks its dtype.
  bool IsCertain(const std::string& wide) const {
    return dtypes_.Find(wide) == DType::kFloat32 || !block_.Uses(wide).writers.empty();
  }

  bool ReadsAsFilter(const OpDesc& op, const std::string& half) const {
    if (flow_.IsRecomputed(op) || flow_.IsReplaced(op)) return false;
    if (!IsConvolution(op.type()) && !IsGradient(op.type())) return false;
    return !op.AnyInput([&](const std::string& name, const std::string& slot) {
      return slot == "Filter" ? name != half : name == half;
    });
  }

  // Returns false if the filter's gradient is used in 16 bits.
  bool AddGradient(const OpDesc& op, std::vector<Gradient>& gradients) const {
    const std::vector<std::string>& made = op.Output("Filter@GRAD");
    if (!IsGradient(op.type()) || made.empty() || IsEmptyName(made[0])) return true;
    const auto readers = block_.Uses(made[0]).readers;
    if (!flow_.IsTemporary(made[0]) || readers.size() != 1) return false;
    const OpDesc& cast = *readers[0];
    if (cast.type() != "cast" || flow_.IsRecomputed(cast)) return false;
    const std::string& wide = cast.Output("Out")[0];
    if (DTypeOfTensor(block_, wide) != DType::kFloat32 || context_.captured.count(wide) ||
        context_.feeds.count(wide))
      return false;
    if (block_.Uses(wide).writers.size() != 1) return false;
    // It will be written at the gradient op, which precedes the cast.
    for (const OpDesc* reader : block_.Uses(wide).readers) {
      if (block_.IndexOf(*reader) < block_.IndexOf(cast)) return false;
    }
    gradients.push_back({&op, &cast, wide});
    return true;
  }

  const PassContext& context_;
  BlockDesc& block_;
  ValueFlow flow_;
  const CertainDTypes dtypes_;
};

}  // namespace

void WidenFilters(ProgramDesc& program, const PassContext& context) {
  // Checks for casts first: most programs have none, and BFloat16ProductsPay measures speed.
  if (!AnyOp(program.Root(), IsCastToBFloat16) || BFloat16ProductsPay()) return;
  FilterWidener(program, context).Run();
}

}  // namespace coracle::inline internal
