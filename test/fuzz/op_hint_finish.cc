#include <coracle/test/fuzz/op_hint_finish.h>

#include <algorithm>
#include <numeric>

namespace coracle {
namespace {

using Ints = std::vector<int32_t>;

int Rank(const OpDraft& d, std::string_view slot) { return d.ShapeOf(slot).rank(); }

}  // namespace

void Permutation(OpDraft& d) {
  Ints axis(static_cast<size_t>(Rank(d, "X")));
  std::iota(axis.begin(), axis.end(), 0);
  for (size_t i = axis.size(); i > 1; --i) std::swap(axis[i - 1], axis[d.choose.Below(i)]);
  d.Set("axis", axis);
}

// Another shape of as many elements: dims merged, split, or one left to be found.
void Reshaping(OpDraft& d) {
  std::vector<int64_t> dims = d.ShapeOf("X").ToVector();
  for (int changes = 0; changes < 2; ++changes) {
    if (dims.size() > 1 && d.choose.OneIn(2)) {
      const size_t at = d.choose.Below(dims.size() - 1);
      dims[at] *= dims[at + 1];
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(at) + 1);
    } else if (dims.size() < 5) {
      const size_t at = d.choose.Below(dims.size() + 1);
      if (at < dims.size() && dims[at] % 2 == 0 && dims[at] > 0 && d.choose.OneIn(2)) {
        dims[at] /= 2;
        dims.insert(dims.begin() + static_cast<ptrdiff_t>(at), 2);
      } else {
        dims.insert(dims.begin() + static_cast<ptrdiff_t>(at), 1);
      }
    }
  }
  Ints shape;
  for (int64_t dim : dims) shape.push_back(static_cast<int32_t>(dim));
  if (!shape.empty() && d.choose.OneIn(3)) shape[d.choose.Below(shape.size())] = -1;
  d.Set("shape", shape);
}

// Bounds of up to two axes, of the attr type of the op.
void Bounds(OpDraft& d) {
  const char* const slot = "Input";
  const int rank = Rank(d, slot);
  std::vector<int64_t> axes, starts, ends, steps, decrease;
  for (int axis = 0; axis < rank; ++axis) {
    if (!d.choose.OneIn(2)) continue;
    const int64_t dim = d.ShapeOf(slot)[axis];
    const int64_t start = static_cast<int64_t>(d.choose.Below(static_cast<size_t>(dim) + 1));
    const bool single = dim > 0 && start < dim && d.choose.OneIn(4);
    axes.push_back(d.choose.OneIn(4) ? axis - rank : axis);
    starts.push_back(d.choose.OneIn(4) ? start - dim : start);
    ends.push_back(single ? start + 1 : start + 1 + static_cast<int64_t>(d.choose.Below(4)));
    steps.push_back(
        !single && d.def.FindAttr("strides") ? 1 + static_cast<int64_t>(d.choose.Below(2)) : 1);
    if (single) starts.back() = start;
    if (single && d.choose.OneIn(2)) decrease.push_back(axis);
    if (!single && d.choose.OneIn(8)) {
      starts.back() = dim - 1;
      ends.back() = -1;
      steps.back() = -1;
    }
  }
  const bool backwards = std::any_of(steps.begin(), steps.end(), [](int64_t s) { return s < 0; });
  if (backwards && !d.def.FindAttr("strides") && !d.def.FindAttr("steps")) {
    std::fill(steps.begin(), steps.end(), 1);
    std::fill(starts.begin(), starts.end(), 0);
    std::fill(ends.begin(), ends.end(), 1);
    decrease.clear();
  }
  auto set = [&](const char* attr, const std::vector<int64_t>& values) {
    const AttrDef* def = d.def.FindAttr(attr);
    if (!def) return;
    Attribute converted;
    if (ConvertAttribute(Attribute(values), def->type, &converted)) d.Set(attr, converted);
  };
  set("axes", axes);
  set("starts", starts);
  set("ends", ends);
  set("strides", steps);
  set("steps", steps);
  set("decrease_axis", decrease);
  set("decrease_axes", decrease);
}

