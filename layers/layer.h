#pragma once
// LayerDef: a builder function as model text sees it, with its inputs, its fields (types, defaults,
// docs), and the call. The schema of model text is made from these and from the op registry.
// LayerFields declares one from an options struct:
//
//   RegisterLayer(LayerFields<MyOptions>("my_layer", "What it does.")
//                     .Input("input", "tensor of any shape")
//                     .Field("factor", &MyOptions::factor, "multiplies the input")
//                     .Build(MyLayer));  // Variable MyLayer(Builder&, const Variable&, const
//                                        // MyOptions&)

#include <coracle/framework/ir/fields.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

struct FieldDef {
  enum class Kind {
    kVar,    // name of a variable
    kVars,   // names of one or more variables
    kAttr,   // a value of type `type`
    kDType,  // an element type; an INT attr
    kParam,  // a ParamAttr
    kFile,   // a path, relative to the text; a STRING attr
  };
  std::string name;
  Kind kind = Kind::kAttr;
  AttrType type = AttrType::kInt;
  std::optional<Attribute> default_value = std::nullopt;
  bool required = false;
  std::string doc = "";
  std::optional<FieldRange> range = std::nullopt;  // the values that a text may give
};

// The field values of one entry.
class LayerArgs {
 public:
  OutputOptions output;              // name, output, act, error_clip, stop_gradient
  std::vector<std::string> outputs;  // names, for a layer with several results
  std::map<std::string, std::vector<Variable>> vars;
  std::map<std::string, Attribute> attrs;  // given values and defaults
  std::map<std::string, ParamAttr> params;

  bool HasVar(const std::string& name) const { return vars.count(name) > 0; }
  const Variable& Var(const std::string& name) const {
    const std::vector<Variable>& all = Vars(name);
    if (all.empty()) ThrowInvalid("the field '" + name + "' of a layer names no variable");
    return all.front();
  }
  const std::vector<Variable>& Vars(const std::string& name) const {
    const auto found = vars.find(name);
    if (found == vars.end()) ThrowInvalid("a layer has no field '" + name + "'");
    return found->second;
  }
  bool Has(const std::string& name) const { return attrs.count(name) > 0; }
  ParamAttr Param(const std::string& name) const {
    auto found = params.find(name);
    return found == params.end() ? ParamAttr() : found->second;
  }
};

struct LayerDef {
  enum class Result {
    kOne,      // output, act, name, error_clip, stop_gradient
    kMetric,   // output, name: no gradient flows back
    kSeveral,  // output (repeated), name, error_clip, stop_gradient
  };
  using Build = std::function<std::vector<Variable>(Builder&, const LayerArgs&)>;

  std::string name, doc;
  std::vector<FieldDef> fields;
  Build build;
  Result result = Result::kOne;
  std::string example = "";  // a model text with the layer; "": help searches for one
};

// Registers a layer for model text and its schema. Process-wide and thread-safe; throws
// kAlreadyExists for a name that is taken, and kInvalidArgument for names that are not identifiers.
void RegisterLayer(LayerDef layer);

// How texts give members of these types: a size as one number or two; paddings as one, two or four
// numbers, with a separate field for the name of the algorithm; an element type as its number.
MemberType TypeOfSize();
MemberType TypeOfPadding();
MemberType TypeOfPaddingAlgorithm();
MemberType TypeOfDType();

// A model text: data entries for the inputs, such as "x: [-1, 8]; ids: [-1, 1] dtype: int64", and
// the layer with its fields.
std::string MakeLayerExample(std::string_view layer, std::string_view inputs,
                             std::string_view fields);

// The part of LayerFields that does not depend on the options.
class LayerDeclaration {
 protected:
  LayerDeclaration(std::string name, const std::string& doc) {
    def_.name = std::move(name);
    def_.doc = doc;
  }
  void AddInput(FieldDef::Kind kind, const std::string& name, const std::string& doc,
                bool required) {
    const bool one = kind == FieldDef::Kind::kVar;
    def_.fields.push_back(
        {name, kind, one ? AttrType::kString : AttrType::kStrings, std::nullopt, required, doc});
  }
  void AddField(FieldDef::Kind kind, const FieldSpec& field) {
    def_.fields.push_back({field.name, kind, field.member.type, field.default_value, field.required,
                           field.doc, field.range});
  }
  void AddParam(const std::string& name, const std::string& doc) {
    def_.fields.push_back(
        {name, FieldDef::Kind::kParam, AttrType::kString, std::nullopt, false, doc});
  }
  std::string InputName(size_t i) const {
    if (i < def_.fields.size()) return def_.fields[i].name;
    ThrowInvalid("layer " + def_.name + ": its function takes more inputs than it declares");
  }

