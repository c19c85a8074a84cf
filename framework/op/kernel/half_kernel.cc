#include <coracle/framework/base/file_access.h>
#include <coracle/framework/op/kernel/forwarding_args.h>
#include <coracle/framework/op/kernel/half_kernel.h>
#include <coracle/framework/op/kernel/kernel_choice.h>
#include <coracle/framework/tensor/half_array.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

namespace coracle::inline internal {
namespace {

// A variable of the op and its float32 copy.
struct Pair {
  TensorArg half, wide;
  int uses = 1;  // how often the kernel has asked for it, minus how often it has packed it
};

void Widen(Workspace& ws, const Pair& pair) {
  if (pair.half.type != VarType::kSelectedRows) {
    HalfToFloat(pair.half.dtype, ws.Data<const void>(pair.half), ws.Data<float>(pair.wide),
                pair.half.numel);
    return;
  }
  const VarValue& value = ws.ValueOf(pair.half);
  VarValue& wide = ws.ValueOf(pair.wide);
  const auto* from = std::get_if<SelectedRows>(&value);
  if (!from || from->value.dtype() != pair.half.dtype) {
    wide = value;  // the kernel reports what is wrong with it
    return;
  }
  if (!std::holds_alternative<SelectedRows>(wide)) wide = SelectedRows();
  auto& to = std::get<SelectedRows>(wide);
  to.rows.assign(from->rows.begin(), from->rows.end());
  to.height = from->height;
  to.value.Resize(DType::kFloat32, from->value.shape());
  HalfToFloat(pair.half.dtype, from->value.raw(), to.value.data<float>(), from->value.numel());
}

// Whether only the kernel knows the shape; the copy is then a separate value.
bool HasRunTimeShape(const TensorArg& half) {
  return half.type == VarType::kLoDTensor && !half.shape.IsKnown();
}

void NarrowResized(Workspace& ws, const Pair& pair) {
  const auto& from = std::get<Tensor>(ws.ValueOf(pair.wide));
  Tensor& to = ResizeOutput(ws, pair.half, pair.half.dtype, from.shape());
  FloatToHalf(from.data<float>(), pair.half.dtype, to.raw(), from.numel());
  to.lod() = from.lod();
}

void Narrow(Workspace& ws, const Pair& pair) {
  if (HasRunTimeShape(pair.half)) return NarrowResized(ws, pair);
  if (pair.half.type != VarType::kSelectedRows) {
    FloatToHalf(ws.Data<const float>(pair.wide), pair.half.dtype, ws.Data<void>(pair.half),
                pair.half.numel);
    return;
  }
  const auto& from = std::get<SelectedRows>(ws.ValueOf(pair.wide));
  VarValue& value = ws.ValueOf(pair.half);
  if (!std::holds_alternative<SelectedRows>(value)) value = SelectedRows();
  auto& to = std::get<SelectedRows>(value);
  to.rows.assign(from.rows.begin(), from.rows.end());
  to.height = from.height;
  to.value.Resize(pair.half.dtype, from.value.shape());
  FloatToHalf(from.value.data<float>(), pair.half.dtype, to.value.raw(), from.value.numel());
}

void CopyLod(Workspace& ws, const TensorArg& from, const TensorArg& to) {
  if (from.type != VarType::kLoDTensor) return;
  const LoD& lod = ws.LodOf(from);
  if (ws.LodOf(to) != lod) ws.OutputLod(to) = lod;
}

// Prepares empty rows for a kernel to fill; the kernel produces their dtype.
void PrepareRows(Workspace& ws, const Pair& pair) {
  VarValue& wide = ws.ValueOf(pair.wide);
  if (std::holds_alternative<SelectedRows>(wide)) return;
  SelectedRows none;
  Shape shape = pair.half.shape;
  for (int i = 0; i < shape.rank(); ++i) shape[i] = i == 0 ? 0 : std::max<int64_t>(shape[i], 0);
  none.value = Tensor(DType::kFloat32, shape);
  wide = std::move(none);
}

// Gives the kernel float32 copies of 16-bit variables.
class WideArgs : public ForwardingArgs {
 public:
  explicit WideArgs(const PrepareContext& context)
      : ForwardingArgs(context.args()), context_(context) {}