void Splitting(OpDraft& d) {
  const Shape shape = d.ShapeOf("X");
  if (shape.rank() == 0) return;
  const auto axis = static_cast<int>(d.choose.Below(static_cast<size_t>(shape.rank())));
  const int64_t dim = shape[axis];
  d.Set("axis", static_cast<int32_t>(d.choose.OneIn(3) ? axis - shape.rank() : axis));
  if (dim % 2 == 0 && d.choose.OneIn(2)) {
    d.Set("num", int32_t{2});
    d.outputs["Out"] = 2;
    return;
  }
  const auto first = static_cast<int32_t>(d.choose.Below(static_cast<size_t>(dim) + 1));
  d.Set("num", int32_t{0});
  d.Set("sections", Ints{first, d.choose.OneIn(2) ? -1 : static_cast<int32_t>(dim) - first});
  d.outputs["Out"] = 2;
}

void Unstacking(OpDraft& d) {
  const Shape shape = d.ShapeOf("X");
  if (shape.rank() == 0) return;
  const auto axis = static_cast<int>(d.choose.Below(static_cast<size_t>(shape.rank())));
  d.Set("axis", static_cast<int32_t>(axis));
  d.Set("num", static_cast<int32_t>(shape[axis]));
  d.outputs["Y"] = static_cast<int>(shape[axis]);
}

void Unbinding(OpDraft& d) {
  d.Set("axis", int32_t{0});
  d.outputs["Out"] = static_cast<int>(d.ShapeOf("X")[0]);
}

void OneOutputEach(OpDraft& d) {
  for (const Slot& slot : d.inputs) {
    if (slot.name == "X") d.outputs["Out"] = static_cast<int>(slot.args.size());
  }
}

void OneOutputForEachInput(OpDraft& d) {
  for (const Slot& slot : d.inputs) {
    if (slot.name == "Input") d.outputs["Output"] = static_cast<int>(slot.args.size());
  }
}

// Dims of 1 stretched, new ones before them, -1 where X's stays.
void Expanding(OpDraft& d) {
  Ints shape;
  for (size_t n = d.choose.Below(3); n > 0; --n)
    shape.push_back(1 + static_cast<int32_t>(d.choose.Below(3)));
  for (int64_t dim : d.ShapeOf("X")) {
    const int32_t stretched = dim == 1 ? 1 + static_cast<int32_t>(d.choose.Below(3)) : -1;
    shape.push_back(d.choose.OneIn(2) ? stretched : static_cast<int32_t>(dim));
  }
  d.Set("shape", shape);
}

void Tiling(OpDraft& d) {
  Ints times;
  for (size_t n = 1 + d.choose.Below(static_cast<size_t>(Rank(d, "X")) + 1); n > 0; --n)
    times.push_back(1 + static_cast<int32_t>(d.choose.Below(3)));
  d.Set("repeat_times", times);
}

void Values(OpDraft& d) {
  const DType dtype =
      d.choose.Of({DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64, DType::kBool});
  const size_t n = 1 + d.choose.Below(3), m = d.choose.Below(3);
  d.Set("dtype", static_cast<int32_t>(dtype));
  d.Set("shape", Ints{static_cast<int32_t>(n), static_cast<int32_t>(m)});
  if (dtype == DType::kFloat32) d.Set("fp32_values", std::vector<float>(n * m, 0.5f));
  if (dtype == DType::kFloat64) d.Set("fp64_values", std::vector<double>(n * m, 0.25));
  if (dtype == DType::kInt32) d.Set("int32_values", Ints(n * m, 2));
  if (dtype == DType::kInt64) d.Set("int64_values", std::vector<int64_t>(n * m, 1));
  if (dtype == DType::kBool) d.Set("bool_values", Ints(n * m, 1));
}

void SetFromAttrs(OpDraft& d) {
  Bounds(d);
  d.Set("dtype", static_cast<int32_t>(DType::kFloat32));
  d.Set("shape", std::vector<int64_t>{1});
  d.Set("fp32_values", std::vector<float>{0.5f});
}

void Casting(OpDraft& d) {
  d.Set("in_dtype", static_cast<int32_t>(d.choose.OneIn(2) ? d.Find(d.inputs[0].args[0])->dtype
                                                           : static_cast<DType>(-1)));
  d.Set("out_dtype",
        static_cast<int32_t>(d.choose.Of({DType::kFloat32, DType::kFloat64, DType::kInt32,
                                          DType::kInt64, DType::kBool, DType::kUInt8})));
}

