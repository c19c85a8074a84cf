// Reads entries of model text that contain entries and run them in blocks.

#include <coracle/layers/internal/model_build.h>

#include <functional>

namespace coracle::inline internal {
namespace {

// Appends the layers of the node; the next op gets the place of `node`.
std::function<void()> BodyOf(ModelBuild& build, const Surroundings& around, const Node& node) {
  return [&] {
    ReadEntries(build, around, node);
    SetSite(build, around, node.where());
  };
}

void ReadCond(ModelBuild& build, const Surroundings& around, const Node& node) {
  const Variable pred = RequireVariable(build, around, node, "pred");
  const auto branch = [&](const char* side) {
    return [&build, &around, &node, side] {
      std::vector<Variable> results;
      if (!node.Has(side)) return results;
      const Node body = node.Child(side);
      ReadEntries(build, around, body);
      SetSite(build, around, node.where());
      return FindVariables(build, around, body, body.Field("result"));
    };
  };
  Cond(build.net, pred, branch("then"), branch("otherwise"), OutputNames(around, node));
}

void ReadSwitch(ModelBuild& build, const Surroundings& around, const Node& node) {
  Switch choice(build.net);
  for (int i = 0; i < node.Count("case"); ++i) {
    const Node one = node.Child("case", i);
    choice.Case(RequireVariable(build, around, one, "condition"), BodyOf(build, around, one));
  }
  if (!node.Has("default")) return;
  const Node last = node.Child("default");
  choice.Default(BodyOf(build, around, last));
}

// The layers of one step, with the memories and the outputs of the loop.
void ReadStep(ModelBuild& build, const Surroundings& around, const Node& node, StaticRnn& rnn) {
  for (const Variable& sequence : FindVariables(build, around, node, node.Field("step_input")))
    rnn.StepInput(sequence);
  std::vector<Variable> memories;
  for (int i = 0; i < node.Count("memory"); ++i) {
    const Node memory = node.Child("memory", i);
    if (!memory.Has("name")) memory.Fail("memory: name is required");
    memories.push_back(
        rnn.Memory(RequireVariable(build, around, memory, "init"), around.String(memory, "name")));
  }
  ReadEntries(build, around, node);
  SetSite(build, around, node.where());
  for (size_t i = 0; i < memories.size(); ++i) {
    const Node memory = node.Child("memory", static_cast<int>(i));
    rnn.UpdateMemory(memories[i], RequireVariable(build, around, memory, "next"));
  }
  for (int i = 0; i < node.Count("step_output"); ++i) {
    const Node output = node.Child("step_output", i);
    if (!output.Has("output")) output.Fail("step_output: output is required");
    rnn.StepOutput(RequireVariable(build, around, output, "var"), around.String(output, "output"));
  }
}

void ReadStaticRnn(ModelBuild& build, const Surroundings& around, const Node& node) {
  StaticRnnOptions options;
  options.reverse = node.Bool("reverse");
  if (node.Has("lengths")) options.lengths = RequireVariable(build, around, node, "lengths");
  StaticRnn rnn(build.net, options);
  rnn.Step([&] { ReadStep(build, around, node, rnn); });
}

}  // namespace

void ReadControlFlow(ModelBuild& build, const Surroundings& around, const Node& node,
                     const std::string& kind) {
  SetSite(build, around, node.where());
  if (kind == "while") {
    While(build.net, RequireVariable(build, around, node, "condition"), BodyOf(build, around, node),
          {.is_test = node.Bool("is_test")});
  } else if (kind == "if") {
    If(build.net, RequireVariable(build, around, node, "condition"), BodyOf(build, around, node));
  } else if (kind == "cond") {
    ReadCond(build, around, node);
  } else if (kind == "switch") {
    ReadSwitch(build, around, node);
  } else {
    ReadStaticRnn(build, around, node);
  }
}

}  // namespace coracle::inline internal
