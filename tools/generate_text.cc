#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/generate_text.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

namespace coracle::tools {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunk = 256;  // limit of characters per run of the program

void CheckOptions(const GenerateOptions& o) {
  constexpr int64_t kMostLength = 100'000'000;
  if (o.prompt.empty()) ThrowInvalid("prompt: at least one character is needed to begin with");
  if (o.length < 0 || o.length > kMostLength)
    ThrowInvalid(fmt::format("length must be in [0, {}], got {}", kMostLength, o.length));
  if (!(o.temperature >= 0) || std::isinf(o.temperature))
    ThrowInvalid(fmt::format("temperature must be finite and not negative, got {}", o.temperature));
}

std::string ProgramPath(const std::string& model) {
  if (!FileExists(model))
    throw Error(ErrorCode::kNotFound, fmt::format("there is no model {}", Quote(model, 300)));
  if (!IsDirectory(model)) return model;
  std::string path = (fs::path(model) / "model.pdmodel").string();
  if (FileExists(path)) return path;
  throw Error(ErrorCode::kNotFound,
              fmt::format("{} has no model.pdmodel: a job saves one where it says deploy", model));
}

// Builds the loop around the model.
class LoopBuilder {
 public:
  LoopBuilder(const InferenceModel& model, bool greedy, ProgramDesc& main)
      : model_(model), greedy_(greedy), net_(main, startup_) {}

  // Feeds: before, last, count, temperature, then the states; fetches: text, id, then the states.
  GenerateProgram Build() {
    GenerateProgram p;
    const Variable before = net_.Data("before", {1, -1}, DType::kInt64);
    const Variable last = net_.Data("last", {1, 1}, DType::kInt64);
    const Variable count = net_.Data("count", {1}, DType::kInt64);
    const Variable temperature = net_.Data("temperature", {1});
    p.feeds = {"before", "last", "count", "temperature"};
    std::vector<Variable> states;
    for (size_t k = 1; k < model_.feed_names.size(); ++k) {
      const VarMeta meta = StateMeta(k);
      states.push_back(net_.Data(fmt::format("state_{}", k), meta.shape, meta.dtype));
      p.feeds.push_back(states.back().name());
      p.states.push_back(Tensor::Zeros(meta.dtype, meta.shape));
    }
    // Runs the model on all characters of the prompt but the last, only to compute the states.
    const std::vector<Variable> warm = Model(before, states);
    for (size_t k = 0; k < states.size(); ++k) states[k] = net_.Unary("assign", warm[k + 1]);
    const Variable id = net_.Unary("assign", last, {}, {.output = "id"});
    const Variable text = FillConstant(net_, {kChunk}, DType::kInt64, 0, "text");
    const Variable i = FillConstant(net_, {1}, DType::kInt64, 0);
    const Variable more = net_.Binary("less_than", i, count);
    While(net_, more,
          [&] {
            const std::vector<Variable> out = Model(id, states);
            const Variable drawn = Draw(net_.Reshape(out[0], {1, -1}), temperature);
            const Variable here = net_.Make("one_hot_v2", {{"X", {i.name()}}},
                                            {{"depth", static_cast<int32_t>(kChunk)},
                                             {"dtype", static_cast<int32_t>(DType::kInt64)}});
            const Variable row = net_.Reshape(here, {static_cast<int32_t>(kChunk)});
            Assign(net_, net_.Add(text, net_.Mul(row, drawn)), text);
            Assign(net_, net_.Reshape(drawn, {1, 1}), id);
            for (size_t k = 0; k < states.size(); ++k) Assign(net_, out[k + 1], states[k]);
            Increment(net_, i);
            Assign(net_, net_.Binary("less_than", i, count), more);
          },
          {.is_test = true});
    p.fetches = {text.name(), id.name()};
    for (const Variable& state : states) p.fetches.push_back(state.name());
    return p;
  }

 private:
  VarMeta StateMeta(size_t k) const {
    VarMeta meta = model_.program.Root().FindVar(model_.feed_names[k])->meta();
    for (int axis = 0; axis < meta.shape.rank(); ++axis)
      if (meta.shape[axis] < 0) meta.shape[axis] = 1;
    return meta;
  }

  // Returns [1]: the character with the largest score, or one drawn by softmax(scores
  // / temperature).
  Variable Draw(const Variable& scores, const Variable& temperature) {
    if (greedy_) {
      // arg_max would take a nan for the largest score.
      const Variable finite = net_.Unary("isfinite", net_.Softmax(scores));
      net_.Append("assert", {{"Cond", {finite.name()}}, {"Data", {scores.name()}}}, {},
                  {{"message", std::string("the model's scores are not numbers")},
                   {"summarize", int64_t{8}}});
      return net_.Unary("arg_max", scores,
                        {{"axis", int64_t{1}}, {"dtype", static_cast<int32_t>(DType::kInt64)}});
    }
    return net_.Unary("sampling_id", net_.Softmax(net_.Div(scores, temperature)));
  }

