// Recurrent nets and decoding of their outputs.
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>

namespace coracle::onnx {
namespace {

// One layer of the op rnn, both directions.
struct Layer {
  OpContext& op;
  const char* type;  // of the ONNX op
  Ints gates;        // indices of ONNX's gates among Paddle's
  size_t directions;
  size_t layers;
  int64_t hidden;

  // The rows of a weight (or bias) in the order of ONNX's gates, with a dim for the direction.
  Value Ordered(const Value& weight) const {
    Value ordered = weight;
    if (gates.size() > 1) {
      const Values parts = op.Nodes("Split", {weight, op.IntList(Ints(gates.size(), hidden))},
                                    gates.size(), {{"axis", 0}});
      Values in_order;
      for (int64_t gate : gates) in_order.push_back(parts[static_cast<size_t>(gate)]);
      ordered = op.Concat(in_order, 0);
    }
    return op.Unsqueeze(ordered, {0});
  }
  // Parameter `k` (0: W, 1: U; with `bias` b and b') of both directions.
  Value Parameter(size_t layer, size_t k, bool bias) const {
    Values all;
    for (size_t d = 0; d < directions; ++d) {
      const size_t at = 2 * (layer * directions + d) + k + (bias ? 2 * layers * directions : 0);
      all.push_back(Ordered(op.In("WeightList", at)));
    }
    return op.Concat(all, 0);
  }
  Value InitialState(size_t layer, size_t i) const {
    const Value all = op.In("PreState", i);
    const auto d = static_cast<int64_t>(directions), l = static_cast<int64_t>(layer);
    return layers == 1 ? all : op.Slice(all, 0, l * d, (l + 1) * d);
  }
};

Layer LayerOf(OpContext& op) {
  const auto mode = op.Attr<std::string>("mode");
  Layer layer{op,
              "RNN",
              {0},
              op.Attr<bool>("is_bidirec") ? size_t{2} : size_t{1},
              static_cast<size_t>(op.Attr<int32_t>("num_layers")),
              op.Attr<int32_t>("hidden_size")};
  if (mode == "LSTM") {
    layer.type = "LSTM";  // Paddle's i, f, g, o to ONNX's i, o, f, c
    layer.gates = {0, 3, 1, 2};
  } else if (mode == "GRU") {
    layer.type = "GRU";  // r, z, n to z, r, h
    layer.gates = {1, 0, 2};
  }
  return layer;
}

NodeAttrs AttrsOf(const Layer& layer) {
  NodeAttrs attrs = {{"hidden_size", layer.hidden}};
  if (layer.directions == 2) attrs.emplace_back("direction", "bidirectional");
  if (layer.op.Attr<std::string>("mode") == "GRU") attrs.emplace_back("linear_before_reset", 1);
  if (layer.op.Attr<std::string>("mode") == "RNN_RELU")
    attrs.emplace_back("activations", std::vector<std::string>(layer.directions, "Relu"));
  return attrs;
}

void ExportRnn(OpContext& op) {
  op.Require(op.Attr<bool>("is_test") || op.Attr<float>("dropout_prob") == 0 ||
                 op.Attr<int32_t>("num_layers") == 1,
             std::string("it drops elements, as in training. ") + kInferenceOnly);
  const Layer layer = LayerOf(op);
  const bool lstm = layer.type == std::string("LSTM");
  const Value lengths =
      op.Has("SequenceLength")
          ? op.Cast(op.In("SequenceLength"), op.InType("SequenceLength"), DType::kInt32)
          : Value();
  Value x = op.In("Input");
  Values hidden, cells;
  for (size_t i = 0; i < layer.layers; ++i) {
    const Value biases = op.Concat({layer.Parameter(i, 0, true), layer.Parameter(i, 1, true)}, 1);
    Values inputs = {x,       layer.Parameter(i, 0, false), layer.Parameter(i, 1, false), biases,
                     lengths, layer.InitialState(i, 0)};
    if (lstm) inputs.push_back(layer.InitialState(i, 1));
    const Values y = op.Nodes(layer.type, inputs, lstm ? 3 : 2, AttrsOf(layer));
    hidden.push_back(y[1]);
    if (lstm) cells.push_back(y[2]);
    // [T, D, N, H] as [T, N, D H].
    x = op.Reshape(op.Transpose(y[0], {0, 2, 1, 3}), {0, 0, -1});
  }
  op.Out("Out", x);
  op.Out("State", op.Concat(hidden, 0), 0);
  if (lstm) op.Out("State", op.Concat(cells, 0), 1);
}

void ExportLstmUnit(OpContext& op) {
  const DType dtype = op.InType("X");
  const Values gates = [&] {
    const int64_t size = op.InShape("C_prev")[1];
    if (size < 0) op.Refuse("the size of the cell must be known");
    return op.Nodes("Split", {op.In("X"), op.IntList(Ints(4, size))}, 4, {{"axis", 1}});
  }();
  const auto sigmoid = [&](const Value& x) { return op.Node("Sigmoid", {x}); };
  const Value forget = op.Node("Add", {gates[1], op.Scalar(op.Attr<float>("forget_bias"), dtype)});
  const Value kept = op.Node("Mul", {sigmoid(forget), op.In("C_prev")});
  const Value added = op.Node("Mul", {sigmoid(gates[0]), op.Node("Tanh", {gates[3]})});
  const Value cell = op.Node("Add", {kept, added});
  op.Out("C", cell);
  op.Out("H", op.Node("Mul", {sigmoid(gates[2]), op.Node("Tanh", {cell})}));
}

// --- viterbi_decode ---

// The best scores of paths that end in each tag, step by step, and their previous tags. Past the
// end of a sequence, scores are unchanged, and the previous tag is the tag itself.
struct Viterbi {
  OpContext& op;
  DType dtype;
  Shape scores;                      // [batch, tags]
  Value transition, lengths, first;  // the scores at step 0

