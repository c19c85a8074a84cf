#pragma once
// LayerScope: one layer while its ops are appended. It names the variables and finishes the result.

#include <coracle/layers/builder.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

template <class Options>
OutputOptions OutputOf(const Options& options) {
  return {options.act, options.name, options.output, options.error_clip, options.stop_gradient};
}

class LayerScope {
 public:
  // Throws if `act` is not an activation op and if the output name is taken.
  LayerScope(Builder& net, const std::string& type, OutputOptions options);

  const std::string& name() const { return name_; }
  // A fresh name "<layer>.tmp_<k>".
  std::string Temp();
  // The name for the output of the layer's main op: the name of the result if nothing follows it.
  std::string Out(bool bias_follows = false);
  // x + b, with one element of b for each index of `axis`.
  std::string AddBias(const std::string& x, const std::optional<ParamAttr>& attr, int axis);
  // Applies act and sets the properties of the result given in the options.
  Variable Finish(const std::string& result);

 private:
  Builder& net_;
  std::string type_, name_;
  OutputOptions options_;
  int temps_ = 0;
};

// Throws kAlreadyExists if a layer may not use `name` for its result.
void RequireFreeOutput(Builder& net, const std::string& type, const std::string& name);

// The name of an operand. Throws kInvalidArgument if the block does not see the variable: ops find
// operands by name, so a variable of another program or block would be another one of that name.
const std::string& NameSeenFrom(const BlockDesc& block, const Variable& x);
const std::string& NameIn(Builder& net, const Variable& x);  // seen from the builder's block
std::vector<std::string> NamesIn(Builder& net, const std::vector<Variable>& x);

// Whether the op has the form X -> Out and requires nothing else.
bool IsUnary(const OpSpec& def);

}  // namespace coracle::inline internal