// Parameters of every layer and direction: see the rnn op.
void Recurrent(OpDraft& d) {
  const Shape input = d.ShapeOf("Input");
  const std::string mode = d.choose.Of({"LSTM", "GRU", "RNN_TANH"});
  const int64_t gates = mode == "LSTM" ? 4 : mode == "GRU" ? 3 : 1;
  const int64_t layers = 1 + static_cast<int64_t>(d.choose.Below(2));
  const int64_t directions = 1 + static_cast<int64_t>(d.choose.Below(2));
  const int64_t hidden = 1 + static_cast<int64_t>(d.choose.Below(4));
  const DType dtype = d.Find(d.inputs[0].args[0])->dtype;
  Slot weights{"WeightList", {}}, state{"PreState", {}};
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t in = layer == 0 ? input[2] : directions * hidden;
    for (int64_t k = 0; k < directions; ++k) {
      weights.args.push_back(d.NewInput(dtype, {gates * hidden, in}));
      weights.args.push_back(d.NewInput(dtype, {gates * hidden, hidden}));
    }
  }
  for (int64_t k = 0; k < layers * directions * 2; ++k)
    weights.args.push_back(d.NewInput(dtype, {gates * hidden}));
  for (int k = 0; k < (mode == "LSTM" ? 2 : 1); ++k)
    state.args.push_back(d.NewInput(dtype, {layers * directions, input[1], hidden}));
  d.outputs["State"] = static_cast<int>(state.args.size());
  d.inputs.push_back(weights);
  d.inputs.push_back(state);
  d.Set("mode", mode);
  d.Set("hidden_size", static_cast<int32_t>(hidden));
  d.Set("input_size", static_cast<int32_t>(input[2]));
  d.Set("num_layers", static_cast<int32_t>(layers));
  d.Set("is_bidirec", directions == 2);
}

// Probabilities up to 1, in statistics of four buckets.
void Buckets(OpDraft& d) {
  const bool all = d.choose.OneIn(2);
  d.Set("slide_steps", all ? int32_t{0} : int32_t{2});
  for (const char* slot : {"StatPos", "StatNeg"})
    d.inputs.push_back({slot, {d.NewInput(DType::kInt64, {1, all ? 4 : 13})}});
}

void QuantizedMaxAbs(OpDraft& d) {
  d.inputs.clear();
  d.made.clear();
  d.inputs.push_back({"X", {d.NewInput(d.choose.Of({DType::kInt8, DType::kInt16}), {2, 3})}});
  d.inputs.push_back({"Scale", {d.NewInput(DType::kFloat32, {1})}});
}

void QuantizedLog(OpDraft& d) {
  d.inputs.clear();
  d.made.clear();
  d.inputs.push_back({"X", {d.NewInput(DType::kInt8, {2, 3})}});
  d.inputs.push_back({"Dict", {d.NewInput(DType::kFloat32, {128})}});
}

namespace {

std::string NewScale(OpDraft& d, int64_t count = 1) {
  std::string name = d.NewInput(DType::kFloat32, {count});
  d.made.back().positive = true;
  return name;
}

// 8-bit integers with a scale, or `scales` of them, and perhaps zero points.
void AddBytes(OpDraft& d, const std::string& slot, const Shape& shape, int64_t scales = 1) {
  const DType dtype = d.choose.Of({DType::kInt8, DType::kUInt8});
  d.inputs.push_back({slot, {d.NewInput(dtype, shape)}});
  d.inputs.push_back({slot + "Scale", {NewScale(d, scales)}});
  if (d.choose.OneIn(2)) d.inputs.push_back({slot + "ZeroPoint", {d.NewInput(dtype, {scales})}});
}

// The result is float32, or integers with a scale.
void AddResult(OpDraft& d) {
  const DType dtype = d.choose.Of({DType::kInt8, DType::kUInt8, DType::kFloat32});
  d.Set("out_dtype", static_cast<int32_t>(dtype));
  if (dtype == DType::kFloat32) return;
  d.inputs.push_back({"OutScale", {NewScale(d)}});
  if (d.choose.OneIn(2)) d.inputs.push_back({"OutZeroPoint", {d.NewInput(dtype, {1})}});
}

void Restart(OpDraft& d) {
  d.inputs.clear();
  d.made.clear();
}

}  // namespace

void QuantizedPair(OpDraft& d) {
  Restart(d);
  AddBytes(d, "X", {2, 3});
  AddBytes(d, "Y", d.choose.OneIn(2) ? Shape{3} : Shape{2, 3});
  AddResult(d);
}

