#pragma once
// LayerScope: one layer while its ops are appended. It names the variables and finishes the result.

#include <coracle/layers/builder.h>

#include <string>
#include <vector>

namespace coracle {

template <class Options>
OutputOptions OutputOf(const Options& options) {
  return {options.act, options.name, options.output, options.error_clip, options.stop_gradient};
}

class LayerScope {
 public:
  // Throws for an act that is no activation op and for an output name that is taken.
  LayerScope(Builder& net, const std::string& type, OutputOptions options);

  const std::string& name() const { return name_; }
  // A fresh name "<layer>.tmp_<k>".
  std::string Temp();
  // The name for what the layer's main op writes: the result's own when nothing follows it.
  std::string Out(bool bias_follows = false);
  // x + b, one element of b for each index of `axis`.
  std::string AddBias(const std::string& x, const std::optional<ParamAttr>& attr, int axis);
  // Applies act and sets what the options say of the result.
  Variable Finish(const std::string& result);

 private:
  Builder& net_;
  std::string type_, name_;
  OutputOptions options_;
  int temps_ = 0;
};

// Throws kAlreadyExists when a layer may not call its result `name`.
void RequireFreeOutput(Builder& net, const std::string& type, const std::string& name);

// Whether the op is X -> Out and nothing else is required of it.
bool IsUnary(const OpSpec& def);

}  // namespace coracle
