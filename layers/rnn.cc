// Recurrent layers: the rnn op with its parameters and initial states.

#include <coracle/framework/ir/edit_guard.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/layer_scope.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle {
namespace {

constexpr int32_t kMaxLayers = 1024;  // each has at least four parameters

// The fields common to Lstm, Gru and SimpleRnn.
LayerFields<RnnOptions> RecurrentFields(const std::string& name, const char* doc) {
  using O = RnnOptions;
  const char *kUnlessSaid = "default: uniform in +-1 / sqrt(hidden_size)",
             *kState = "[num_layers * directions, batch, hidden_size]; default: 0";
  LayerFields<O> layer =
      LayerFields<O>(name, doc)
          .Input("input", "tensor [batch, time, features]")
          .Field("hidden_size", &O::hidden_size, "units of a layer and direction", kRequired,
                 PositiveRange())
          .Field("num_layers", &O::num_layers, "each reads the output of the previous one",
                 FieldRange{1, kMaxLayers, false, false,
                            fmt::format("must lie in [1, {}]", kMaxLayers)})
          .Field("direction", &O::direction,
                 "or bidirect: with a second direction from the end, whose output is appended to "
                 "the first's")
          .Field("time_major", &O::time_major, "input and output are [time, batch, features]")
          .Field("dropout", &O::dropout, "between layers, while training")
          .OptionalInput("initial_h", kState)
          .OptionalInput(
              "sequence_length",
              "integers [batch]: steps of each sample; default: all. A step past the end "
              "outputs 0")
          .Param("weight_ih", &O::weight_ih_attr, kUnlessSaid)
          .Param("weight_hh", &O::weight_hh_attr, kUnlessSaid)
          .Bias("bias_ih", &O::bias_ih_attr, kUnlessSaid)
          .Bias("bias_hh", &O::bias_hh_attr, kUnlessSaid)
          .BiasTerm()
          .Field("last_h", &O::last_h, "name of the h after the last step")
          .Field("is_test", &O::is_test, "drop nothing");
  if (name == "lstm") {
    layer.OptionalInput("initial_c", kState)
        .Field("last_c", &O::last_c, "name of the c after the last step");
  } else if (name == "simple_rnn") {
    layer.Field("activation", &O::activation, "or relu");
  }
  return layer;
}

using RnnMethod = RnnOutput (Builder::*)(const Variable&, const RnnOptions&);

LayerDef RecurrentLayer(const std::string& name, const char* doc, RnnMethod method) {
  return RecurrentFields(name, doc).Build(
      [method](Builder& net, const LayerArgs& args, RnnOptions options) {
        for (const char* state : {"initial_h", "initial_c"})
          if (args.HasVar(state)) options.initial_states.push_back(args.Var(state));
        if (args.HasVar("sequence_length")) options.sequence_length = args.Var("sequence_length");
        return std::vector<Variable>{(net.*method)(args.Var("input"), options).out};
      });
}

// Throws for options that the op would accept, or would refuse with an unclear message.
void CheckRecurrent(const char* type, const Variable& x, const RnnOptions& o) {
  auto fail = [type](const std::string& what) { ThrowInvalid(fmt::format("{}: {}", type, what)); };
  RecurrentFields(type, "").Check(o);
  if (o.direction != "forward" && o.direction != "bidirect" && o.direction != "bidirectional")
    fail(fmt::format("direction must be forward or bidirect, got {}", o.direction));
  const Shape& shape = x.shape();
  if (shape.rank() != 3 || shape[2] < 0) {
    fail(fmt::format("its input must have shape {} with known features, got {} of shape {}",
                     o.time_major ? "[time, batch, features]" : "[batch, time, features]", x.name(),
                     shape.ToString()));
  }
}

// A recurrent layer while it is built.
class Recurrent {
 public:
  Recurrent(Builder& net, const char* type, const char* mode, const RnnOptions& options)
      : net_(net),
        type_(type),
        mode_(mode),
        options_(options),
        layer_(net, type, OutputOf(options)),
        directions_(options.direction == "forward" ? 1 : 2) {}

