// Ops on sequences by LoD, for models of one sequence a run: the rows of a tensor are its sequence.
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>

#include <algorithm>
#include <limits>

namespace coracle::onnx {
namespace {

// --- rows of a sequence ---

// The dims of `x` with `first` in place of its rows.
Value DimsWithRows(OpContext& op, const char* slot, const Value& x, const Value& first) {
  const int rank = op.Rank(slot);
  return rank == 1 ? first : op.Concat({first, op.DimsOf(x, 1, rank)}, 0);
}

// The only row of Out has no sequence of its own.
void SetOnlyRow(OpContext& op, const Value& row) {
  if (!op.Wants("Out")) return;
  VarMeta meta = op.OutMeta("Out");
  meta.shape[0] = 1;
  meta.lod_level = 0;
  op.exporter().BindAs(op.op(), op.op().Output("Out")[0], row, meta);
}

void ExportPool(OpContext& op) {
  op.RequireOneSequence("X");
  const Value x = op.In("X");
  const DType dtype = op.InType("X");
  const auto type = op.Attr<std::string>("pooltype");
  const Value pad = op.Scalar(static_cast<double>(op.Attr<float>("pad_value")), dtype);
  const Value rows = op.DimsOf(x, 0, 1);
  if (type == "FIRST" || type == "LAST") {
    // Without rows, the row of padding is chosen.
    const Value row = op.Node("Expand", {pad, DimsWithRows(op, "X", x, op.IntList({1}))});
    const bool first = type == "FIRST";
    const Value all = op.Concat(first ? Values{x, row} : Values{row, x}, 0);
    const Value at = first ? op.IntList({0}) : rows;
    return SetOnlyRow(op, op.Node("Gather", {all, at}, {{"axis", 0}}));
  }
  Value row;
  if (type == "MAX") {
    // With a row of the least numbers, since ReduceMax of no rows is undefined.
    const Value least = op.Scalar(-std::numeric_limits<double>::infinity(), dtype);
    const Value row_of_least =
        op.Node("Expand", {least, DimsWithRows(op, "X", x, op.IntList({1}))});
    row = op.Reduce("ReduceMax", op.Concat({x, row_of_least}, 0), {0}, true);
  } else {
    row = op.Reduce("ReduceSum", x, {0}, true);
    Value count = op.Cast(op.Node("Max", {rows, op.IntList({1})}), DType::kInt64, dtype);
    if (type == "SQRT") count = op.Node("Sqrt", {count});
    if (type != "SUM") row = op.Node("Div", {row, count});
  }
  const Value empty = op.Node("Equal", {rows, op.IntList({0})});
  SetOnlyRow(op, op.Node("Where", {empty, pad, row}));
}

void ExportSequenceSoftmax(OpContext& op) {
  op.RequireOneSequence("X");
  op.Out("Out", op.Node("Softmax", {op.In("X")}, {{"axis", 0}}));
}

void ExportSequenceReverse(OpContext& op) {
  op.RequireOneSequence("X");
  op.Out("Y", op.Node("Slice", {op.In("X"), op.IntList({-1}), op.IntList({INT64_MIN}),
                                op.IntList({0}), op.IntList({-1})}));
}

void ExportSequenceConcat(OpContext& op) {
  for (size_t i = 0; i < op.NumInputs("X"); ++i) op.RequireOneSequence("X", i);
  op.Out("Out", op.Concat(op.Ins("X"), 0));
}

// X has one row, which is repeated for each row of Y.
void ExportSequenceExpand(OpContext& op) {
  op.RequireOneSequence("Y");
  op.Require(op.Meta("X").lod_level == 0, "X is a sequence, and Out would be several");
  op.Require(op.InShape("X")[0] == 1,
             "X must be known to have one row; `coracle set-shape` declares "
             "the shape of an input");
  const Value x = op.In("X");
  const Value dims = DimsWithRows(op, "X", x, op.DimsOf(op.In("Y"), 0, 1));
  op.Out("Out", op.Node("Expand", {x, dims}));
}

// `count` numbers (an int64 vector of one element gives it). A negative count stops the run.
Value Filled(OpContext& op, const Value& count, int64_t number) {
  return op.Node("ConstantOfShape", {count}, {{"value", Tensor::Of<int64_t>({1}, {number})}});
}

// The sequence becomes the only row of a batch, which rows of PadValue lengthen.
void ExportSequencePad(OpContext& op) {
  op.RequireOneSequence("X");
  const Value x = op.In("X"), rows = op.DimsOf(x, 0, 1);
  const int64_t length = op.Attr<int32_t>("padded_length");
  Value all = x;
  if (op.Has("PaddedLengthTensor") || length != -1) {
    Value wanted = op.IntList({length});
    if (op.Has("PaddedLengthTensor")) {
      const Value given = op.Reshape(
          op.Cast(op.In("PaddedLengthTensor"), op.InType("PaddedLengthTensor"), DType::kInt64),
          {1});
      wanted = op.Node("Where", {op.Node("Equal", {given, op.IntList({-1})}), rows, given});
    }
    // A sequence that is longer lacks a negative number of rows, which stops the run.
    const Value lacks = op.Node("Sub", {wanted, rows});
    const Value row =
        op.Node("Expand", {op.In("PadValue"), DimsWithRows(op, "X", x, op.IntList({1}))});
    const Value padding = op.Node("Gather", {row, Filled(op, lacks, 0)}, {{"axis", 0}});
    all = op.Concat({x, padding}, 0);
  } else {
    op.Ignore("PadValue");
  }
  VarMeta meta = op.OutMeta("Out");
  meta.shape[0] = 1;
  op.exporter().BindAs(op.op(), op.op().Output("Out")[0], op.Unsqueeze(all, {0}), meta);
  op.Out("Length", rows);
}

// The first Length rows of the only row of a batch.
void ExportSequenceUnpad(OpContext& op) {
  if (!op.exporter().one_sequence()) op.RequireOneSequence("X");  // which says how to export it
  op.Require(op.InShape("X")[0] == 1,
             "X must be known to have one row; `coracle set-shape` declares "
             "the shape of an input");
  const Value length =
      op.Reshape(op.Cast(op.In("Length"), op.InType("Length"), DType::kInt64), {1});
  // Looks up the rows, so that a length that is negative or too large stops the run.
  const Value places = op.Node("CumSum", {Filled(op, length, 1), op.Int(0)}, {{"exclusive", 1}});
  const Value rows = op.Node("Gather", {op.Squeeze(op.In("X"), {0}), places}, {{"axis", 0}});
  op.Out("Out", op.Rank("X") == 2 ? op.Unsqueeze(rows, {1}) : rows);
}

// The rows of X become one sequence, as long as the one of Y or as attr target_lod says. The
// reshape fails for another number of rows.
void ExportLodReset(OpContext& op) {
  op.Require(!op.Attr<bool>("append"), "append gives two levels of LoD");
  const Value x = op.In("X");
  if (op.Has("Y") && op.Meta("Y").lod_level > 0) {
    op.RequireOneSequence("Y");
    const Value dims = DimsWithRows(op, "X", x, op.DimsOf(op.In("Y"), 0, 1));
    return op.Out("Out", op.ReshapeExactly(x, dims));
  }
  op.Require(!op.Has("Y"), "only a run knows the offsets in Y; attr target_lod can give them");
  if (!op.exporter().one_sequence()) op.RequireOneSequence("X");  // which says how to export it
  const auto target = op.Attr<std::vector<int32_t>>("target_lod");
  op.Require(target.size() == 2 && target[0] == 0,
             "target_lod gives several sequences, and the model takes one");
  op.Out("Out", op.ReshapeExactly(x, DimsWithRows(op, "X", x, op.IntList({target[1]}))));
}

// Out = the contexts of all rows times Filter. The rows around X are zeros or rows of PaddingData.
void ExportSequenceConv(OpContext& op) {
  op.RequireOneSequence("X");
  const int64_t length = op.Attr<int32_t>("contextLength");
  const int64_t start = op.Attr<int32_t>("contextStart");
  const int64_t up = std::max<int64_t>(0, -start), down = std::max<int64_t>(0, start + length - 1);
  Value x = op.In("X");
  if (op.Attr<bool>("paddingTrainable")) {
    const Value padding = op.In("PaddingData");
    x = op.Concat({op.Slice(padding, 0, 0, up), x, op.Slice(padding, 0, up, up + down)}, 0);
  } else if (up + down > 0) {
    x = op.Node("Pad", {x, op.IntList({up, 0, down, 0})});
  }
  Values columns;
  for (int64_t j = 0; j < length; ++j) {
    const int64_t behind = down - (start + j);  // rows after the last one of this column
    columns.push_back(op.Slice(x, 0, up + start + j, behind == 0 ? INT64_MAX : -behind));
  }
  op.Out("Out", op.Node("MatMul", {op.Concat(columns, 1), op.In("Filter")}));
}

// --- recurrent nets ---

Value Activated(OpContext& op, const std::string& name, const Value& x) {
  if (name == "identity") return x;
  if (name == "sigmoid") return op.Node("Sigmoid", {x});
  if (name == "tanh") return op.Node("Tanh", {x});
  if (name == "relu") return op.Node("Relu", {x});
  op.Refuse("the activation " + name + " has no counterpart");
}

// A net that reads a row of Input at a time. The first state, which Weight multiplies, is [1,
// width], and others are [1, D]; width is D unless the net projects.
struct Recurrence {
  OpContext& op;
  DType dtype;
  int64_t width, hidden;

