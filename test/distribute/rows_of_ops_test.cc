// The declared row traits hold for every op of the registry: each op runs on a batch and on the two
// halves of the batch.

#include <coracle/distribute/part_values.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/test/fuzz/draw_op.h>
#include <coracle/test/fuzz/random_program.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

namespace coracle::rows_of_ops_test {

constexpr int64_t kBatch = 4;
constexpr uint64_t kAxes = 4;  // rows are tried on the axes below
// The offsets of kBatch sequences.
const std::vector<uint64_t> kOffsets = {0, 2, 3, 4, 6};

// An op; some of its inputs have the rows of a batch.
struct Trial {
  ProgramDesc program;
  std::vector<ProgramInput> inputs;
  std::set<std::string> with_rows;
  int axis = 0;  // of the rows
  std::set<std::string> outputs;

  bool HasSequences() const {
    return std::any_of(inputs.begin(), inputs.end(),
                       [](const ProgramInput& input) { return !input.lod.empty(); });
  }
};

bool IsDense(const VarMeta& meta) { return meta.type == VarType::kLoDTensor; }

// Which inputs have rows besides those with LoD, which have the sequences of the batch.
enum class With { kFirst, kAlike, kLater };

// Without LoD, the first input has rows on the axis, and with kAlike so have all inputs with as
// many rows. With kLater, the first input is constant, and the last has rows. nullopt if none can
// have rows.
std::optional<Trial> MakeTrial(const OpSpec& spec, uint64_t seed, int axis, With with) {
  Trial trial;
  trial.axis = axis;
  Choices choose(seed);
  OpDrawer drawer(choose, false);
  BlockDesc& root = trial.program.Root();
  const auto drawn = drawer.Draw(spec, root, {}, true);
  if (!drawn || drawn->made.empty()) return std::nullopt;
  trial.inputs = drawn->made;
  const auto first =
      std::find_if(drawn->inputs.begin(), drawn->inputs.end(), [&](const auto& slot) {
        return !spec.inputs.empty() && slot.name == spec.inputs[0].name && !slot.args.empty();
      });
  if (first == drawn->inputs.end()) return std::nullopt;
  const Slot& last = drawn->inputs.back();
  if (with == With::kLater && (last.args.empty() || last.args.back() == first->args[0]))
    return std::nullopt;
  const std::string source = with == With::kLater ? last.args.back() : first->args[0];
  for (const auto& [slot, names] : drawn->inputs) {
    const SlotDef* def = spec.FindInput(slot);
    if (!def || def->doc.find("LoD") == std::string::npos) continue;
    for (ProgramInput& input : trial.inputs) {
      const bool is_of_slot = std::find(names.begin(), names.end(), input.name) != names.end();
      if (is_of_slot && input.meta.shape.rank() > 0) input.lod = {kOffsets};
    }
  }
  int64_t rows = 0;
  bool sequences = false;
  for (const ProgramInput& input : trial.inputs) {
    if (!IsDense(input.meta) || input.lod.size() > 1) return std::nullopt;
    if (input.name == source && input.meta.shape.rank() > axis && !sequences)
      rows = input.meta.shape[axis];
    if (input.lod.empty()) continue;
    if (axis > 0) return std::nullopt;
    sequences = true;
    rows = input.meta.shape[0];
  }
  if (rows == 0) return std::nullopt;
  for (ProgramInput& input : trial.inputs) {
    VarMeta meta = input.meta;
    const bool has_rows = meta.shape.rank() > axis && input.lod.empty() &&
                          meta.shape[axis] == rows &&
                          (with == With::kAlike || (input.name == source && !sequences));
    if (has_rows) {
      trial.with_rows.insert(input.name);
      meta.shape[axis] = -1;
      input.meta.shape[axis] = kBatch;
    }
    if (!input.lod.empty()) {
      meta.shape[0] = -1;
      meta.lod_level = 1;
      input.lod = {kOffsets};
      input.meta.shape[0] = static_cast<int64_t>(kOffsets.back());
    }
    root.Var(input.name).SetMeta(meta);
    root.Var(input.name).SetPersistable(!has_rows && input.lod.empty());
  }
  const OpDesc& op = root.AppendOp(spec.type, drawn->inputs, drawn->outputs, drawn->attrs);
  for (const auto& [slot, names] : drawn->outputs) {
    const SlotDef* def = spec.FindOutput(slot);
    if (def && !def->intermediate) trial.outputs.insert(names.begin(), names.end());
  }
  try {
    InferOp(root, op, DefaultOps());
  } catch (const Error&) {
    return std::nullopt;
  }
  return trial;
}

// The rows on the axis.
Tensor SliceAlong(const Tensor& all, int axis, const RankRows& rows) {
  std::vector<int64_t> dims = all.shape().ToVector();
  dims[static_cast<size_t>(axis)] = rows.count;
  Tensor part = Tensor::Zeros(all.dtype(), Shape(dims));
  if (part.numel() == 0) return part;
  const auto outer = static_cast<size_t>(all.shape().Product(0, axis));
  const size_t whole = all.nbytes() / outer, kept = part.nbytes() / outer;
  const size_t from =
      whole / static_cast<size_t>(all.shape()[axis]) * static_cast<size_t>(rows.begin);
  for (size_t i = 0; i < outer; ++i) {
    std::memcpy(static_cast<char*>(part.raw()) + i * kept,
                static_cast<const char*>(all.raw()) + i * whole + from, kept);
  }
  return part;
}

// Runs the op on the rows [begin, begin + count).
std::optional<VarValues> RunRows(const Trial& trial, int64_t begin, int64_t count) {
  VarValues values;
  for (const ProgramInput& input : trial.inputs) {
    VarValue value = DrawValue(input, 1);
    if (trial.with_rows.count(input.name))
      value = SliceAlong(std::get<Tensor>(value), trial.axis, {.begin = begin, .count = count});
    if (!input.lod.empty()) {
      std::vector<uint64_t> part(kOffsets.begin() + begin, kOffsets.begin() + begin + count + 1);
      const uint64_t from = part[0];
      for (uint64_t& offset : part) offset -= from;
      Tensor rows = Slice(std::get<Tensor>(value), {.begin = static_cast<int64_t>(from),
                                                    .count = static_cast<int64_t>(part.back())});
      rows.lod() = {part};
      value = std::move(rows);
    }
    values[input.name] = std::move(value);
  }
  try {
    Interpret(trial.program.Root(), DefaultOps(), values);
  } catch (const Error&) {
    return std::nullopt;
  }
  return values;
}

const Tensor* TensorOf(const VarValues& values, const std::string& name) {
  const auto at = values.find(name);
  return at == values.end() ? nullptr : std::get_if<Tensor>(&at->second);
}

std::vector<double> Elements(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat64);
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

// The elements of both, joined along the axis.
std::vector<double> Joined(const Tensor& a, const Tensor& b, int axis) {
  const std::vector<double> x = Elements(a), y = Elements(b);
  int64_t outer = 1;
  for (int d = 0; d < axis; ++d) outer *= a.shape()[d];
  std::vector<double> all;
  for (int64_t i = 0; i < outer; ++i) {
    const auto from = [&](const std::vector<double>& part) {
      const auto width = static_cast<int64_t>(part.size()) / outer;
      all.insert(all.end(), part.begin() + i * width, part.begin() + (i + 1) * width);
    };
    from(x);
    from(y);
  }
  return all;
}

// The whole value that the halves make according to their kind; nullopt if it is unknown.
std::optional<std::vector<double>> OfHalves(const PartValues& parts, const VarValues& values_a,
                                            const VarValues& values_b, const std::string& name) {
  const Part& part = parts.Of(name);
  const bool by_value = parts.Of(part.weight).kind == PartKind::kSum;
  const Tensor &a = *TensorOf(values_a, name), &b = *TensorOf(values_b, name);
  double weight_a = 1, weight_b = 1;
  switch (part.kind) {
    case PartKind::kUnknown:
      return std::nullopt;
    case PartKind::kSame:
      return Elements(b);
    case PartKind::kRows: {
      std::vector<double> joined = Joined(a, b, part.place.axis);
      if (part.place.folded > 1) std::sort(joined.begin(), joined.end());
      return joined;
    }
    case PartKind::kMean:
      weight_a = weight_b = 0.5;
      if (!part.weight.empty()) {
        const auto weight = [&](const VarValues& values) {
          const Tensor& of = *TensorOf(values, part.weight);
          return by_value ? Elements(of).at(0) : static_cast<double>(of.numel());
        };
        weight_a = weight(values_a) / (weight(values_a) + weight(values_b));
        weight_b = 1 - weight_a;
      }
      break;
    case PartKind::kSum:
      break;
  }
  std::vector<double> sum = Elements(a);
  const std::vector<double> more = Elements(b);
  for (size_t i = 0; i < sum.size() && i < more.size(); ++i)
    sum[i] = weight_a * sum[i] + weight_b * more[i];
  return sum;
}

// "" if the halves make the whole, or the kind is unknown.
std::string Fault(const PartValues& parts, const VarValues& whole, const VarValues& a,
                  const VarValues& b, const std::string& name) {
  const Part& part = parts.Of(name);
  const auto made = OfHalves(parts, a, b, name);
  if (!made) return "";
  std::vector<double> wanted = Elements(*TensorOf(whole, name));
  if (part.kind == PartKind::kRows && part.place.folded > 1)
    std::sort(wanted.begin(), wanted.end());
  if (made->size() != wanted.size())
    return fmt::format("has {} elements, the halves {}", wanted.size(), made->size());
  double largest = 1e-30, difference = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!std::isfinite(wanted[i]) || !std::isfinite((*made)[i])) return "";
    largest = std::max(largest, std::abs(wanted[i]));
    difference = std::max(difference, std::abs(wanted[i] - (*made)[i]));
  }
  const bool uneven = part.kind == PartKind::kRows && !part.ragged &&
                      TensorOf(a, name)->numel() != TensorOf(b, name)->numel();
  if (uneven) return "has halves of different sizes, and is not ragged";
  if (part.kind == PartKind::kRows && !part.ragged && !TensorOf(whole, name)->lod().empty())
    return "has LoD, and is not ragged";
  const double tolerance = SizeOf(TensorOf(whole, name)->dtype()) == 2 ? 0.02 : 1e-3;
  return difference < tolerance * largest ? "" : fmt::format("differs by {}", difference / largest);
}