  RnnOutput Build(const Variable& x) {
    const Variable input = TimeMajor(x);
    SlotList inputs = {{"Input", {NameIn(net_, input)}},
                       {"PreState", InitialStates(input)},
                       {"WeightList", Parameters(input)}};
    if (options_.sequence_length)
      inputs.push_back({"SequenceLength", {NameIn(net_, options_.sequence_length)}});
    const std::string out = layer_.Out(!options_.time_major);
    const std::vector<std::string> states = LastStates();
    const std::string reserve = layer_.Temp(), dropped = layer_.Temp();
    net_.Append(
        "rnn", std::move(inputs),
        {{"Out", {out}}, {"State", states}, {"Reserve", {reserve}}, {"DropoutState", {dropped}}},
        {{"mode", std::string(mode_)},
         {"input_size", static_cast<int32_t>(input.shape()[2])},
         {"hidden_size", options_.hidden_size},
         {"num_layers", options_.num_layers},
         {"is_bidirec", directions_ == 2},
         {"dropout_prob", options_.dropout},
         {"is_test", options_.is_test}});
    for (const std::string& name : {reserve, dropped}) net_.Var(name).desc().SetStopGradient(true);
    RnnOutput result;
    result.out = layer_.Finish(options_.time_major ? out : Transposed(out, layer_.Out()));
    for (const std::string& name : states) result.states.push_back(net_.Var(name));
    return result;
  }

 private:
  size_t NumStates() const { return std::string_view(mode_) == "LSTM" ? 2 : 1; }
  int64_t Cells() const { return int64_t{options_.num_layers} * directions_; }

  std::string Transposed(const std::string& from, const std::string& to) {
    const std::string x_shape = layer_.Temp();
    net_.Append("transpose2", {{"X", {from}}}, {{"Out", {to}}, {"XShape", {x_shape}}},
                {{"axis", std::vector<int32_t>{1, 0, 2}}});
    net_.Var(x_shape).desc().SetStopGradient(true);
    return to;
  }

  Variable TimeMajor(const Variable& x) {
    return options_.time_major ? x : net_.Var(Transposed(NameIn(net_, x), layer_.Temp()));
  }

  std::vector<std::string> InitialStates(const Variable& input) {
    const std::vector<Variable>& given = options_.initial_states;
    if (!given.empty()) {
      if (given.size() != NumStates()) {
        ThrowInvalid(fmt::format("{}: initial states must be {}, got {} variables", type_,
                                 NumStates() == 2 ? "h and c" : "h alone", given.size()));
      }
      return NamesIn(net_, given);
    }
    const std::string zeros = layer_.Temp();
    net_.Append(
        "fill_constant_batch_size_like", {{"Input", {NameIn(net_, input)}}}, {{"Out", {zeros}}},
        {{"shape", std::vector<int32_t>{static_cast<int32_t>(Cells()), 1, options_.hidden_size}},
         {"input_dim_idx", int32_t{1}},
         {"output_dim_idx", int32_t{1}},
         {"dtype", static_cast<int32_t>(input.dtype())},
         {"value", 0.0f}});
    net_.Var(zeros).desc().SetStopGradient(true);
    return std::vector<std::string>(NumStates(), zeros);
  }

  std::vector<std::string> LastStates() {
    std::vector<std::string> names = {options_.last_h};
    if (NumStates() == 2) names.push_back(options_.last_c);
    for (std::string& name : names) {
      RequireFreeOutput(net_, type_, name);
      if (name.empty()) name = layer_.Temp();
    }
    return names;
  }

