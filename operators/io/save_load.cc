#include <coracle/framework/base/file_access.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <fmt/format.h>

#include <cstring>

namespace coracle::save_load_op {

constexpr uint64_t kFileSlack = uint64_t{16} << 20;  // for descriptions and LoD
// For selected rows, whose size is not declared.
constexpr uint64_t kMaxSparseFile = uint64_t{1} << 34;

// Standard input and output are not valid paths.
void InferPath(const InferContext& ctx) {
  std::string path = ctx.Attr<std::string>("file_path");
  if (path.empty() || path == "-") ctx.Fail("C1", Quote(path));
}

// --- save ---

void InferSave(InferContext& ctx) { InferPath(ctx); }

void InferSaveCombine(InferContext& ctx) {
  InferPath(ctx);
  ctx.Require("C2", !ctx.Attr<bool>("save_to_memory"), true);
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    ctx.Require("C3", ctx.Input("X", i).type == VarType::kLoDTensor, ctx.Input("X", i));
  }
}

Tensor ToSave(const Tensor& tensor, bool as_fp16) {
  if (!as_fp16 || !IsFloating(tensor.dtype())) return tensor;
  Tensor half = tensor.Cast(DType::kFloat16);
  half.lod() = tensor.lod();
  return half;
}

void AppendValue(const VarValue& value, bool as_fp16, std::string* bytes) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) {
    AppendTensor(ToSave(*tensor, as_fp16), bytes);
  } else if (const auto* rows = std::get_if<SelectedRows>(&value)) {
    AppendSelectedRows({rows->rows, rows->height, ToSave(rows->value, as_fp16)}, bytes);
  } else {
    ThrowInvalid("save: X holds neither a tensor nor selected rows");
  }
}

Kernel Save(const PrepareContext& ctx) {
  std::vector<TensorArg> inputs = ctx.Inputs("X");
  std::string path = ctx.Attr<std::string>("file_path");
  bool overwrite = ctx.Attr<bool>("overwrite");
  bool as_fp16 = ctx.Attr<bool>("save_as_fp16");
  return [=, files = ctx.files()](Workspace& ws) {
    std::string bytes;
    for (const TensorArg& input : inputs) AppendValue(ws.ValueOf(input), as_fp16, &bytes);
    files.Write(path, bytes, overwrite);
  };
}

// --- load ---

// Outputs have their declared types.
void InferOutputs(InferContext& ctx) {
  for (size_t i = 0; i < ctx.NumOutputs("Out"); ++i) {
    const VarMeta* declared = ctx.DeclaredOutput("Out", i);
    if (!declared) continue;
    VarMeta meta = *declared;
    if (ctx.Attr<bool>("load_as_fp16") && IsFloating(meta.dtype)) meta.dtype = DType::kFloat16;
    if (ctx.exact() && meta.type == VarType::kLoDTensor && !meta.shape.IsKnown())
      ctx.Fail("C2", meta);
    ctx.SetOutput("Out", meta, i);
  }
}

void InferLoad(InferContext& ctx) {
  InferPath(ctx);
  int64_t seek = ctx.Attr<int64_t>("seek");
  auto shape = ctx.Attr<std::vector<int64_t>>("shape");
  ctx.Require("C3", seek < 0 || !shape.empty(), seek);
  InferOutputs(ctx);
  const VarMeta* out = ctx.DeclaredOutput("Out");
  if (seek < 0 || !out) return;
  bool fits = shape.size() <= static_cast<size_t>(Shape::kMaxRank) &&
              out->shape.CompatibleWith(Shape(shape)) && Shape(shape).IsKnown();
  if (!fits) ctx.Fail("C4", shape, out->shape);
}

void InferLoadCombine(InferContext& ctx) {
  if (!ctx.Attr<bool>("model_from_memory")) InferPath(ctx);
  for (size_t i = 0; i < ctx.NumOutputs("Out"); ++i) {
    const VarMeta* out = ctx.DeclaredOutput("Out", i);
    if (out && out->type != VarType::kLoDTensor) ctx.Fail("C3", *out);
  }
  InferOutputs(ctx);
}

