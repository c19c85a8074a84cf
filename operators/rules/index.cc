#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

namespace coracle::inline internal {

void ThrowIndexRange(const std::string& op, const char* slot, int64_t at, int64_t value,
                     int64_t limit) {
  throw Error(ErrorCode::kOutOfRange,
              fmt::format("{}: {} holds {} at {}, outside [0, {})", op, slot, value, at, limit));
}

IntListArg::IntListArg(const PrepareContext& ctx, const char* list_slot, const char* tensor_slot,
                       const char* attr) {
  auto check = [&](const TensorArg& arg, const char* slot, bool one) {
    if (!arg || !IsIndexType(arg.dtype) || (one && arg.numel != 1))
      ctx.Unsupported(fmt::format("{} must hold {}int32 or int64", slot, one ? "one " : ""));
  };
  if (ctx.HasInput(list_slot)) {
    list_ = ctx.Inputs(list_slot);
    for (const TensorArg& arg : list_) check(arg, list_slot, true);
    size_ = list_.size();
  } else if (ctx.HasInput(tensor_slot)) {
    tensor_ = ctx.Input(tensor_slot);
    check(tensor_, tensor_slot, false);
    size_ = static_cast<size_t>(tensor_.numel);
  } else {
    values_ = ctx.Attr<std::vector<int64_t>>(attr);
    size_ = values_.size();
  }
}

}  // namespace coracle::inline internal
