#pragma once
// coracle_tensor as a Tensor, and back.

#include <coracle/coracle_c.h>
#include <coracle/framework/tensor/tensor.h>

#include <span>
#include <string>
#include <vector>

namespace coracle::capi {

// Sets *tensor to a view of the caller's elements, with a copy of its LoD. `what` names it in
// errors. Throws kInvalidArgument for a field that is wrong.
void ViewOf(const coracle_tensor& from, const std::string& what, Tensor* tensor);

// Throws kInvalidArgument if the tensor cannot receive a result. Callers check all outputs before a
// run, so that a wrong one does not change the state of a model.
void CheckOutput(const coracle_tensor& to, const std::string& what);

// The tensors of a scope, which results must not share memory with.
class StateTensors {
 public:
  // Valid until a variable is added to the scope or removed from it.
  const std::vector<const VarValue*>& Of(const Scope& scope);

 private:
  uint64_t generation_ = 0;
  std::vector<const VarValue*> values_;
};

// Results in the form of coracle_tensor; keeps what their pointers point to.
class Results {
 public:
  // Memory of others: results that lie in it are copied.
  struct Others {
    std::span<const Tensor> feeds;
    std::span<const VarValue* const> state;
  };

  // Fills `to`, one tensor for each of `from`, and copies the elements of those that have memory.
  // The elements of `from` must stay where they are as long as `to` is used. `names` are for
  // errors. Throws kOutOfRange if some memory is too small, and sets `bytes` of all tensors then;
  // and kInvalidArgument for strings that would have to be copied, without any change.
  void Fill(std::span<const Tensor> from, const Others& others, std::span<const std::string> names,
            coracle_tensor* to);

 private:
  struct Kept {
    std::vector<int64_t> dims;
    LoD lod;
    std::vector<const uint64_t*> levels;
    std::vector<uint64_t> sizes;
    Tensor copy;  // of a result that lies in a feed or a parameter
  };
  static void FillOne(const Tensor& from, Kept& kept, coracle_tensor* to);

  std::vector<Kept> kept_;
};

}  // namespace coracle::capi
