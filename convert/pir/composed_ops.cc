// Ops that have no counterpart of their own and are composed of simpler ones.

#include <coracle/convert/narrow.h>
#include <coracle/convert/pir/index_writer.h>
#include <coracle/convert/pir/op_access.h>
#include <coracle/convert/pir/op_reader.h>
#include <fmt/format.h>

#include <utility>

namespace coracle::pir {
namespace {

std::string Binary(ProgramBuilder& builder, const char* type, const std::string& x,
                   const std::string& y) {
  return builder.writer().Make(type, {{"X", {x}}, {"Y", {y}}}).name();
}

int RankOf(const ProgramBuilder& builder, const Op& op, const ValuePtr& value) {
  if (value->type.kind != Type::Kind::kTensor) builder.Refuse(op, "an operand is no dense tensor");
  return value->type.shape.rank();
}

int32_t AxisOf(const ProgramBuilder& builder, const Op& op, int rank) {
  const int32_t axis = Get<int32_t>(builder, op, "axis", 0);
  if (axis < -rank || axis >= rank)
    builder.Refuse(op, fmt::format("the axis {} of a tensor of rank {}", axis, rank));
  return axis < 0 ? axis + rank : axis;
}

// The tensor as a matrix whose rows lie along the axis.
std::string RowsAlong(ProgramBuilder& builder, const Op& op, const ValuePtr& value,
                      const std::vector<int32_t>& swap, int32_t axis) {
  Writer& writer = builder.writer();
  std::string x = builder.VarOf(op, value);
  if (static_cast<size_t>(axis) + 1 != swap.size())
    x = writer.Make("transpose2", {{"X", {x}}}, {{"axis", swap}}).name();
  const auto size = ToInt32(value->type.shape[axis], "a size");
  return writer.Make("reshape2", {{"X", {x}}}, {{"shape", std::vector<int32_t>{-1, size}}}).name();
}

}  // namespace

// silu(x) * y; without y, x holds both, one after the other in its last dim.
void ReadSwiglu(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {});
  std::string x = builder.VarOf(op, Needed(builder, op, 0)), y;
  if (const ValuePtr second = builder.Operand(op, 1)) {
    y = builder.VarOf(op, second);
  } else {
    const std::string both = x;
    x = builder.DeclareNew("swiglu.part").name();
    y = builder.DeclareNew("swiglu.part").name();
    builder.writer().Append("split", {{"X", {both}}}, {{"Out", {x, y}}},
                            {{"num", int32_t{2}}, {"axis", int32_t{-1}}});
  }
  const std::string gate = builder.writer().Make("silu", {{"X", {x}}}).name();
  builder.Append(op, "elementwise_mul", {{"X", {gate}}, {"Y", {y}}}, {{"Out", 0}});
}

// x + weight * (y - x)
void ReadLerp(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {});
  const std::string x = builder.VarOf(op, Needed(builder, op, 0));
  const std::string y = builder.VarOf(op, Needed(builder, op, 1));
  const std::string weight = builder.VarOf(op, Needed(builder, op, 2));
  const std::string way = Binary(builder, "elementwise_sub", y, x);
  const std::string part = Binary(builder, "elementwise_mul", way, weight);
  builder.Append(op, "elementwise_add", {{"X", {x}}, {"Y", {part}}}, {{"Out", 0}});
}

// Each slice along the axis `repeats` times: a new dim after the axis is tiled.
void ReadRepeatInterleave(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"repeats", "axis"});
  const ValuePtr x = Needed(builder, op, 0);
  const int rank = RankOf(builder, op, x);
  const int32_t axis = AxisOf(builder, op, rank);
  const int32_t repeats = Get<int32_t>(builder, op, "repeats", 0);
  if (repeats < 1 || rank >= Shape::kMaxRank)
    builder.Refuse(op, fmt::format("{} repeats of a tensor of rank {}", repeats, rank));
  Writer& writer = builder.writer();
  const std::string apart = writer
                                .Make("unsqueeze2", {{"X", {builder.VarOf(op, x)}}},
                                      {{"axes", std::vector<int32_t>{axis + 1}}})
                                .name();
  std::vector<int32_t> times(static_cast<size_t>(rank) + 1, 1);
  times[static_cast<size_t>(axis) + 1] = repeats;
  const std::string tiled = writer.Make("tile", {{"X", {apart}}}, {{"repeat_times", times}}).name();
  builder.Append(op, "flatten_contiguous_range", {{"X", {tiled}}}, {{"Out", 0}},
                 {{"start_axis", axis}, {"stop_axis", axis + 1}});
}