struct LoadTarget {
  TensorArg arg;
  std::string name;
};

std::vector<LoadTarget> Targets(const PrepareContext& ctx) {
  std::vector<LoadTarget> targets;
  const auto& names = ctx.op().Output("Out");
  for (size_t i = 0; i < names.size(); ++i) targets.push_back({ctx.Output("Out", i), names[i]});
  return targets;
}

uint64_t LargestFile(const std::vector<LoadTarget>& targets) {
  uint64_t elements = 0;
  for (const LoadTarget& target : targets) elements += static_cast<uint64_t>(target.arg.numel);
  return elements * 16 + kFileSlack;
}

// Copies a loaded tensor into the op's output; floating-point types are converted.
void Deliver(Workspace& ws, const LoadTarget& target, Tensor tensor, const std::string& path) {
  if (!target.arg) return;  // @EMPTY@
  CheckLod(target.name, tensor);
  const LoD lod = std::move(tensor.lod());
  bool fits = tensor.shape() == target.arg.shape &&
              (tensor.dtype() == target.arg.dtype ||
               (IsFloating(tensor.dtype()) && IsFloating(target.arg.dtype)));
  if (!fits) {
    ThrowInvalid(fmt::format("load: {} holds {} for {}, but its declared type is {}{}", path,
                             tensor.ToString(), Quote(target.name), ToString(target.arg.dtype),
                             target.arg.shape.ToString()));
  }
  if (tensor.dtype() != target.arg.dtype) tensor = tensor.Cast(target.arg.dtype);
  if (!tensor.empty()) std::memcpy(ws.Data<void>(target.arg), tensor.raw(), tensor.nbytes());
  ws.OutputLod(target.arg) = lod;
}

void RequireEnd(const std::string& path, size_t left) {
  if (left == 0) return;
  throw Error(ErrorCode::kDataLoss, fmt::format("load: {} bytes of {} are left over", left, path));
}

// The part of `shape` that begins at element `seek`.
Tensor Part(const Tensor& tensor, int64_t seek, const Shape& shape, const std::string& path) {
  int64_t numel = shape.numel();
  if (seek > tensor.numel() || numel > tensor.numel() - seek) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("load: {} elements from {} on are requested from {}, which holds {}",
                            numel, seek, path, tensor.ToString()));
  }
  Tensor part(tensor.dtype(), shape);
  size_t width = SizeOf(tensor.dtype());
  if (numel > 0) {
    std::memcpy(part.raw(),
                static_cast<const char*>(tensor.raw()) + static_cast<size_t>(seek) * width,
                part.nbytes());
  }
  return part;
}

Kernel Load(const PrepareContext& ctx) {
  LoadTarget target{ctx.Output("Out"), ctx.op().Output("Out").at(0)};
  std::string path = ctx.Attr<std::string>("file_path");
  int64_t seek = ctx.Attr<int64_t>("seek");
  // The part may be a small piece of a large file.
  uint64_t largest = seek < 0 ? LargestFile({target}) : kMaxSparseFile;
  return [=, files = ctx.files()](Workspace& ws) {
    size_t offset = 0;
    if (auto* rows = std::get_if<SelectedRows>(&ws.ValueOf(target.arg))) {
      std::string bytes = files.Read(path, kMaxSparseFile);
      *rows = ParseSelectedRows(bytes, &offset, path);
      return RequireEnd(path, bytes.size() - offset);
    }
    std::string bytes = files.Read(path, largest);
    Tensor tensor = ParseTensor(bytes, &offset, path);
    RequireEnd(path, bytes.size() - offset);
    if (seek >= 0) tensor = Part(tensor, seek, target.arg.shape, path);
    Deliver(ws, target, std::move(tensor), path);
  };
}

