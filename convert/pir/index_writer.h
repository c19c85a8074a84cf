#pragma once
// Ops that compute places of elements from indices, for ops of Paddle 3 that write at indices.

#include <coracle/convert/pir/program_builder.h>

#include <string>

namespace coracle::pir {

// Appends ops to the current block. Takes and returns names of variables; places are int64.
class IndexWriter {
 public:
  explicit IndexWriter(ProgramBuilder& builder) : writer_(builder.writer()) {}

  std::string Make(const char* type, SlotList inputs, AttrList attrs = {}) {
    return writer_.Make(type, std::move(inputs), std::move(attrs)).name();
  }
  std::string Binary(const char* type, const std::string& x, const std::string& y) {
    return Make(type, {{"X", {x}}, {"Y", {y}}});
  }
  std::string AsInt64(const std::string& index, DType dtype);
  std::string Flat(const std::string& x);  // one dim
  std::string Number(int64_t value);       // [1]
  // A vector of indices along a dim of `size` elements; negative ones count from its end. A run
  // fails for others, because it looks them up among the places of the dim.
  std::string Inside(const std::string& index, int64_t size);
  // row * size + place: the places if rows of `size` elements are joined.
  std::string Joined(const std::string& row, int64_t size, const std::string& place);
  // The rows of x with `values` at the places (a vector), which replace the old values or are added
  // to them. The last of several values at one place replaces it.
  std::string Put(const std::string& x, const std::string& places, const std::string& values,
                  bool add);

 private:
  Writer& writer_;
};

}  // namespace coracle::pir
