#pragma once
// coracle_tensor as a Tensor, and back.

#include <coracle/coracle_c.h>
#include <coracle/framework/tensor/tensor.h>

#include <string>
#include <vector>

namespace coracle::capi {

// Sets *tensor to a view of the caller's elements, with a copy of its LoD. `what` names it in
// errors. Throws kInvalidArgument for a field that is wrong.
void ViewOf(const coracle_tensor& from, const std::string& what, Tensor* tensor);

// Results in the form of coracle_tensor; keeps what their pointers point to.
class Results {
 public:
  // Fills the fields of `to`, and copies the elements if it has memory for them. The elements of
  // `from` must stay where they are as long as `to` is used. Throws kOutOfRange, with the sizes, if
  // the memory is too small.
  void Fill(size_t index, const Tensor& from, const std::string& what, coracle_tensor* to);

 private:
  struct Kept {
    std::vector<int64_t> dims;
    LoD lod;
    std::vector<const uint64_t*> levels;
    std::vector<uint64_t> sizes;
  };
  std::vector<Kept> kept_;
};

}  // namespace coracle::capi