// Outputs that differ between ranks by design: running statistics, updates, and gradients that a
// forward op computes.
bool IsOfTheRank(const OpSpec& spec) {
  return spec.type.find("batch_norm") != spec.type.npos || spec.FindOutput("ParamOut") ||
         spec.type == "fused_bn_add_activation" || spec.FindOutput("Logits@GRAD");
}

TEST(RowsOfOps, HalvesOfABatchMakeTheWhole) {
  std::set<std::string> faulty, types, with_rule, of_sequences;
  for (const std::string& type : DrawnTypes()) {
    const OpSpec& spec = DefaultOps().Get(type);
    if (spec.random || spec.side_effect || spec.block.runs != BlockRuns::kNone ||
        spec.kind != OpKind::kCompute || type.starts_with("c_") || IsOfTheRank(spec))
      continue;
    for (uint64_t seed = 0; seed < 60 * kAxes; ++seed) {
      const auto trial = MakeTrial(spec, seed / (3 * kAxes), static_cast<int>(seed / 3 % kAxes),
                                   static_cast<With>(seed % 3));
      if (!trial) continue;
      const auto whole = RunRows(*trial, 0, kBatch), a = RunRows(*trial, 0, kBatch / 2),
                 b = RunRows(*trial, kBatch / 2, kBatch / 2);
      if (!whole || !a || !b) continue;
      types.insert(type);
      const PartValues parts(trial->program, DefaultOps());
      for (const std::string& name : trial->outputs) {
        if (!TensorOf(*whole, name)) continue;
        if (parts.Of(name).kind != PartKind::kUnknown)
          (trial->HasSequences() ? of_sequences : with_rule).insert(type);
        const std::string fault = Fault(parts, *whole, *a, *b, name);
        if (fault.empty() || !faulty.insert(type).second) continue;
        ADD_FAILURE() << type << ": " << name << " (of kind "
                      << static_cast<int>(parts.Of(name).kind) << ") " << fault << "\n"
                      << PrintProgram(trial->program);
      }
    }
  }
  EXPECT_GT(types.size(), 300u);
  EXPECT_GT(with_rule.size(), 250u);
  EXPECT_GT(of_sequences.size(), 15u) << fmt::format("{}", fmt::join(of_sequences, " "));
}

