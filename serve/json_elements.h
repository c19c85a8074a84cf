#pragma once
// The elements of a tensor in JSON, before its dtype is known.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::serve {

// The elements of one "data" field, in order, whatever its nesting. All are of one kind; integers
// become floats as soon as one of them is.
class JsonElements {
 public:
  enum class Kind { kNone, kBool, kInteger, kFloat, kText };

  // Throw HttpError with status 400 for elements of several kinds.
  void AddBool(bool value);
  void AddInteger(int64_t value);
  void AddUnsigned(uint64_t value);  // above INT64_MAX
  void AddFloat(double value);
  void AddText(std::string value);

  size_t size() const { return size_; }

  // The tensor `name` of that type. Throws HttpError with status 400 if the elements are too many
  // or too few, of another kind, or outside of the type's range: nothing is rounded to an integer,
  // wrapped or cut.
  Tensor ToTensor(const std::string& name, DType dtype, const Shape& shape) const;

 private:
  void Become(Kind kind);

  Kind kind_ = Kind::kNone;
  size_t size_ = 0;
  std::vector<bool> bools_;
  std::vector<int64_t> integers_;
  std::vector<size_t> unsigned_;  // elements of integers_ that are the bits of a uint64
  std::vector<double> floats_;
  std::vector<std::string> texts_;
};

}  // namespace coracle::serve
