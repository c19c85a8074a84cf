#pragma once
// Which layer of a model each op of a program belongs to, of forward, backward and update.

#include <coracle/framework/ir/program.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace coracle {

struct ModelLayer {
  std::string name;    // of its result where the text named it, else of the layer: "fc_0"
  std::string origin;  // its entry in the model text, "lenet.pbtxt:7:9"; or ""
  std::string round;   // of the repeats and includes around the entry, "i = 2"; or ""
};

// In a program that was a model text, a layer is one entry of it (in a repeat one round of the
// entry), with the casts that mixed precision put before it. In any other program it is what
// variables called NAME.tmp_0, NAME.tmp_1, ... come from, which is how Paddle names what a layer
// makes. Gradient ops belong to the layer of their forward op, ops on a gradient or parameter to
// the layer that made or first reads the variable. Linear in the size of the program; safe on
// programs that were never verified. The program must outlive the object and stay unchanged.
class OpLayers {
 public:
  explicit OpLayers(const ProgramDesc& program);

  // In the order in which the program first mentions them.
  const std::vector<ModelLayer>& layers() const { return layers_; }
  // nullptr for an op of no layer, or of several.
  const ModelLayer* Find(const OpDesc& op) const;

 private:
  friend class OpLayersFinder;

  std::vector<ModelLayer> layers_;
  std::unordered_map<const OpDesc*, size_t> layer_of_;
};

}  // namespace coracle