namespace {

// A tensor, and one that holds places along an axis of it.
struct AlongAxis {
  int32_t axis = 0;
  // The dims of both, and the permutation that swaps the axis with the last one.
  std::vector<int32_t> from, to, swap;
};

// The operands must have the same other dims, which is certain if at most one of them is unknown.
AlongAxis FindAlongAxis(const ProgramBuilder& builder, const Op& op, const ValuePtr& x,
                        const ValuePtr& index) {
  const int rank = RankOf(builder, op, x);
  if (RankOf(builder, op, index) != rank) builder.Refuse(op, "its operands differ in rank");
  AlongAxis along{AxisOf(builder, op, rank), {}, {}, {}};
  const Shape &from = x->type.shape, &to = index->type.shape;
  int unknown = 0;
  for (int i = 0; i < rank; ++i) {
    const bool is_axis = i == along.axis;
    if (to[i] == 0 || (is_axis ? from[i] <= 0 || to[i] < 0 : from[i] != to[i]))
      builder.Refuse(op, fmt::format("operands {} and {}", from.ToString(), to.ToString()));
    unknown += from[i] < 0;
    along.from.push_back(ToInt32(from[i], "a size"));
    along.to.push_back(ToInt32(to[i], "a size"));
    along.swap.push_back(i);
  }
  if (unknown > 1) builder.Refuse(op, "more than one dim of its operands is unknown");
  for (std::vector<int32_t>* dims : {&along.from, &along.to, &along.swap})
    std::swap((*dims)[static_cast<size_t>(along.axis)], dims->back());
  return along;
}

// The result of the op, from its elements in the swapped dims.
void GiveSwapped(ProgramBuilder& builder, const Op& op, const AlongAxis& along,
                 const std::string& elements, const std::vector<int32_t>& dims) {
  const AttrList shape = {{"shape", dims}};
  if (static_cast<size_t>(along.axis) + 1 == dims.size())
    return builder.Append(op, "reshape2", {{"X", {elements}}}, {{"Out", 0}}, shape);
  const std::string apart = builder.writer().Make("reshape2", {{"X", {elements}}}, shape).name();
  builder.Append(op, "transpose2", {{"X", {apart}}}, {{"Out", 0}}, {{"axis", along.swap}});
}

}  // namespace

// Elements of x along the axis.
void ReadTakeAlongAxis(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"axis"});
  const ValuePtr x = Needed(builder, op, 0), index = Needed(builder, op, 1);
  const AlongAxis along = FindAlongAxis(builder, op, x, index);
  const std::string rows = RowsAlong(builder, op, x, along.swap, along.axis);
  const std::string chosen = RowsAlong(builder, op, index, along.swap, along.axis);
  const std::string taken =
      builder.writer().Make("index_sample", {{"X", {rows}}, {"Index", {chosen}}}).name();
  GiveSwapped(builder, op, along, taken, along.to);
}

namespace {

// Columns [begin, end) of a matrix.
std::string Columns(IndexWriter& places, const std::string& x, int32_t begin, int32_t end) {
  using Ints = std::vector<int32_t>;
  return places.Make("slice", {{"Input", {x}}},
                     {{"axes", Ints{1}}, {"starts", Ints{begin}}, {"ends", Ints{end}}});
}

}  // namespace

// x with the values at places along the axis. The rows of x are joined: each element has one place.
void ReadPutAlongAxis(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"axis", "reduce", "include_self"});
  const std::string reduce = Get<std::string>(builder, op, "reduce", "assign");
  if (reduce != "assign" && reduce != "add")
    builder.Refuse(op, fmt::format("reduce {}: assign and add are known", Quote(reduce)));
  if (reduce == "add" && !Get<bool>(builder, op, "include_self", true))
    builder.Refuse(op, "sums without the elements that were there");
  const ValuePtr x = Needed(builder, op, 0), index = Needed(builder, op, 1);
  const ValuePtr values = Needed(builder, op, 2);
  const AlongAxis along = FindAlongAxis(builder, op, x, index);
  if (values->type.kind != Type::Kind::kTensor || values->type.shape != index->type.shape)
    builder.Refuse(op, "its values and its indices differ in shape");
  const std::string rows = RowsAlong(builder, op, x, along.swap, along.axis);
  const std::string added = RowsAlong(builder, op, values, along.swap, along.axis);
  const int64_t size = x->type.shape[along.axis];
  IndexWriter places(builder);
  const std::string wide =
      places.AsInt64(RowsAlong(builder, op, index, along.swap, along.axis), index->type.dtype);
  // The number of each row of x, next to its indices: a run fails if only one of them has the row.
  const std::string first = Columns(places, rows, 0, 1);
  const std::string ones =
      places.Make("fill_any_like", {{"X", {first}}},
                  {{"value", 1.0f}, {"dtype", static_cast<int32_t>(DType::kInt64)}});
  const std::string number =
      places.Make("cumsum", {{"X", {ones}}}, {{"axis", int32_t{0}}, {"exclusive", true}});
  const std::string both = places.Make("concat", {{"X", {number, wide}}}, {{"axis", int32_t{1}}});
  const int32_t count = along.to.back();
  const std::string inside = places.Inside(places.Flat(Columns(places, both, 1, count + 1)), size);
  const std::string at = places.Joined(
      Columns(places, both, 0, 1), size,
      places.Make("reshape2", {{"X", {inside}}}, {{"shape", std::vector<int32_t>{-1, count}}}));
  const std::string put =
      places.Put(places.Flat(rows), places.Flat(at), places.Flat(added), reduce == "add");
  GiveSwapped(builder, op, along, put, along.from);
}

}  // namespace coracle::pir