// One norm for each row leaves rows what they are.
TEST(RowsOfOps, ClipByNormOfRows) {
  for (const int32_t axis : {-1, 0, 1}) {
    ProgramDesc program;
    program.Root().Var("x").SetMeta({VarType::kLoDTensor, DType::kFloat32, {-1, 3}, 0});
    const Writer writer(program.Root(), DefaultOps());
    const Variable out =
        writer.Make("clip_by_norm", {{"X", {"x"}}}, {{"max_norm", 1.0f}, {"axis", axis}});
    const PartValues parts(program, DefaultOps());
    EXPECT_EQ(parts.Of(out.name()).kind, axis == 0 ? PartKind::kRows : PartKind::kUnknown) << axis;
  }
}

// The kind of the output if X, the first input, has the shape.
PartKind KindWith(const char* type, const Shape& shape, const AttrList& attrs = {}) {
  const OpSpec& spec = DefaultOps().Get(type);
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetMeta({VarType::kLoDTensor, DType::kFloat32, shape, 0});
  const OpDesc& op =
      root.AppendOp(type, {{spec.inputs[0].name, {"x"}}}, {{spec.outputs[0].name, {"out"}}}, attrs);
  InferOp(root, op, DefaultOps());
  return PartValues(program, DefaultOps()).Of("out").kind;
}