  TensorArg Read(const std::string& name) override {
    const TensorArg given = args_.Read(name);
    if (Takes(given)) return Copy(reads_, name, given);
    ++plain_uses_[name];
    return given;
  }
  TensorArg Write(const std::string& name) override {
    const TensorArg given = args_.Write(name);
    if (!Takes(given)) return given;
    // The kernel may leave a part of the variable unchanged.
    if (context_.spec().UpdatesInPlace(context_.op(), name)) {
      const TensorArg read = Read(name);
      return writes_.try_emplace(name, Pair{given, read}).first->second.wide;
    }
    return Copy(writes_, name, given);
  }
  // The variables as stored; absent if PrepareInFloat does not convert them, or not in one piece.
  TensorArg ReadHalf(const std::string& name) {
    const TensorArg given = args_.Read(name);
    return IsPlain(given) ? given : TensorArg();
  }
  TensorArg WriteHalf(const std::string& name) {
    if (context_.spec().UpdatesInPlace(context_.op(), name)) return {};
    const TensorArg given = args_.Write(name);
    return IsPlain(given) ? given : TensorArg();
  }
  void NoteKernel(const std::string& name) override { args_.NoteKernel(name + " in float32"); }
  const Tensor* Constant(const std::string& name) override {
    const Tensor* given = args_.Constant(name);
    if (!given || !IsHalf(given->dtype())) return given;
    auto [it, added] = constants_.try_emplace(name);
    if (added) it->second = std::make_shared<Tensor>(given->Cast(DType::kFloat32));
    return it->second.get();
  }
  // A kernel that packs the float32 copy of a constant needs no copy in each run.
  std::shared_ptr<const Tensor> Packed(const std::string& name,
                                       const PackedLayout& layout) override {
    if (writes_.count(name)) return ArgTable::Packed(name, layout);
    if (const auto plain = plain_uses_.find(name); plain != plain_uses_.end()) {
      auto packed = args_.Packed(name, layout);
      if (packed && --plain->second > 0) args_.Read(name);
      return packed;
    }
    const auto read = reads_.find(name);
    if (read == reads_.end()) return ArgTable::Packed(name, layout);
    const DType half = read->second.half.dtype;
    PackedLayout wide{fmt::format("{} from {}", layout.id, ToString(half)), {}, {}};
    wide.pack = [pack = layout.pack](const Tensor& plain) {
      return pack(plain.Cast(DType::kFloat32));
    };
    if (layout.unpack) {
      wide.unpack = [unpack = layout.unpack, half](const Tensor& packed) {
        return unpack(packed).Cast(half);
      };
    }
    auto packed = args_.Packed(name, wide);
    if (!packed) return packed;
    // The kernel may ask for other layouts, or read the variable unpacked after all, by the arg
    // that it has got before.
    if (read->second.uses > 0 && --read->second.uses > 0) args_.Read(name);
    return packed;
  }

  Kernel Around(Kernel kernel) const {
    std::vector<Pair> in, out;
    for (const auto& [name, pair] : reads_)
      if (pair.uses > 0) in.push_back(pair);
    for (const auto& [name, pair] : writes_) out.push_back(pair);
    return [in, out, kernel = std::move(kernel), constants = constants_,
            makes_lod = context_.spec().makes_lod](Workspace& ws) {
      for (const Pair& pair : in) {
        Widen(ws, pair);
        CopyLod(ws, pair.half, pair.wide);
      }
      for (const Pair& pair : out) {
        if (pair.half.type == VarType::kSelectedRows) PrepareRows(ws, pair);
      }
      kernel(ws);
      for (const Pair& pair : out) {
        Narrow(ws, pair);
        if (makes_lod && !HasRunTimeShape(pair.half)) CopyLod(ws, pair.wide, pair.half);
      }
    };
  }

 private:
  using Pairs = std::map<std::string, Pair>;

  static bool Takes(const TensorArg& arg) {
    return IsHalf(arg.dtype) &&
           (arg.type == VarType::kLoDTensor || arg.type == VarType::kSelectedRows);
  }
  static bool IsPlain(const TensorArg& arg) {
    return IsHalf(arg.dtype) && arg.type == VarType::kLoDTensor && !HasRunTimeShape(arg);
  }
  TensorArg Copy(Pairs& pairs, const std::string& name, const TensorArg& given) {
    auto it = pairs.find(name);
    if (it != pairs.end()) {
      ++it->second.uses;
      return it->second.wide;
    }
    TensorArg wide = given;
    wide.dtype = DType::kFloat32;
    const bool any_shape = given.type == VarType::kSelectedRows || HasRunTimeShape(given);
    wide.index = (any_shape ? args_.ScratchValue() : args_.Scratch(wide.dtype, given.shape)).index;
    pairs.emplace(name, Pair{given, wide});
    return wide;
  }
  const PrepareContext& context_;
  Pairs reads_, writes_;
  std::map<std::string, int> plain_uses_;  // like Pair::uses, for variables that are not converted
  std::map<std::string, std::shared_ptr<Tensor>> constants_;
};

}  // namespace

Kernel PrepareInFloat(const PrepareContext& context, KernelMode mode) {
  WideArgs args(context);
  const PrepareContext wide(context.spec(), context.op(), args);
  Kernel kernel = PrepareKernel(wide, mode);
  return args.Around(std::move(kernel));
}

TensorArg HalfInput(const PrepareContext& context, std::string_view slot) {
  auto* args = dynamic_cast<WideArgs*>(&context.args());
  const std::vector<std::string>& names = context.op().Input(slot);
  if (!args || names.size() != 1 || IsEmptyName(names[0])) return {};
  return args->ReadHalf(names[0]);
}

TensorArg HalfOutput(const PrepareContext& context, std::string_view slot) {
  auto* args = dynamic_cast<WideArgs*>(&context.args());
  const std::vector<std::string>& names = context.op().Output(slot);
  if (!args || names.size() != 1 || IsEmptyName(names[0])) return {};
  return args->WriteHalf(names[0]);
}

}  // namespace coracle::inline internal
