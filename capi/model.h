#pragma once
// A loaded model, and the sessions that run it.

#include <coracle/capi/tensors.h>
#include <coracle/coracle_c.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/resource_limits.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace coracle::capi {

struct Port {  // an input or output, as the program declares it
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
};

// Immutable once it is loaded.
struct Model {
  CompileOptions options;
  Scope state;  // variables that runs change; parameters are part of `program`
  std::vector<Port> inputs, outputs;
  std::unique_ptr<const PreparedProgram> program;
};

}  // namespace coracle::capi

struct coracle_model {
  std::shared_ptr<const coracle::capi::Model> model;
};

struct coracle_session {
  explicit coracle_session(std::shared_ptr<const coracle::capi::Model> of);

  std::shared_ptr<const coracle::capi::Model> model;
  std::vector<std::string> input_names, output_names;  // for errors: "input 'x'"
  coracle::PreparedProgram program;
  coracle::Scope scope;
  coracle::capi::StateTensors state;
  std::vector<coracle::Tensor> feeds;
  coracle::capi::Results results;
  std::atomic<bool> running{false}, cancelled{false};
  std::shared_ptr<coracle::ResourceLimits> limits;
};
