#pragma once
// The elements of a tensor in JSON, before its dtype is known.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
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
  void AddNegativeZero();            // "-0": the sign counts in a tensor of floats
  // The double and the float that are nearest to the text: a double that is rounded again may
  // become another float.
  void AddFloat(double value, float single);
  void AddText(std::string_view value);

  size_t size() const { return size_; }

  // The tensor `name` of that type. Throws HttpError with status 400 if the elements are too many
  // or too few, of another kind, or outside of the type's range: nothing is rounded to an integer,
  // wrapped or cut.
  Tensor ToTensor(const std::string& name, DType dtype, const Shape& shape) const;

 private:
  void Become(Kind kind);
  void BecomeFloats();
  void NoteSingle(size_t i, double value, float single);
  // Calls f(i, word, is_unsigned) for each of words_.
  template <class F>
  void ForEachWord(const F& f) const;
  template <class T>
  void FillIntegers(const std::string& name, Tensor* to) const;
  template <class T>
  void FillFloats(const std::string& name, Tensor* to) const;
  Tensor Texts(const Shape& shape) const;

  Kind kind_ = Kind::kNone;
  size_t size_ = 0;
  std::vector<bool> bools_;
  std::deque<uint64_t> words_;  // the bits of int64_t, uint64_t or double; grows without copies
  // Indices of words_ that hold a uint64_t, and of "-0" among integers, ascending.
  std::deque<size_t> unsigned_, negative_zeros_;
  // Indices of words_ whose nearest float is not the rounded double, and that float, ascending.
  std::deque<std::pair<size_t, float>> singles_;
  std::string texts_;  // one after the other
  std::deque<size_t> text_ends_;
};

}  // namespace coracle::serve