  Value Tags() const { return op.Node("Range", {op.Int(0), op.Int(scores[1]), op.Int(1)}); }
  // [batch, 1]: whether step `t` belongs to the sequence.
  Value Inside(const Value& t) const { return op.Unsqueeze(op.Node("Less", {t, lengths}), {1}); }
  GraphPtr Step() const {
    Graph& graph = op.exporter().graph();
    op.exporter().Enter();
    const Value before = graph.Input("scores", dtype, scores);
    const Value emission = graph.Input("emission", dtype, scores);
    const Value t = graph.Input("step", DType::kInt64, {});
    const Value inside = Inside(t);
    const Value paths = op.Node("Add", {op.Unsqueeze(before, {2}), transition});
    const Value from = op.Node("ArgMax", {paths}, {{"axis", 1}, {"keepdims", 0}});
    const Value best = op.Reduce("ReduceMax", paths, {1}, false);
    const Value later = op.Node("Where", {inside, op.Node("Add", {best, emission}), before});
    const Value is_first = op.Node("Equal", {t, op.Int(0)});
    graph.BodyOutput(op.Node("Where", {is_first, first, later}), dtype, scores);
    graph.BodyOutput(op.Node("Where", {inside, from, Tags()}), DType::kInt64, scores);
    return op.exporter().Leave();
  }
  GraphPtr StepBack() const {
    Graph& graph = op.exporter().graph();
    const Shape tags{scores[0], 1};
    op.exporter().Enter();
    const Value tag = graph.Input("tag", DType::kInt64, tags);
    const Value from = graph.Input("from", DType::kInt64, scores);
    const Value before = op.Node("GatherElements", {from, tag}, {{"axis", 1}});
    graph.BodyOutput(before, DType::kInt64, tags);
    graph.BodyOutput(tag, DType::kInt64, tags);
    return op.exporter().Leave();
  }
};

struct BestPaths {
  Value tags;    // [batch, steps], 0 past the end of a sequence
  Value inside;  // [batch, steps]: whether a step belongs to the sequence
  Value last;    // the scores after the last step
};

// `steps` are the emissions [steps, batch, tags]; `stop` is added to the last scores unless it
// is "".
BestPaths FindPaths(const Viterbi& v, const Value& steps, const Value& stop) {
  OpContext& op = v.op;
  const Value count = op.AsScalar(op.DimsOf(steps, 0, 1));
  const Value numbers = op.Node("Range", {op.Int(0), count, op.Int(1)});
  // Scans all steps, since ONNX Runtime cannot scan an empty sequence.
  const Values forward =
      op.Nodes("Scan", {v.first, steps, numbers}, 2, {{"body", v.Step()}, {"num_scan_inputs", 2}});
  const Value last = stop.empty() ? forward[0] : op.Node("Add", {forward[0], stop});
  const Value tag = op.Node("ArgMax", {last}, {{"axis", 1}, {"keepdims", 1}});
  const Values back = op.Nodes("Scan", {tag, forward[1]}, 2,
                               {{"body", v.StepBack()},
                                {"num_scan_inputs", 1},
                                {"scan_input_directions", Ints{1}},
                                {"scan_output_directions", Ints{1}}});
  const Value tags = op.Transpose(op.Squeeze(back[1], {2}), {1, 0});
  const Value inside = op.Node("Less", {numbers, op.Unsqueeze(v.lengths, {1})});
  return {op.Node("Where", {inside, tags, op.Int(0)}), inside, last};
}

// The first two rows of Transition are the weights of the first and of the last tag.
void ExportCrfDecoding(OpContext& op) {
  const Shape& emission = op.InShape("Emission");
  const bool by_length = op.Has("Length");
  if (!by_length) op.RequireOneSequence("Emission");
  const int64_t tags = emission[emission.rank() - 1];
  op.Require(tags > 0, "the number of tags must be known");
  const auto rows = [&](int64_t begin, int64_t end) {
    return op.Slice(op.In("Transition"), 0, begin, end);
  };
  // The rows of a single sequence are the steps of a batch of one.
  const Value given = op.In("Emission");
  const Value lengths =
      by_length ? op.Reshape(op.Cast(op.In("Length"), op.InType("Length"), DType::kInt64), {-1})
                : op.DimsOf(given, 0, 1);
  const Value steps = by_length ? op.Transpose(given, {1, 0, 2}) : op.Unsqueeze(given, {1});
  const Value first = op.Node("Add", {op.Node("Gather", {steps, op.Int(0)}), rows(0, 1)});
  const Viterbi v{
      op,   op.InType("Emission"), {by_length ? emission[0] : 1, tags}, rows(2, 2 + tags), lengths,
      first};
  const BestPaths paths = FindPaths(v, steps, rows(1, 2));
  const auto set = [&](const Value& path) {
    op.Out("ViterbiPath", by_length ? path : op.Reshape(path, {-1, 1}));
  };
  if (!op.Has("Label")) return set(paths.tags);
  const Value label =
      op.Node("Reshape",
              {op.Cast(op.In("Label"), op.InType("Label"), DType::kInt64), op.ShapeOf(paths.tags)});
  const Value right = op.Node("And", {paths.inside, op.Node("Equal", {paths.tags, label})});
  set(op.Cast(right, DType::kBool, DType::kInt64));
}

void ExportViterbiDecode(OpContext& op) {
  const Shape& input = op.InShape("Input");
  op.Require(input[2] > 0, "the number of tags must be known");
  const Value lengths = op.Cast(op.In("Length"), op.InType("Length"), DType::kInt64);
  const bool ends = op.Attr<bool>("include_bos_eos_tag");
  const Value transition = op.In("Transition");
  const auto row = [&](int64_t i) { return op.Slice(transition, 0, i, i + 1); };
  const Value steps = op.Transpose(op.In("Input"), {1, 0, 2});
  Value first = op.Node("Gather", {steps, op.Int(0)});
  if (ends) first = op.Node("Add", {first, row(input[2] - 1)});
  const Viterbi v{op, op.InType("Input"), {input[0], input[2]}, transition, lengths, first};
  const BestPaths paths = FindPaths(v, steps, ends ? row(input[2] - 2) : "");
  const Value longest = op.Reduce("ReduceMax", lengths, {0}, true);
  op.Out("Path", op.Node("Slice", {paths.tags, op.IntList({0}), longest, op.IntList({1})}));
  const Value score = op.Reduce("ReduceMax", paths.last, {1}, false);
  const Value empty = op.Node("Equal", {lengths, op.Int(0)});
  op.Out("Scores", op.Node("Where", {empty, op.Scalar(0, v.dtype), score}));
}

constexpr ExportRow kRows[] = {
    {"crf_decoding", ExportCrfDecoding, "Scan, ArgMax, GatherElements"},
    {"lstm_unit", ExportLstmUnit, "Split, Sigmoid, Tanh, Mul, Add"},
    {"rnn", ExportRnn, "LSTM, GRU or RNN"},
    {"viterbi_decode", ExportViterbiDecode, "Scan, ArgMax, GatherElements"},
};

}  // namespace

ExportRows RnnRows() { return kRows; }

}  // namespace coracle::onnx
