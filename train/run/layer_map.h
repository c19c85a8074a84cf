#pragma once
// Which layer of a model, and which part of a training step, an op belongs to.

#include <coracle/framework/ir/program.h>
#include <coracle/train/run/trainer.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// A layer is the forward ops of the root block that OpLayers tells as one, or a forward op of no
// layer.
class LayerMap {
 public:
  static constexpr size_t kOther = SIZE_MAX;  // no layer's

  struct Place {
    StepPart part = StepPart::kForward;
    std::vector<std::pair<size_t, double>> shares = {{kOther, 1.0}};  // of layers; their sum is 1
  };

  // `program`: of a training step, not yet compiled, with the shapes that it is run with where
  // they are known.
  explicit LayerMap(const ProgramDesc& program);

  // Of an op of the compiled program, whose variables passes may have renamed.
  Place Find(const OpDesc& op) const;
  // Whether the op is a loop or branch of the model, whose block belongs to the op's layer; or else
  // passes made it of ops that belong to layers.
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
  std::map<std::string, double> parameters_;  // and how many elements they have
  std::map<std::string, double> elements_;    // of all variables of known shape
};

// The first output that is a variable; "" without one.
std::string FirstOutput(const OpDesc& op);

}  // namespace coracle
