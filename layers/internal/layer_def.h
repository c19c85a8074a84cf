#pragma once
// LayerDef: a builder function as model text sees it: its fields with types, defaults and docs, and
// the call. The schema of model text is made from these and from the op registry.

#include <coracle/layers/builder.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

struct FieldDef {
  enum class Kind {
    kVar,    // name of a variable
    kVars,   // names of one or more variables
    kAttr,   // a value of type `type`
    kDType,  // an element type; an INT attr
    kParam,  // a ParamAttr
  };
  std::string name;
  Kind kind = Kind::kAttr;
  AttrType type = AttrType::kInt;
  std::optional<Attribute> default_value = std::nullopt;
  bool required = false;
  std::string doc = "";
};

// The fields of one entry, read.
class LayerArgs {
 public:
  OutputOptions output;              // name, output, act, error_clip, stop_gradient
  std::vector<std::string> outputs;  // of a layer with several results
  std::map<std::string, std::vector<Variable>> vars;
  std::map<std::string, Attribute> attrs;  // given ones and defaults
  std::map<std::string, ParamAttr> params;

  const Variable& Var(const std::string& name) const { return vars.at(name).front(); }
  const std::vector<Variable>& Vars(const std::string& name) const { return vars.at(name); }
  bool Has(const std::string& name) const { return attrs.count(name) > 0; }
  template <class T>
  T Get(const std::string& name) const {
    return AttributeAs<T>(attrs.at(name));
  }
  ParamAttr Param(const std::string& name) const {
    auto found = params.find(name);
    return found == params.end() ? ParamAttr() : found->second;
  }
};

struct LayerDef {
  enum class Result {
    kOne,      // output, act, name, error_clip, stop_gradient
    kMetric,   // output, name: nothing flows back from it
    kSeveral,  // output (repeated), name, error_clip, stop_gradient
  };
  using Build = std::function<std::vector<Variable>(Builder&, const LayerArgs&)>;

  std::string name, doc;
  std::vector<FieldDef> fields;
  Build build;
  Result result = Result::kOne;
};

// The layers of this library, and one for each op of the registry with at most the inputs X and Y
// and the output Out ("relu", "elementwise_add", "fill_constant") that is not among them.
std::vector<LayerDef> LayerDefs(const OpRegistry& ops);

// One field for each attr of the op (those that name a block excepted).
std::vector<FieldDef> AttrFields(const OpDef& def);

}  // namespace coracle
