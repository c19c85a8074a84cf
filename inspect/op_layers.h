#pragma once
// Finds the layer of a model that each op of a program belongs to: forward, backward and
// update ops.

#include <coracle/framework/ir/program.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace coracle::inline internal {

struct ModelLayer {
  std::string name;    // name of its result if the text gives one, else of the layer: "fc_0"
  std::string origin;  // its entry in the model text, "lenet.pbtxt:7:9"; or ""
  // Rounds of the repeats, and places of the includes, around the entry: "i = 2"; or "".
  std::string round;
};

// In a program built from a model text, a layer is one entry of the text (in a repeat, one round of
// the entry), with the casts that mixed precision puts before it. In other programs, a layer
// consists of the ops that write variables called NAME.tmp_0, NAME.tmp_1, ..., which are Paddle's
// names for the results of a layer. Gradient ops belong to the layer of their forward op. Ops on a
// gradient or parameter belong to the layer that writes the variable or reads it first. Linear in
// the size of the program; safe for unverified programs. The program must outlive the object and
// stay unchanged.
class OpLayers {
 public:
  explicit OpLayers(const ProgramDesc& program);

  // In the order in which the program mentions them first.
  const std::vector<ModelLayer>& layers() const { return layers_; }
  // nullptr for an op that belongs to no layer or to several.
  const ModelLayer* Find(const OpDesc& op) const;

 private:
  friend class OpLayersFinder;

  std::vector<ModelLayer> layers_;
  std::unordered_map<const OpDesc*, size_t> layer_of_;
};

}  // namespace coracle::inline internal