// Random ops are not among those that the trial runs.
TEST(RowsOfOps, AttentionMixesQueries) {
  const auto kind = [](const std::string& layout, int axis) {
    ProgramDesc program;
    std::vector<int64_t> dims = {2, 3, 4, 5};
    dims[static_cast<size_t>(axis)] = -1;
    const Shape shape(dims);
    for (const char* name : {"q", "k", "v"})
      program.Root().Var(name).SetMeta({VarType::kLoDTensor, DType::kFloat32, shape, 0});
    const Writer writer(program.Root(), DefaultOps());
    const Variable out =
        writer.Make("scaled_dot_product_attention", {{"Q", {"q"}}, {"K", {"k"}}, {"V", {"v"}}},
                    {{"layout", layout}}, "Out");
    return PartValues(program, DefaultOps()).Of(out.name()).kind;
  };
  EXPECT_EQ(kind("BHSD", 0), PartKind::kRows);
  EXPECT_EQ(kind("BHSD", 1), PartKind::kRows);
  EXPECT_EQ(kind("BHSD", 2), PartKind::kUnknown);
  EXPECT_EQ(kind("BSHD", 0), PartKind::kRows);
  EXPECT_EQ(kind("BSHD", 1), PartKind::kUnknown);
}

// An axis that only a run knows may be that of the rows.
TEST(RowsOfOps, SumsAlongAxes) {
  const auto kind = [](AttrList attrs, bool axis_tensor = false) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    root.Var("x").SetMeta({VarType::kLoDTensor, DType::kFloat32, {-1, 3}, 0});
    root.Var("axis").SetMeta({VarType::kLoDTensor, DType::kInt32, {1}, 0});
    root.Var("axis").SetPersistable(true);
    SlotList inputs = {{"X", {"x"}}};
    if (axis_tensor) inputs.push_back({"AxisTensor", {"axis"}});
    const Writer writer(root, DefaultOps());
    const Variable out = writer.Make("cumsum", inputs, std::move(attrs));
    return PartValues(program, DefaultOps()).Of(out.name()).kind;
  };
  EXPECT_EQ(kind({{"axis", int32_t{1}}}), PartKind::kRows);
  EXPECT_EQ(kind({{"axis", int32_t{-1}}}), PartKind::kRows);
  EXPECT_EQ(kind({{"axis", int32_t{0}}}), PartKind::kUnknown);
  EXPECT_EQ(kind({{"axis", int32_t{-2}}}), PartKind::kUnknown);
  EXPECT_EQ(kind({{"flatten", true}}), PartKind::kUnknown);
  EXPECT_EQ(kind({}, true), PartKind::kUnknown);
}

// The part of the concatenation of two inputs with rows; with `lod`, of sequences. The axis is the
// attr, unless a tensor whose value is not known names it.
Part Concatenated(int32_t axis, bool lod = false, bool axis_tensor = false) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"a", "b"})
    root.Var(name).SetMeta({VarType::kLoDTensor, DType::kFloat32, {-1, 3}, lod ? 1 : 0});
  root.Var("axis").SetMeta({VarType::kLoDTensor, DType::kInt32, {1}, 0});
  root.Var("axis").SetPersistable(true);
  SlotList inputs = {{"X", {"a", "b"}}};
  if (axis_tensor) inputs.push_back({"AxisTensor", {"axis"}});
  const Variable out = Writer(root, DefaultOps()).Make("concat", inputs, {{"axis", axis}});
  return PartValues(program, DefaultOps()).Of(out.name());
}