  // Sets the options that every layer has.
  template <class Options>
  static void SetOutput(const LayerArgs& args, Options* options) {
    if constexpr (requires { options->name; }) options->name = args.output.name;
    if constexpr (requires { options->output; }) options->output = args.output.output;
    if constexpr (requires { options->outputs; }) options->outputs = args.outputs;
    if constexpr (requires { options->act; }) {
      options->act = args.output.act;
      options->error_clip = args.output.error_clip;
      options->stop_gradient = args.output.stop_gradient;
    }
  }

  LayerDef def_;
};

template <class Options>
class LayerFields : LayerDeclaration {
 public:
  using Call = std::function<std::vector<Variable>(Builder&, const LayerArgs&, const Options&)>;

  LayerFields(std::string name, const std::string& doc)
      : LayerDeclaration(std::move(name), doc), fields_(doc) {}

  LayerFields& Input(const std::string& name, const std::string& doc) {
    AddInput(FieldDef::Kind::kVar, name, doc, true);
    return *this;
  }
  LayerFields& OptionalInput(const std::string& name, const std::string& doc) {
    AddInput(FieldDef::Kind::kVar, name, doc, false);
    return *this;
  }
  LayerFields& Inputs(const std::string& name, const std::string& doc) {
    AddInput(FieldDef::Kind::kVars, name, doc, true);
    return *this;
  }

  // Adds a path, which texts give relative to themselves.
  LayerFields& File(const std::string& name, std::string Options::*member, const std::string& doc) {
    fields_.Add(name, member, doc, kRequired);
    AddLast(FieldDef::Kind::kFile);
    return *this;
  }
  // Adds a field. Its traits follow the doc, as in Fields.
  template <class Member, class... Traits>
  LayerFields& Field(const std::string& name, Member Options::*member, const std::string& doc,
                     const Traits&... traits) {
    if constexpr (std::is_same_v<Member, Size2>)
      fields_.Add(name, member, doc, TypeOfSize(), traits...);
    else if constexpr (std::is_same_v<Member, coracle::Padding>)
      fields_.Add(name, member, doc, TypeOfPadding(), traits...);
    else if constexpr (std::is_same_v<Member, DType>)
      fields_.Add(name, member, doc, TypeOfDType(), traits...);
    else
      fields_.Add(name, member, doc, traits...);
    AddLast(std::is_same_v<Member, DType> ? FieldDef::Kind::kDType : FieldDef::Kind::kAttr);
    return *this;
  }
  // Adds the paddings with that name, and "padding_algorithm".
  LayerFields& Paddings(const std::string& name, coracle::Padding Options::*member) {
    Field(name, member, "height and width, or top, bottom, left, right");
    fields_.Add("padding_algorithm", member, "or SAME or VALID, without padding",
                TypeOfPaddingAlgorithm());
    AddLast(FieldDef::Kind::kAttr);
    return *this;
  }

  LayerFields& Param(const std::string& name, ParamAttr Options::*member, const std::string& doc) {
    AddParam(name, doc);
    setters_.push_back([name, member](const LayerArgs& args, Options* options) {
      options->*member = args.Param(name);
    });
    return *this;
  }
  // Adds a parameter that is omitted if bias_term is false; call BiasTerm after it.
  LayerFields& Bias(const std::string& name, std::optional<ParamAttr> Options::*member,
                    const std::string& doc) {
    AddParam(name, doc);
    setters_.push_back([name, member](const LayerArgs& args, Options* options) {
      options->*member = std::nullopt;
      if (AttributeAs<bool>(args.attrs.at("bias_term"))) options->*member = args.Param(name);
    });
    return *this;
  }
  LayerFields& BiasTerm() {
    def_.fields.push_back({"bias_term", FieldDef::Kind::kAttr, AttrType::kBoolean, Attribute(true),
                           false, "whether there is a bias"});
    return *this;
  }
  LayerFields& Result(LayerDef::Result result) {
    def_.result = result;
    return *this;
  }
  // An example for help: the inputs as "NAME: SHAPE; NAME: SHAPE", and the fields of the layer.
  LayerFields& Example(std::string_view inputs, std::string_view fields) {
    def_.example = MakeLayerExample(def_.name, inputs, fields);
    return *this;
  }

