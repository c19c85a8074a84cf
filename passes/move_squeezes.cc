// Lets the ops between 1-D convolutions work on images. A convolution of signals [N, C, L] is one
// of images that are one pixel high, between an unsqueeze and a squeeze. Other passes look for
// images, so the squeeze moves after the ops that follow it, until the next unsqueeze undoes it:
//
//   y4 = conv2d(x4), y = squeeze2(y4) axes=[2], z = relu(y), z4 = unsqueeze2(z) axes=[2]
//
// is replaced by
//
//   y4 = conv2d(x4), z4 = relu(y4)

#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/certain_dims.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

using Ints = std::vector<int32_t>;

constexpr int kImageRank = 4;

bool IsSqueeze(const OpDesc& op) { return op.type() == "squeeze" || op.type() == "squeeze2"; }
bool IsUnsqueeze(const OpDesc& op) { return op.type() == "unsqueeze" || op.type() == "unsqueeze2"; }

// An image of which a signal lacks axis `dropped`, which has one position.
struct Image {
  std::string name;
  int dropped = 0;

  int AxisOf(int axis_of_signal) const {
    return axis_of_signal >= dropped ? axis_of_signal + 1 : axis_of_signal;
  }
};

// An op as it works on the images of signals.
struct OnImages {
  OpDesc op;                                       // still reads and writes the signals
  int dropped = 0;                                 // of its inputs and output
  std::unordered_map<std::string, int> constants;  // need a dimension of 1 at this position
};

using Images = std::unordered_map<std::string, Image>;  // by signal

class ImageOps {
 public:
  ImageOps(const BlockDesc& block, const PassContext& context, const Images& images)
      : block_(block), context_(context), images_(images) {}

  // nullopt for an op that cannot work on images. REQUIRES: an input is a signal with an image.
  std::optional<OnImages> Find(const OpDesc& op, const OpSpec& spec) const {
    const Image& image = images_.at(AnImage(op));
    OnImages on = {op, image.dropped, {}};
    const bool differs = op.AnyInput([&](const std::string& name) {
      const auto its = images_.find(name);
      return its != images_.end() && its->second.dropped != image.dropped;
    });
    if (differs || spec.random || !SetAxis(op, spec, image, on.op) ||
        !ConvertOperands(op, spec, image, on))
      return std::nullopt;
    return on;
  }

 private:
  std::string AnImage(const OpDesc& op) const {
    std::string found;
    op.ForEachInput([&](const std::string& name) {
      if (images_.count(name)) found = name;
    });
    return found;
  }

  // Whether the op works on images as on signals, perhaps with other numbers of axes.
  bool SetAxis(const OpDesc& op, const OpSpec& spec, const Image& image, OpDesc& now) const {
    if (WorksOnElements(op, spec, block_, context_)) return true;
    const bool all =
        !op.AnyInput([&](const std::string& name) { return images_.count(name) == 0; });
    if (all && op.type() == "concat") {
      const int axis = spec.AttrOf<int32_t>(op, "axis"), rank = kImageRank - 1;
      if (axis < -rank || axis >= rank) return false;
      now.SetAttr("axis", image.AxisOf(axis < 0 ? axis + rank : axis));
      return true;
    }
    return op.type() == "batch_norm" && op.Input("X").size() == 1 &&
           images_.count(op.Input("X")[0]) > 0 &&
           spec.AttrOf<std::string>(op, "data_layout") != "NHWC";
  }