void QuantizedPieces(OpDraft& d) {
  Restart(d);
  const DType dtypes[] = {DType::kInt8, DType::kUInt8};
  d.inputs.push_back({"X", {d.NewInput(dtypes[0], {2, 3}), d.NewInput(dtypes[1], {2, 3})}});
  d.inputs.push_back({"XScale", {NewScale(d), NewScale(d)}});
  AddResult(d);
}

void QuantizedTable(OpDraft& d) {
  Restart(d);
  d.inputs.push_back({"X", {d.NewInput(d.choose.Of({DType::kInt8, DType::kUInt8}), {2, 3})}});
  const DType dtype = d.choose.Of({DType::kInt8, DType::kUInt8, DType::kFloat32});
  d.inputs.push_back({"Table", {d.NewInput(dtype, {256})}});
}

void QuantizedImage(OpDraft& d) {
  Restart(d);
  AddBytes(d, "X", {1, 2, 4, 5});
  AddResult(d);
}

void QuantizedFilter(OpDraft& d) {
  Restart(d);
  AddBytes(d, "Input", {1, 4, 5, 6});
  AddBytes(d, "Filter", {3, 4, 3, 2}, d.choose.OneIn(2) ? 3 : 1);
  if (d.choose.OneIn(2)) d.inputs.push_back({"Bias", {d.NewInput(DType::kFloat32, {3})}});
  AddResult(d);
}

void QuantizedMatrices(OpDraft& d) {
  Restart(d);
  AddBytes(d, "X", d.choose.OneIn(2) ? Shape{2, 3, 4} : Shape{3, 4});
  AddBytes(d, "Y", {4, 5}, d.choose.OneIn(2) ? 5 : 1);
  if (d.choose.OneIn(2)) d.inputs.push_back({"Bias", {d.NewInput(DType::kFloat32, {5})}});
  AddResult(d);
}

void QuantizedWeight(OpDraft& d) {
  Restart(d);
  const bool packed = d.choose.OneIn(2), blocks = d.choose.OneIn(2);
  d.Set("bits", int32_t{packed ? 4 : 8});
  d.Set("block_size", int64_t{blocks ? 3 : 0});
  const DType dtype = d.choose.Of({DType::kInt8, DType::kUInt8});
  d.inputs.push_back({"X", {d.NewInput(DType::kFloat32, {2, 7})}});
  d.inputs.push_back({"Weight", {d.NewInput(dtype, {5, packed ? 4 : 7})}});
  const Shape steps = blocks ? Shape{5, 3} : Shape{5};
  d.inputs.push_back({"Scale", {d.NewInput(DType::kFloat32, steps)}});
  if (d.choose.OneIn(2)) d.inputs.push_back({"ZeroPoint", {d.NewInput(dtype, steps)}});
  if (d.choose.OneIn(2)) d.inputs.push_back({"Bias", {d.NewInput(DType::kFloat32, {5})}});
}

void PackedIntegers(OpDraft& d) {
  Restart(d);
  d.inputs.push_back({"X", {d.NewInput(d.choose.Of({DType::kInt8, DType::kUInt8}), {2, 3})}});
}

// Two layers of one width.
void RepeatedLayers(OpDraft& d) {
  for (Slot& slot : d.inputs) {
    if (slot.name != "X") slot.args.resize(2, slot.args[0]);
  }
  d.outputs["ReluOut"] = 1;
}

void Functors(OpDraft& d) {
  const std::string unary = d.choose.Of({"relu", "tanh", "sigmoid"});
  const std::string binary = d.choose.Of({"elementwise_add", "elementwise_mul"});
  d.Set("functor_list", d.choose.OneIn(2) ? std::vector<std::string>{unary, binary}
                                          : std::vector<std::string>{binary, unary});
}

void CudnnLstm(OpDraft& d) {
  const Shape input = d.ShapeOf("Input");
  const int64_t hidden = 1 + static_cast<int64_t>(d.choose.Below(3));
  const DType dtype = d.Find(d.inputs[0].args[0])->dtype;
  d.inputs.push_back(
      {"WeightList",
       {d.NewInput(dtype, {4 * hidden, input[2]}), d.NewInput(dtype, {4 * hidden, hidden}),
        d.NewInput(dtype, {4 * hidden}), d.NewInput(dtype, {4 * hidden})}});
  for (const char* slot : {"InitH", "InitC"})
    d.inputs.push_back({slot, {d.NewInput(dtype, {1, input[1], hidden})}});
  d.Set("hidden_size", static_cast<int32_t>(hidden));
}

}  // namespace coracle
