#pragma once
// Maps an op to its layer of the model and its part of a training step.

#include <coracle/framework/ir/program.h>
#include <coracle/train/run/time_model.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// A layer consists of the forward ops of the root block that OpLayers assigns to one layer. A
// forward op without such a layer is a layer of its own.
class LayerMap {
 public:
  static constexpr size_t kOther = SIZE_MAX;  // no layer

  struct Place {
    StepPart part = StepPart::kForward;
    // The share of each layer; the shares sum to 1.
    std::vector<std::pair<size_t, double>> shares = {{kOther, 1.0}};
  };

  // `program` is a training step before compilation, with the shapes of the run if they are known.
  explicit LayerMap(const ProgramDesc& program);

  // Finds the place of an op of the compiled program, whose variables may have been renamed
  // by passes.
  Place Find(const OpDesc& op) const;
  // Whether the op is a loop or branch of the model, whose block belongs to the layer of the op.
  // Otherwise passes made the op from ops that may belong to several layers.
  bool RunsBlockOfModel(const OpDesc& op) const;
  const std::vector<LayerTime>& layers() const { return layers_; }  // without times

 private:
  using Index = std::map<std::string, size_t>;

  void AddForward(const OpDesc& op, size_t index);
  size_t LayerOf(const OpDesc& op, StepPart part) const;
  std::vector<std::pair<size_t, double>> SharesOf(const OpDesc& op) const;
  std::vector<std::pair<size_t, double>> SharesOfBlocks(const OpDesc& op) const;
  size_t MakerOf(const std::string& var) const;
  static size_t At(const Index& index, const std::string& key);

  std::vector<LayerTime> layers_;
  Index by_output_, by_op_, by_site_, by_link_, reader_;
  std::set<std::string> runs_blocks_;         // types of ops
  std::map<std::string, double> parameters_;  // number of elements of each parameter
  std::map<std::string, double> elements_;    // number of elements of each variable of known shape
};

}  // namespace coracle::inline internal