  // Prepares the other operands of an elementwise op; those that need another shape are noted. The
  // axis of Y changes with the axes of X.
  bool ConvertOperands(const OpDesc& op, const OpSpec& spec, const Image& image,
                       OnImages& on) const {
    OpDesc& now = on.op;
    if (!WorksOnElements(op, spec, block_, context_)) return true;
    const std::vector<std::string>&x = op.Input("X"), &y = op.Input("Y");
    std::unordered_set<std::string> others;
    op.ForEachInput([&](const std::string& name, const std::string& slot) {
      if (!images_.count(name) && !IsTable(spec, slot)) others.insert(name);
    });
    const bool binary = spec.FindAttr("axis") && x.size() == 1 && y.size() == 1;
    if (others.empty()) return !binary || spec.AttrOf<int32_t>(op, "axis") <= 0;
    if (!binary || others.size() != 1) return false;
    const Tensor* value = context_.FrozenValue(*others.begin());
    if (!value) return false;
    const Shape& shape = value->shape();
    if (shape.rank() <= 1 && shape.numel() == 1) {
      now.SetAttr("axis", int32_t{-1});
      return true;
    }
    const int rank = kImageRank - 1, given = spec.AttrOf<int32_t>(op, "axis");
    if (!images_.count(x[0]) || shape.rank() > rank || given >= rank || given < -1) return false;
    const int begin = given < 0 || shape.rank() == rank ? rank - shape.rank() : given;
    if (begin + shape.rank() > rank) return false;
    if (shape.rank() == 1) {
      now.SetAttr("axis", image.AxisOf(begin));
      return true;
    }
    if (begin + shape.rank() != rank || begin >= image.dropped) return false;
    now.SetAttr("axis", int32_t{-1});
    on.constants[*others.begin()] = image.dropped - begin;
    return true;
  }

  const BlockDesc& block_;
  const PassContext& context_;
  const Images& images_;
};

class SqueezeMover {
 public:
  SqueezeMover(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), block_(program.Root()), flow_(program, context) {}

  void Run() {
    std::as_const(block_).ForEachOp([&](const OpDesc& op) {
      if (!flow_.IsRecomputed(op) && !op.HasSubBlock()) Classify(op);
    });
    if (moved_.empty() && exits_.empty()) return;
    std::vector<std::unique_ptr<OpDesc>> made;
    for (std::unique_ptr<OpDesc>& op : block_.ReleaseOps()) Emit(std::move(op), made);
    for (const std::unique_ptr<OpDesc>& op : made) {
      op->RenameInputs([&](const std::string& name) {
        const auto renamed = renamed_.find(name);
        return renamed == renamed_.end() ? name : renamed->second;
      });
    }
    block_.SetOps(std::move(made));
    EliminateDeadCode(program_, context_);
  }