  // Throws kInvalidArgument for a number out of range: "fc: size must be positive, got 0".
  void Check(const Options& options) const { fields_.Check(def_.name, options); }

  // The options that an entry gives. Throws the errors of Check.
  Options Read(const LayerArgs& args) const {
    Options options{};
    for (const FieldSpec& field : fields_.fields()) {
      if (args.Has(field.name))
        FieldTable::Set(field, def_.name, args.attrs.at(field.name), &options);
    }
    for (const auto& set : setters_) set(args, &options);
    SetOutput(args, &options);
    Check(options);
    return options;
  }

  // Makes the layer; `call` appends its result.
  LayerDef Build(Call call) const {
    LayerDef layer = def_;
    layer.build = [table = *this, call = std::move(call)](Builder& net, const LayerArgs& args) {
      return call(net, args, table.Read(args));
    };
    return layer;
  }
  // For functions with one input.
  LayerDef Build(Variable (Builder::*method)(const Variable&, const Options&)) const {
    return Build(
        [method, x = InputName(0)](Builder& net, const LayerArgs& args, const Options& options) {
          return std::vector<Variable>{(net.*method)(args.Var(x), options)};
        });
  }
  LayerDef Build(Variable (*function)(Builder&, const Variable&, const Options&)) const {
    return Build(
        [function, x = InputName(0)](Builder& net, const LayerArgs& args, const Options& options) {
          return std::vector<Variable>{function(net, args.Var(x), options)};
        });
  }
  // For functions with two inputs.
  LayerDef Build(Variable (Builder::*method)(const Variable&, const Variable&,
                                             const Options&)) const {
    return Build([method, x = InputName(0), y = InputName(1)](Builder& net, const LayerArgs& args,
                                                              const Options& options) {
      return std::vector<Variable>{(net.*method)(args.Var(x), args.Var(y), options)};
    });
  }
  // For functions with one or more inputs.
  LayerDef BuildOfMany(Variable (Builder::*method)(const std::vector<Variable>&,
                                                   const Options&)) const {
    return Build(
        [method, x = InputName(0)](Builder& net, const LayerArgs& args, const Options& options) {
          return std::vector<Variable>{(net.*method)(args.Vars(x), options)};
        });
  }

 private:
  void AddLast(FieldDef::Kind kind) { AddField(kind, fields_.fields().back()); }

  Fields<Options> fields_;
  std::vector<std::function<void(const LayerArgs&, Options*)>> setters_;
};

// --- model text ---
// A network is protobuf text whose schema is made from the layer definitions and the op registry.

// The state for which a model text is read. A layer, repeat or data entry can be limited to
// some states:
//   layer { dropout { ... } include_if { phase: TRAIN } }
//   layer { accuracy { ... } exclude_if { stage: "deploy" } }
// An entry with include_if is in a program if any of its rules holds, an entry with exclude_if if
// none does (an entry cannot have both). A rule holds if all of its conditions do: the phase
// matches, min_level <= level <= max_level, the state has every `stage` and no `not_stage`.
struct ModelState {
  bool train = true;  // phase TRAIN, else TEST
  std::vector<std::string> stages = {};
  int64_t level = 0;
};

struct BuiltModel {
  std::string name;
  ProgramDesc main;
  ProgramDesc startup;
  std::vector<std::string> inputs;  // the data entries, in order
  bool has_rules = false;           // other states may give other programs
};

// Builds the programs of a model text. Errors say source:line:column and the nearest known name; a
// shape error points at the layer's entry. Also accepts a ProgramDesc, as text or binary (startup
// is then empty). `directory` is searched for includes.
BuiltModel ParseModelText(std::string_view text, const std::string& source = "model",
                          const std::string& directory = ".", const OpRegistry& ops = DefaultOps(),
                          const ModelState& state = {});
BuiltModel ReadModelText(const std::string& path, const OpRegistry& ops = DefaultOps(),
                         const ModelState& state = {});  // "-": standard input

// The schema of model text as a .proto file, for editors and protoc.
std::string ModelSchema(const OpRegistry& ops = DefaultOps());
// Describes the fields of a layer, an initializer, or an entry such as "while" and "repeat"; "" for
// an unknown name.
std::string DescribeLayer(const std::string& name, const OpRegistry& ops = DefaultOps());
std::vector<std::string> LayerNames(const OpRegistry& ops = DefaultOps());  // all known ones

}  // namespace coracle