  // Copies the model's ops into the builder's current block, with these characters and states.
  std::vector<Variable> Model(const Variable& ids, const std::vector<Variable>& states) {
    std::map<std::string, std::string> names = {{model_.feed_names[0], ids.name()}};
    for (size_t k = 0; k < states.size(); ++k) names[model_.feed_names[k + 1]] = states[k].name();
    const BlockDesc& from = model_.program.Root();
    for (size_t i = 0; i < from.NumOps(); ++i) {
      const OpDesc& op = from.op(i);
      const OpSpec* def = net_.ops().Find(op.type());
      if (def && def->kind != OpKind::kCompute) continue;
      RequireNoBlocks(op);
      CopyOp(op, names);
    }
    std::vector<Variable> out;
    for (const std::string& fetch : model_.fetch_names) out.push_back(net_.Var(names.at(fetch)));
    return out;
  }

  static void RequireNoBlocks(const OpDesc& op) {
    if (!op.HasSubBlock()) return;
    throw Error(ErrorCode::kUnimplemented,
                fmt::format("generate: the model's op {} runs a block of its own", op.type()));
  }

  void CopyOp(const OpDesc& op, std::map<std::string, std::string>& names) {
    OpDesc copy = op;
    auto name_of = [&](const std::string& name) { return NameOf(name, names); };
    copy.RenameInputs(name_of);
    copy.RenameOutputs(name_of);
    net_.Append(copy.type(), copy.inputs(), copy.outputs(), copy.attrs());
  }

  std::string NameOf(const std::string& name, std::map<std::string, std::string>& names) {
    const auto known = names.find(name);
    if (known != names.end()) return known->second;
    const VarDesc& var = *model_.program.Root().FindVar(name);
    if (!var.persistable()) return names[name] = net_.main().UniqueName(name);
    VarDesc& shared = net_.main().Root().Var(name);
    shared.SetMeta(var.meta());
    shared.SetPersistable(true);
    return names[name] = name;
  }

  const InferenceModel& model_;
  bool greedy_;
  ProgramDesc startup_;
  Builder net_;
};

void CheckModel(const std::string& path, const InferenceModel& model, int64_t vocabulary) {
  if (model.feed_names.size() != model.fetch_names.size()) {
    ThrowInvalid(fmt::format(
        "{}: {} inputs and {} outputs; to generate, each input but the first takes what an output "
        "gave",
        path, model.feed_names.size(), model.fetch_names.size()));
  }
  const VarMeta& scores = model.program.Root().FindVar(model.fetch_names[0])->meta();
  const int rank = scores.shape.rank();
  if (scores.dtype == DType::kFloat32 && rank == 3 && scores.shape[2] == vocabulary) return;
  ThrowInvalid(
      fmt::format("{}: its first output must be float32 [batch, time, {}], scores of the "
                  "vocabulary's characters; it is {}",
                  path, vocabulary, scores.ToString()));
}

}  // namespace

GenerateProgram MakeGenerateProgram(const InferenceModel& model, bool greedy) {
  auto main = std::make_shared<ProgramDesc>();
  GenerateProgram program = LoopBuilder(model, greedy, *main).Build();
  program.main = std::move(main);
  return program;
}

std::string GenerateText(const std::string& model, const GenerateOptions& options) {
  CheckOptions(options);
  const std::string path = ProgramPath(model);
  const std::string characters = (fs::path(path).parent_path() / "vocabulary.json").string();
  if (!FileExists(characters)) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("there is no vocabulary.json next to {}: a job on text writes both",
                            Quote(path, 300)));
  }
  const Vocabulary vocabulary = Vocabulary::Read(characters);
  const std::vector<int64_t> ids = vocabulary.Encode(options.prompt, "prompt");
  Scope scope;
  const InferenceModel loaded = LoadInferenceModel(path, scope);
  VerifyOrThrow(loaded.program, DefaultOps());
  CheckModel(path, loaded, vocabulary.size());
  GenerateProgram program = MakeGenerateProgram(loaded, options.temperature == 0);
  program.main->random_seed = options.seed;
  PreparedProgram loop =
      Executor(options.compile).Prepare(*program.main, program.feeds, program.fetches);

  const auto before = static_cast<int64_t>(ids.size()) - 1;
  std::vector<Tensor> feeds = {
      Tensor::Of<int64_t>({1, before}, std::vector<int64_t>(ids.begin(), ids.end() - 1)),
      Tensor::Of<int64_t>({1, 1}, {ids.back()}), Tensor(),
      Tensor::Of<float>({1}, {static_cast<float>(options.temperature)})};
  feeds.insert(feeds.end(), program.states.begin(), program.states.end());
  std::string text;
  for (int64_t done = 0; done < options.length; done += kChunk) {
    const int64_t count = std::min(kChunk, options.length - done);
    feeds[2] = Tensor::Of<int64_t>({1}, {count});
    const std::vector<Tensor>& out = loop.Run(scope, feeds);
    for (int64_t k = 0; k < count; ++k) text += vocabulary.Character(out[0].data<int64_t>()[k]);
    feeds[0] = Tensor(DType::kInt64, {1, 0});
    feeds[1] = out[1].Clone();
    for (size_t k = 2; k < out.size(); ++k) feeds[k + 2] = out[k].Clone();
  }
  return text;
}

}  // namespace coracle::tools
