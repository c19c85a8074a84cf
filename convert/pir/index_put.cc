// index_put(x, indices, value): x with values at indices of its first dims, or where a mask holds.

#include <coracle/convert/narrow.h>
#include <coracle/convert/pir/index_writer.h>
#include <coracle/convert/pir/op_access.h>
#include <coracle/convert/pir/op_reader.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::pir {
namespace {

std::string Reshaped(IndexWriter& places, const std::string& x, const std::vector<int64_t>& dims) {
  return places.Make("reshape2", {{"X", {x}}}, {{"shape", ToInt32(dims, "a size")}});
}

// One number where the mask is true.
void PutByMask(ProgramBuilder& builder, const Op& op, const ValuePtr& x, const ValuePtr& mask,
               const ValuePtr& value) {
  const Shape &shape = x->type.shape, &one = value->type.shape;
  if (shape.rank() == 0 || mask->type.shape != shape || !one.IsKnown() || one.numel() != 1) {
    builder.Refuse(op, fmt::format("a mask {} of a tensor {} with the values {}: only one number "
                                   "where a mask of the same shape is true is known",
                                   mask->type.shape.ToString(), shape.ToString(), one.ToString()));
  }
  IndexWriter places(builder);
  const std::string of = builder.VarOf(op, x);
  const std::string dims = places.Make("shape", {{"Input", {of}}});
  const std::string all =
      places.Make("expand_v2", {{"X", {places.Flat(builder.VarOf(op, value))}}, {"Shape", {dims}}});
  builder.Append(op, "where", {{"Condition", {builder.VarOf(op, mask)}}, {"X", {all}}, {"Y", {of}}},
                 {{"Out", 0}});
}

// Indices, one tensor for each of the first dims of x.
class IndexPut {
 public:
  IndexPut(ProgramBuilder& builder, const Op& op, const ValuePtr& x, const ValuePtr& indices)
      : builder_(builder), op_(op), x_(x), indices_(indices->items), places_(builder) {
    Check();
  }

  void Run(const ValuePtr& value, bool accumulate) {
    const std::vector<int64_t> flat = {joined_, -1};
    const std::string rows = Reshaped(places_, builder_.VarOf(op_, x_), flat);
    const std::string put = places_.Put(rows, Places(), Updates(value), accumulate);
    builder_.Append(op_, "reshape2", {{"X", {put}}}, {{"Out", 0}},
                    {{"shape", ToInt32(x_->type.shape.ToVector(), "a size")}});
  }

 private:
  void Check() {
    const Shape& shape = x_->type.shape;
    const auto count = static_cast<int>(indices_.size());
    if (count > shape.rank())
      builder_.Refuse(op_, fmt::format("{} indices of a tensor of rank {}", count, shape.rank()));
    const Shape& first = indices_[0]->type.shape;
    for (int i = 0; i < count; ++i) {
      const Type& index = indices_[static_cast<size_t>(i)]->type;
      if (index.dtype != DType::kInt64 && index.dtype != DType::kInt32)
        builder_.Refuse(op_, fmt::format("indices of type {}", ToString(index.dtype)));
      if (count > 1 && (!first.IsKnown() || index.shape != first))
        builder_.Refuse(op_, "several indices whose shapes are unknown or differ");
      if (shape[i] <= 0)
        builder_.Refuse(
            op_, fmt::format("a dim with indices is unknown or empty in {}", shape.ToString()));
      joined_ *= shape[i];
    }
    const auto unknown = std::count_if(shape.begin(), shape.end(), [](int64_t d) { return d < 0; });
    if (unknown > 1 || std::count(shape.begin(), shape.end(), 0) > 0)
      builder_.Refuse(op_, fmt::format("a tensor {}", shape.ToString()));
    target_ = first;
    for (int i = count; i < shape.rank(); ++i) target_.Append(shape[i]);
  }

  std::string Places() {
    std::string place;
    for (size_t i = 0; i < indices_.size(); ++i) {
      const int64_t size = x_->type.shape[static_cast<int>(i)];
      const std::string wide =
          places_.AsInt64(builder_.VarOf(op_, indices_[i]), indices_[i]->type.dtype);
      const std::string inside = places_.Inside(places_.Flat(wide), size);
      place = place.empty() ? inside : places_.Joined(place, size, inside);
    }
    return place;
  }

  // The values as rows, one for each index.
  std::string Updates(const ValuePtr& value) {
    std::string from = builder_.VarOf(op_, value);
    if (value->type.shape != target_) {
      if (!target_.IsKnown()) {
        builder_.Refuse(op_, fmt::format("values {} for the elements {}, which have an unknown dim",
                                         value->type.shape.ToString(), target_.ToString()));
      }
      from = places_.Make("expand_v2", {{"X", {from}}},
                          {{"shape", ToInt32(target_.ToVector(), "a size")}});
    }
    const Shape& index = indices_[0]->type.shape;
    const int64_t width = target_.Product(index.rank(), target_.rank());
    if (width >= 0) return Reshaped(places_, from, {-1, width});
    if (!index.IsKnown()) builder_.Refuse(op_, "more than one dim of its values is unknown");
    return Reshaped(places_, from, {index.numel(), -1});
  }

  ProgramBuilder& builder_;
  const Op& op_;
  const ValuePtr& x_;
  const std::vector<ValuePtr>& indices_;
  IndexWriter places_;
  int64_t joined_ = 1;  // the product of the dims with indices
  Shape target_;        // shape of the indexed elements
};

}  // namespace

void ReadIndexPut(ProgramBuilder& builder, const Op& op) {
  AllowAttrs(builder, op, {"accumulate"});
  const ValuePtr x = Needed(builder, op, 0), indices = Needed(builder, op, 1);
  const ValuePtr value = Needed(builder, op, 2);
  const bool accumulate = Get<bool>(builder, op, "accumulate", false);
  if (x->type.kind != Type::Kind::kTensor || value->type.kind != Type::Kind::kTensor ||
      indices->type.kind != Type::Kind::kList || indices->items.empty())
    builder.Refuse(op, "its operands must be a tensor, a list of indices and a tensor");
  if (x->type.dtype != value->type.dtype) builder.Refuse(op, "its values have another type");
  const ValuePtr& first = indices->items[0];
  if (first->type.dtype == DType::kBool && indices->items.size() == 1 && !accumulate)
    return PutByMask(builder, op, x, first, value);
  IndexPut(builder, op, x, indices).Run(value, accumulate);
}

}  // namespace coracle::pir