// concat joins the LoD of its inputs: without any, its rows are as regular as theirs.
TEST(RowsOfOps, ConcatenatedColumns) {
  EXPECT_EQ(Concatenated(1), (Part{.kind = PartKind::kRows}));
  EXPECT_EQ(Concatenated(-1), (Part{.kind = PartKind::kRows}));
  EXPECT_EQ(Concatenated(1, true), (Part{.kind = PartKind::kRows, .ragged = true}));
  for (const bool lod : {false, true}) {
    for (const int32_t axis : {0, -2})
      EXPECT_EQ(Concatenated(axis, lod).reason, "concat mixes the rows of the batch") << axis;
    EXPECT_EQ(Concatenated(0, lod, true).kind, PartKind::kUnknown);
    EXPECT_EQ(Concatenated(1, lod, true).kind, PartKind::kUnknown);
  }
}

// Old files call the axes dims.
TEST(RowsOfOps, FlippedAxes) {
  using Axes = std::vector<int32_t>;
  EXPECT_EQ(KindWith("flip", {-1, 3}, {{"axis", Axes{1}}}), PartKind::kRows);
  EXPECT_EQ(KindWith("flip", {-1, 3}, {{"dims", Axes{-1}}}), PartKind::kRows);
  EXPECT_EQ(KindWith("flip", {-1, 3}, {{"axis", Axes{1, 0}}}), PartKind::kUnknown);
  EXPECT_EQ(KindWith("flip", {-1, 3}, {{"dims", Axes{0}}}), PartKind::kUnknown);
}

// Rows on an axis that a norm takes for its own rows.
TEST(RowsOfOps, NormsOfLaterAxes) {
  const AttrList from_1 = {{"begin_norm_axis", int32_t{1}}};
  EXPECT_EQ(KindWith("layer_norm", {-1, 3, 4}, from_1), PartKind::kRows);
  EXPECT_EQ(KindWith("layer_norm", {3, -1, 4}, from_1), PartKind::kUnknown);
  EXPECT_EQ(KindWith("layer_norm", {3, -1, 4}, {{"begin_norm_axis", int32_t{2}}}), PartKind::kRows);
}

TEST(RowsOfOps, RnnTakesSamplesFromAxis1) {
  const OpSpec& rnn = DefaultOps().Get("rnn");
  for (const int axis : {0, 1}) {
    ProgramDesc program;
    const OpDesc& op = program.Root().AppendOp("rnn", {{"Input", {"x"}}}, {{"Out", {"out"}}}, {});
    EXPECT_EQ(RowEffectOf({op, rnn, "Out", axis, 3}).rule,
              axis == 1 ? RowRule::kEach : RowRule::kMixes);
  }
}

// Filled tensors are equal on all ranks, unless their shape has the rows.
TEST(RowsOfOps, FilledTensors) {
  const AttrList of_columns = {{"shape", std::vector<int32_t>{7, 7}},
                               {"input_dim_idx", int32_t{1}}};
  const AttrList of_rows = {{"shape", std::vector<int32_t>{7, 7}}};
  EXPECT_EQ(KindWith("fill_zeros_like", {-1, 3}), PartKind::kRows);
  EXPECT_EQ(KindWith("fill_any_like", {-1, 3}), PartKind::kRows);
  EXPECT_EQ(KindWith("fill_constant_batch_size_like", {-1, 3}, of_rows), PartKind::kRows);
  EXPECT_EQ(KindWith("fill_constant_batch_size_like", {-1, 3}, of_columns), PartKind::kSame);
  for (const char* type : {"fill_zeros_like", "fill_any_like"}) {
    ProgramDesc program;
    program.Root().Var("x").SetMeta({VarType::kLoDTensor, DType::kFloat32, {-1, 3}, 0});
    const Writer writer(program.Root(), DefaultOps());
    const Variable sum = writer.Make("reduce_sum", {{"X", {"x"}}}, {{"reduce_all", true}});
    const Variable filled = writer.Make(type, {{"X", {sum.name()}}});
    EXPECT_EQ(PartValues(program, DefaultOps()).Of(filled.name()).kind, PartKind::kSame) << type;
  }
}

}  // namespace coracle::rows_of_ops_test