  explicit Recurrence(OpContext& context)
      : op(context),
        dtype(op.InType("Input")),
        width(op.InShape("Weight")[0]),
        hidden(op.Has("ProjWeight") ? op.InShape("ProjWeight")[0] : width) {
    op.RequireOneSequence("Input");
    op.Require(hidden > 0 && width > 0, "the size of the state must be known");
  }

  // The first value of a state: the tensor of a slot, or zeros.
  Value Start(const char* slot, int64_t columns) const {
    if (!op.Has(slot)) return op.Constant(Tensor::Zeros(dtype, {1, columns}));
    op.Require(op.Meta(slot).lod_level == 0, std::string(slot) + " must be no sequence");
    return op.Reshape(op.In(slot), {1, columns});
  }
  // Columns [begin, end) of Bias, which may be absent.
  Value Bias(int64_t begin, int64_t end) const {
    return op.Slice(op.In("Bias"), 1, begin * hidden, end * hidden);
  }
  // Input, with the first columns of Bias, as [rows, 1, gates D].
  Value Steps(int64_t gates) const {
    Value steps = op.In("Input");
    if (op.Has("Bias")) steps = op.Node("Add", {steps, Bias(0, gates)});
    return op.Unsqueeze(steps, {1});
  }
  Values Split(const Value& x, size_t parts) const {
    return op.Nodes("Split", {x, op.IntList(Ints(parts, hidden))}, parts, {{"axis", 1}});
  }
  // Scans the steps. `step` maps the states and a step to the next states, which are also the
  // results of the step: tensors [rows, D].
  template <class Step>
  Values Run(const Values& starts, const Value& steps, int64_t gates, const Step& step) const {
    Graph& graph = op.exporter().graph();
    const auto shape = [&](size_t i) { return Shape{1, i == 0 ? width : hidden}; };
    op.exporter().Enter();
    Values before;
    for (size_t i = 0; i < starts.size(); ++i)
      before.push_back(graph.Input(i == 0 ? "state" : "cell", dtype, shape(i)));
    const Values after = step(before, graph.Input("step", dtype, Shape{1, gates * hidden}));
    for (int copies = 0; copies < 2; ++copies)
      for (size_t i = 0; i < after.size(); ++i)
        graph.BodyOutput(copies == 0 ? after[i] : op.Node("Identity", {after[i]}), dtype, shape(i));
    const GraphPtr body = op.exporter().Leave();
    Values inputs = starts;
    inputs.push_back(steps);
    const int64_t reverse = op.Attr<bool>("is_reverse");
    const Values results = op.Nodes("Scan", inputs, 2 * starts.size(),
                                    {{"body", body},
                                     {"num_scan_inputs", 1},
                                     {"scan_input_directions", Ints{reverse}},
                                     {"scan_output_directions", Ints(starts.size(), reverse)}});
    Values rows;
    for (size_t i = 0; i < starts.size(); ++i)
      rows.push_back(op.Squeeze(results[starts.size() + i], {1}));
    return rows;
  }
};

// The buffer of Weight holds the matrix of the gates [D, 2 D], then that of the candidate [D, D].
void ExportGru(OpContext& op) {
  const Recurrence net(op);
  const int64_t d = net.hidden;
  const Value buffer = op.Reshape(op.In("Weight"), {-1});
  const Value gates = op.Reshape(op.Slice(buffer, 0, 0, 2 * d * d), {d, 2 * d});
  const Value candidate = op.Reshape(op.Slice(buffer, 0, 2 * d * d, 3 * d * d), {d, d});
  const Value start = net.Start("H0", d), steps = net.Steps(3);
  const Value one = op.Scalar(1, net.dtype);
  const auto gate = op.Attr<std::string>("gate_activation");
  const auto activation = op.Attr<std::string>("activation");
  const bool origin = op.Attr<bool>("origin_mode");
  const auto add = [&](const Value& a, const Value& b) { return op.Node("Add", {a, b}); };
  const auto mul = [&](const Value& a, const Value& b) { return op.Node("Mul", {a, b}); };
  const Values rows = net.Run({start}, steps, 3, [&](const Values& states, const Value& step) {
    const Value& h = states[0];
    const Values x = net.Split(step, 3), hg = net.Split(op.Node("MatMul", {h, gates}), 2);
    const Value u = Activated(op, gate, add(x[0], hg[0]));
    const Value r = Activated(op, gate, add(x[1], hg[1]));
    const Value n = Activated(op, activation, add(x[2], op.Node("MatMul", {mul(r, h), candidate})));
    const Value rest = op.Node("Sub", {one, u});
    return Values{origin ? add(mul(u, h), mul(rest, n)) : add(mul(rest, h), mul(u, n))};
  });
  op.Out("Hidden", rows[0]);
}

// x in [-most, most], or x if `most` is 0.
Value Clipped(OpContext& op, const Value& x, float most, DType dtype) {
  if (most == 0) return x;
  const auto end = static_cast<double>(most);
  return op.Node("Max", {op.Node("Min", {x, op.Scalar(end, dtype)}), op.Scalar(-end, dtype)});
}

// The columns are those of candidate, input, forget and output gate; Bias may go on with the
// weights of the cell in these gates. lstmp passes a projection of h to the next step.
void ExportLstm(OpContext& op) {
  const Recurrence net(op);
  const bool projects = op.Has("ProjWeight");
  const Value weight = op.In("Weight"), projection = projects ? op.In("ProjWeight") : Value();
  const Values starts = {net.Start("H0", net.width), net.Start("C0", net.hidden)};
  const Value steps = net.Steps(4);
  const auto add = [&](const Value& a, const Value& b) { return op.Node("Add", {a, b}); };
  const auto mul = [&](const Value& a, const Value& b) { return op.Node("Mul", {a, b}); };
  const auto attr = [&](const char* name) { return op.Attr<std::string>(name); };
  Values peepholes;
  if (op.Attr<bool>("use_peepholes"))
    for (int64_t i = 4; i < 7; ++i) peepholes.push_back(net.Bias(i, i + 1));
  const auto gate = [&](const Value& z, size_t peephole, const Value& cell) {
    const Value sum = peepholes.empty() ? z : add(z, mul(peepholes[peephole], cell));
    return Activated(op, attr("gate_activation"), sum);
  };
  const Values rows = net.Run(starts, steps, 4, [&](const Values& states, const Value& step) {
    const Values z = net.Split(add(step, op.Node("MatMul", {states[0], weight})), 4);
    const Value candidate = Activated(op, attr("candidate_activation"), z[0]);
    const Value kept = mul(gate(z[2], 1, states[1]), states[1]);
    const Value sum = add(kept, mul(gate(z[1], 0, states[1]), candidate));
    const Value cell = projects ? Clipped(op, sum, op.Attr<float>("cell_clip"), net.dtype) : sum;
    const Value output = gate(z[3], 2, cell);
    const Value h = mul(output, Activated(op, attr("cell_activation"), cell));
    if (!projects) return Values{h, cell};
    const Value r = Activated(op, attr("proj_activation"), op.Node("MatMul", {h, projection}));
    return Values{Clipped(op, r, op.Attr<float>("proj_clip"), net.dtype), cell};
  });
  op.Out(projects ? "Projection" : "Hidden", rows[0]);
  op.Out("Cell", rows[1]);
}

constexpr ExportRow kRows[] = {
    {"gru", ExportGru, "Scan of MatMul, Sigmoid, Tanh, Mul, Add"},
    {"lod_reset", ExportLodReset, "Reshape"},
    {"lstm", ExportLstm, "Scan of MatMul, Sigmoid, Tanh, Mul, Add"},
    {"lstmp", ExportLstm, "Scan of MatMul, Sigmoid, Tanh, Mul, Add, Min, Max"},
    {"sequence_concat", ExportSequenceConcat, "Concat"},
    {"sequence_conv", ExportSequenceConv, "Pad, Slice, Concat, MatMul"},
    {"sequence_expand", ExportSequenceExpand, "Expand"},
    {"sequence_expand_as", ExportSequenceExpand, "Expand"},
    {"sequence_pad", ExportSequencePad, "Unsqueeze, Gather, Concat"},
    {"sequence_pool", ExportPool, "ReduceSum, ReduceMax or Gather"},
    {"sequence_reverse", ExportSequenceReverse, "Slice"},
    {"sequence_softmax", ExportSequenceSoftmax, "Softmax"},
    {"sequence_unpad", ExportSequenceUnpad, "Squeeze, Gather"},
};

}  // namespace

ExportRows SequenceRows() { return kRows; }

}  // namespace coracle::onnx