 private:
  void Classify(const OpDesc& op) {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec) return;
    if (IsSqueeze(op)) return AddEntry(op, *spec);
    if (!op.AnyInput([&](const std::string& name) { return images_.count(name) > 0; })) return;
    if (IsUnsqueeze(op)) return AddExit(op, *spec);
    const std::string* out = SoleResult(op);
    const auto on = out ? ImageOps(block_, context_, images_).Find(op, *spec) : std::nullopt;
    if (on) Move(op, *on, *out);
  }

  // A squeeze of the result of an op on images.
  void AddEntry(const OpDesc& op, const OpSpec& spec) {
    const Ints axes = spec.AttrOf<Ints>(op, "axes");
    if (HasOtherInput(op, "X") || op.Input("X").size() != 1 || axes.size() != 1) return;
    const std::string &from = op.Input("X")[0], &to = op.Output("Out")[0];
    const int dropped = axes[0] < 0 ? axes[0] + kImageRank : axes[0];
    if (dropped < 2 || dropped >= kImageRank || !IsOfImages(from)) return;
    if (flow_.CertainRank(from) == kImageRank && flow_.IsConstantInARun(from) &&
        flow_.IsTemporary(to) && flow_.IsOnlyOutput(op, to) &&
        IsCertainlyOne(block_, context_, flow_, from, dropped))
      images_[to] = {from, dropped};
  }

  // Whether an op on images writes it, perhaps with elementwise ops after it.
  bool IsOfImages(std::string var) const {
    constexpr int kMostOps = 4;  // bias, residual, activation
    for (int i = 0; i < kMostOps && flow_.IsTemporary(var); ++i) {
      const OpDesc& writer = *std::as_const(block_).Uses(var).writers[0];
      const OpSpec* spec = context_.ops.Find(writer.type());
      if (!spec) return false;
      if (!spec->layout_attr.empty()) return true;
      if (!WorksOnElements(writer, *spec, block_, context_) || writer.Input("X").size() != 1)
        return false;
      var = writer.Input("X")[0];
    }
    return false;
  }

  // An unsqueeze that makes the image again.
  void AddExit(const OpDesc& op, const OpSpec& spec) {
    const Ints axes = spec.AttrOf<Ints>(op, "axes");
    const std::string& to = op.Output("Out")[0];
    if (HasOtherInput(op, "X") || axes.size() != 1 || !flow_.IsTemporary(to) ||
        !flow_.IsOnlyOutput(op, to))
      return;
    const Image& image = images_.at(op.Input("X")[0]);
    if ((axes[0] < 0 ? axes[0] + kImageRank : axes[0]) != image.dropped) return;
    renamed_[to] = image.name;
    exits_.insert(&op);
  }

  // Makes the op read and write images.
  void Move(const OpDesc& op, const OnImages& on, const std::string& out) {
    OpDesc now(on.op);
    now.RenameInputs([&](const std::string& name) {
      const auto its = images_.find(name);
      if (its != images_.end()) return its->second.name;
      const auto constant = on.constants.find(name);
      return constant == on.constants.end() ? name : ConstantImage(name, constant->second);
    });
    const std::string made = NewImage(out, on.dropped);
    now.RenameOutputs([&](const std::string& name) { return name == out ? made : name; });
    images_[out] = {made, on.dropped};
    moved_.emplace(&op, std::pair(std::move(now), out));
  }

  // The output, if no op reads another one.
  const std::string* SoleResult(const OpDesc& op) const {
    for (const char* slot : {"Out", "Y"}) {
      const std::vector<std::string>& names = op.Output(slot);
      if (names.size() != 1 || !flow_.IsTemporary(names[0])) continue;
      const bool sole = !op.AnyOutput([&](const std::string& name) {
        return name != names[0] && !flow_.IsUnread(name) && !op.Reads(name);
      });
      return sole ? &names[0] : nullptr;
    }
    return nullptr;
  }

  // The constant with a dimension of 1 at `at`.
  std::string ConstantImage(const std::string& name, int at) {
    const Tensor& value = *context_.FrozenValue(name);
    std::vector<int64_t> dims = value.shape().ToVector();
    dims.insert(dims.begin() + at, 1);
    return context_.AddFrozenForm(program_, name, "@IMAGE", value.Reshaped(Shape(dims)).Clone());
  }

  std::string NewImage(const std::string& signal, int dropped) {
    VarMeta meta = block_.FindVar(signal)->meta();
    std::vector<int64_t> dims = meta.shape.ToVector();
    const auto at = std::min(static_cast<size_t>(dropped), dims.size());
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at), 1);
    meta.shape = Shape(dims);
    return context_.AddForm(program_, signal, "@IMAGE", meta);
  }

  // Appends what replaces the op: after a moved op, a squeeze for readers that did not move.
  void Emit(std::unique_ptr<OpDesc> op, std::vector<std::unique_ptr<OpDesc>>& made) {
    if (exits_.count(op.get())) return;
    const auto moved = moved_.find(op.get());
    if (moved == moved_.end()) return void(made.push_back(std::move(op)));
    const auto& [now, out] = moved->second;
    made.push_back(std::make_unique<OpDesc>(now));
    const Image& image = images_.at(out);
    made.push_back(std::make_unique<OpDesc>("squeeze2", SlotList{{"X", {image.name}}},
                                            SlotList{{"Out", {out}}},
                                            AttrList{{"axes", Ints{image.dropped}}}));
    AddOrigins(*op, *made.back());
  }
  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const ValueFlow flow_;
  Images images_;
  std::unordered_map<const OpDesc*, std::pair<OpDesc, std::string>> moved_;  // and the result
  std::unordered_set<const OpDesc*> exits_;
  std::unordered_map<std::string, std::string> renamed_;  // results of exits to their images
};

}  // namespace

void MoveSqueezes(ProgramDesc& program, const PassContext& context) {
  if (context.frozen && AnyOp(program.Root(), IsSqueeze)) SqueezeMover(program, context).Run();
}

}  // namespace coracle::inline internal
