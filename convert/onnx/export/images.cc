#include <coracle/convert/onnx/export/images.h>

namespace coracle::onnx {

bool ChannelsLast(const std::string& layout) { return layout.back() == 'C'; }

Shape ChannelsFirst(const Shape& shape, bool channels_last) {
  if (!channels_last) return shape;
  Shape first = shape;
  for (int i = 2; i < shape.rank(); ++i) first[i] = shape[i - 1];
  first[1] = shape[shape.rank() - 1];
  return first;
}

Value ToChannelsFirst(OpContext& op, const Value& value, int rank, bool channels_last) {
  if (!channels_last) return value;
  Ints permutation = {0, rank - 1};
  for (int i = 1; i < rank - 1; ++i) permutation.push_back(i);
  return op.Transpose(value, permutation);
}

Value FromChannelsFirst(OpContext& op, const Value& value, int rank, bool channels_last) {
  if (!channels_last) return value;
  Ints permutation = {0};
  for (int i = 2; i < rank; ++i) permutation.push_back(i);
  permutation.push_back(1);
  return op.Transpose(value, permutation);
}

Ints PadsOf(const Ints& paddings, size_t axes) {
  Ints pads(2 * axes);
  for (size_t i = 0; i < axes; ++i) {
    const bool both = paddings.size() == 2 * axes;
    pads[i] = both ? paddings[2 * i] : paddings[i];
    pads[axes + i] = both ? paddings[2 * i + 1] : paddings[i];
  }
  return pads;
}

}  // namespace coracle::onnx