Kernel LoadCombine(const PrepareContext& ctx) {
  std::vector<LoadTarget> targets = Targets(ctx);
  std::string path = ctx.Attr<std::string>("file_path");
  bool from_memory = ctx.Attr<bool>("model_from_memory");
  return [=, files = ctx.files()](Workspace& ws) {
    std::string source = from_memory ? "attr file_path" : path;
    std::string bytes = from_memory ? path : files.Read(path, LargestFile(targets));
    size_t offset = 0;
    for (const LoadTarget& target : targets)
      Deliver(ws, target, ParseTensor(bytes, &offset, source), source);
    RequireEnd(source, bytes.size() - offset);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("save")
          .Doc(
              "Writes X to the file file_path as a tensor stream (a selected-rows stream when X is "
              "sparse). Missing directories are created. The run must allow it (--allow_files).")
          .Constraint("C1", "file_path must name a file")
          .Input("X", "tensor or selected rows")
          .Attr<std::string>("file_path", "file to write, relative to the allowed directory")
          .Attr<bool>("overwrite", true, "whether an existing file may be replaced")
          .Attr<bool>("save_as_fp16", false, "write floating-point elements as float16")
          .NotDifferentiable("writes a file")
          .SideEffect()
          .NamesFile("file_path")
          .Rows(RowRule::kEach)
          .Infer(InferSave)
          .Reference(Save));
  ops.Add(OpDef("save_combine")
              .Doc("Writes all X, in their order, to the file file_path as tensor streams; names "
                   "are not kept.")
              .Constraint("C1", "file_path must name a file")
              .Constraint("C2", "save_to_memory is not supported; save to a file")
              .Constraint("C3", "X must be dense tensors")
              .VariadicInput("X", "dense tensors")
              .OptionalOutput("Y", "not written; for save_to_memory")
              .Attr<std::string>("file_path", "file to write, relative to the allowed directory")
              .Attr<bool>("overwrite", true, "whether an existing file may be replaced")
              .Attr<bool>("save_as_fp16", false, "write floating-point elements as float16")
              .Attr<bool>("save_to_memory", false, "must be false")
              .NotDifferentiable("writes a file")
              .SideEffect()
              .NamesFile("file_path")
              .Rows(RowRule::kEach)
              .Infer(InferSaveCombine)
              .Reference(Save));
  ops.Add(OpDef("load")
              .Doc("Out = the value in the file file_path, which must have Out's declared shape; "
                   "floating-point elements are converted to Out's type.")
              .Constraint("C1", "file_path must name a file")
              .Constraint("C2", "Out must be declared with a fully known shape")
              .Constraint("C3", "seek needs attr shape")
              .Constraint("C4", "attr shape must be the shape of Out")
              .Output("Out", "tensor or selected rows, as declared")
              .Attr<std::string>("file_path", "file to read, relative to the allowed directory")
              .Attr<bool>("load_as_fp16", false, "make Out float16")
              .Attr<int64_t>("seek", int64_t{-1},
                             "first element of a part of the file's tensor; negative: all of it")
              .Attr<std::vector<int64_t>>("shape", {}, "shape of the part")
              .NotDifferentiable("reads a file")
              .SideEffect()
              .NamesFile("file_path")
              .MakesLod()
              .Rows(RowRule::kEach)
              .Infer(InferLoad)
              .Reference(Load));
  ops.Add(OpDef("load_combine")
              .Doc("Out = the tensors in the file file_path, in its order, each of its variable's "
                   "declared shape; nothing may be left over.")
              .Constraint("C1", "file_path must name a file")
              .Constraint("C2", "Out must be declared with a fully known shape")
              .Constraint("C3", "Out must be dense tensors")
              .VariadicOutput("Out", "dense tensors, as declared")
              .Attr<std::string>("file_path",
                                 "file to read, relative to the allowed directory; with "
                                 "model_from_memory, the contents themselves")
              .Attr<bool>("load_as_fp16", false, "make Out float16")
              .Attr<bool>("model_from_memory", false, "file_path holds the bytes themselves")
              .NotDifferentiable("reads a file")
              .SideEffect()
              .NamesFile("file_path", "model_from_memory")
              .MakesLod()
              .Rows(RowRule::kEach)
              .Infer(InferLoadCombine)
              .Reference(LoadCombine));
}

}  // namespace coracle::save_load_op