  // "<layer>.weight_ih_l0", "<layer>.bias_hh_l1_reverse"; a name given by the user gets the number
  // of the cell as a suffix, except for the first cell.
  std::string Create(const char* kind, int64_t cell, const Shape& shape, DType dtype,
                     ParamAttr attr, const Setting& initializer) {
    if (!attr.name.empty() && cell > 0) attr.name += fmt::format("_{}", cell);
    if (attr.name.empty()) {
      attr.name =
          net_.main().FreeName(fmt::format("{}.{}_l{}{}", layer_.name(), kind, cell / directions_,
                                           cell % directions_ == 1 ? "_reverse" : ""));
    }
    return net_.Parameter(attr.name, shape, dtype, attr, initializer).name();
  }

  std::string Bias(const char* kind, int64_t cell, const Shape& shape, DType dtype,
                   const std::optional<ParamAttr>& attr, const Setting& initializer) {
    if (attr) return Create(kind, cell, shape, dtype, *attr, initializer);
    ParamAttr none;  // the op requires one in any case
    none.trainable = false;
    return Create(kind, cell, shape, dtype, none, ConstantInitializer(0));
  }

  std::vector<std::string> Parameters(const Variable& input) {
    const int64_t hidden = options_.hidden_size, gates = GateCount() * hidden;
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    const Setting uniform = UniformInitializer(-bound, bound);
    const DType dtype = input.dtype();
    std::vector<std::string> names;
    for (int64_t cell = 0; cell < Cells(); ++cell) {
      const int64_t features = cell < directions_ ? input.shape()[2] : directions_ * hidden;
      names.push_back(
          Create("weight_ih", cell, {gates, features}, dtype, options_.weight_ih_attr, uniform));
      names.push_back(
          Create("weight_hh", cell, {gates, hidden}, dtype, options_.weight_hh_attr, uniform));
    }
    for (int64_t cell = 0; cell < Cells(); ++cell) {
      names.push_back(Bias("bias_ih", cell, {gates}, dtype, options_.bias_ih_attr, uniform));
      names.push_back(Bias("bias_hh", cell, {gates}, dtype, options_.bias_hh_attr, uniform));
    }
    return names;
  }

  int64_t GateCount() const {
    return std::string_view(mode_) == "LSTM" ? 4 : std::string_view(mode_) == "GRU" ? 3 : 1;
  }

  Builder& net_;
  const char *type_, *mode_;
  const RnnOptions& options_;
  LayerScope layer_;
  int64_t directions_;
};

RnnOutput BuildRecurrent(Builder& net, const char* type, const char* mode, const Variable& x,
                         const RnnOptions& options) {
  CheckRecurrent(type, x, options);
  return Recurrent(net, type, mode, options).Build(x);
}

}  // namespace

RnnOutput Builder::Lstm(const Variable& x, const RnnOptions& options) {
  const EditGuard guard(*main_, *startup_);
  return BuildRecurrent(*this, "lstm", "LSTM", x, options);
}

RnnOutput Builder::Gru(const Variable& x, const RnnOptions& options) {
  const EditGuard guard(*main_, *startup_);
  return BuildRecurrent(*this, "gru", "GRU", x, options);
}

RnnOutput Builder::SimpleRnn(const Variable& x, const RnnOptions& options) {
  const EditGuard guard(*main_, *startup_);
  if (options.activation != "tanh" && options.activation != "relu") {
    ThrowInvalid(
        fmt::format("simple_rnn: activation must be tanh or relu, got {}", options.activation));
  }
  return BuildRecurrent(*this, "simple_rnn", options.activation == "tanh" ? "RNN_TANH" : "RNN_RELU",
                        x, options);
}

std::vector<LayerDef> internal::RecurrentLayers() {
  return {RecurrentLayer("lstm", "Long short-term memory.", &Builder::Lstm),
          RecurrentLayer("gru", "Gated recurrent units.", &Builder::Gru),
          RecurrentLayer("simple_rnn", "h' = act(W x + b + U h + b').", &Builder::SimpleRnn)};
}

}  // namespace coracle
