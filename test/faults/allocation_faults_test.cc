// Each allocation of a run, of training, of loading a model and of a job fails in turn: an Error
// says so, the process goes on, and the next attempt gives the right result. Each attempt is made
// in a child process, so that a crash is one failure.

#include <coracle/convert/caffe/import.h>
#include <coracle/convert/models.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/memory_errors.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/faults/allocations.h>
#include <coracle/test/faults/in_child.h>
#include <coracle/test/test_data.h>
#include <coracle/test/train/picture_files.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/run/trainer.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace coracle::allocation_faults_test {

using faults::InChild;
using faults::ScopedAllocationFault;

// What is tried, in a fresh child each time: `prepare` makes the state, `attempt` is the work
// whose allocations fail, and `result` returns the bytes of its result. A second attempt must give
// the same. `recover` puts back what a failed attempt may leave changed.
struct Work {
  std::function<void()> prepare = [] {};
  std::function<void()> attempt;
  std::function<std::string()> result;
  std::function<void()> recover = [] {};
};
using MakeWork = std::function<Work()>;

std::string BytesOf(const std::vector<Tensor>& tensors) {
  std::string bytes;
  for (const Tensor& tensor : tensors) AppendTensor(tensor, &bytes);
  return bytes;
}

// The outcome of an attempt whose allocation number `at` fails: "" if all is well.
std::string Outcome(const MakeWork& make, int64_t at, const std::string& expected) {
  const Work work = make();
  work.prepare();
  std::string problem;
  bool failed = true;
  try {
    const ScopedAllocationFault fault(at);
    work.attempt();
    failed = false;
  } catch (const InternalError& error) {
    problem = error.what();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted) problem = error.what();
  } catch (const std::exception& error) {
    problem = std::string("not an Error: ") + error.what();
  }
  if (!problem.empty()) return problem;
  if (!failed && work.result() != expected) return "another result without an error";
  try {
    work.recover();
    work.attempt();
    return work.result() == expected ? "" : "another result of the next attempt";
  } catch (const std::exception& error) {
    return std::string("the next attempt: ") + error.what();
  }
}

// Lets up to `most` allocations fail, the first ones and some of the others.
void CheckAll(const char* name, const MakeWork& make, int64_t most) {
  SetNumThreads(1);  // threads do not live on in a child
  const Work work = make();
  work.prepare();
  int64_t count = 0;
  {
    const ScopedAllocationFault counting;
    work.attempt();
    count = ScopedAllocationFault::Count();
  }
  const std::string expected = work.result();
  // For a debugger: only this one, in this process.
  if (const char* at = std::getenv("CORACLE_FAULT_AT")) {
    EXPECT_EQ(Outcome(make, std::atoll(at), expected), "");
    return;
  }
  ASSERT_FALSE(expected.empty());
  ASSERT_GT(count, 0) << name;
  const int64_t step = std::max<int64_t>(1, count / most);
  int failures = 0;
  for (int64_t at = 1; at <= count && failures < 10; at += at < most / 4 ? 1 : step) {
    const std::string outcome = InChild([&] { return Outcome(make, at, expected); });
    if (!outcome.empty()) ++failures;
    EXPECT_EQ(outcome, "") << name << ", allocation " << at << " of " << count;
  }
}

Tensor Images(int64_t n) {
  Tensor images(DType::kFloat32, {n, 3, 12, 12});
  for (int64_t i = 0; i < images.numel(); ++i)
    images.data<float>()[i] = static_cast<float>(i % 7) - 3;
  return images;
}

// A net of convolutions, norms and products, on oneDNN's kernels and others.
struct Net {
  ProgramDesc main, startup;
  std::string out, loss;

  explicit Net(bool trained = false) {
    Builder net(main, startup);
    Variable x = net.Data("x", {-1, 3, 12, 12});
    Variable h = net.Conv2d(x, {.num_filters = 8, .filter_size = 3, .padding = 1});
    h = net.Pool2d(net.BatchNorm(h, {.act = "relu"}), {.pool_size = 2, .pool_stride = 2});
    h = net.LayerNorm(net.Fc(h, {.size = 16, .act = "tanh"}));
    h = net.Softmax(net.Matmul(h, net.Transpose(h, {1, 0})));
    out = h.name();
    loss = net.Mean(h).name();
    if (trained) Adam(AdamOptions{}).Minimize(net.Var(loss), startup);
    startup.random_seed = main.random_seed = 5;
  }
};

// A prepared program, scopes, a feed, and what the last run gave.
struct Running {
  explicit Running(bool trained = false) : net(trained) {}

  void Prepare(const std::string& fetch) {
    Executor().Run(net.startup, scope);
    run = Executor().Prepare(net.main, {"x"}, {fetch});
  }
  void Run(Scope& in, const std::vector<Tensor>& feeds) { results = &run->Run(in, feeds); }
  std::string Result() const { return BytesOf(*results); }

  Net net;
  Scope scope, other;
  std::optional<PreparedProgram> run;
  const std::vector<Tensor> two = {Images(2)}, three = {Images(3)};
  const std::vector<Tensor>* results = nullptr;
  std::string kept;
};

TEST(AllocationFaults, OfARunOfANewShape) {
  const auto make = [] {
    const auto state = std::make_shared<Running>();
    const auto prepare = [state] {
      state->Prepare(state->net.out);
      state->Run(state->scope, state->two);
    };
    return Work{.prepare = prepare,
                .attempt = [state] { state->Run(state->scope, state->three); },
                .result = [state] { return state->Result(); }};
  };
  CheckAll("run", make, 150);
}

// A run that fails in another scope must not leave parts of the program bound to it.
TEST(AllocationFaults, OfARunInAnotherScope) {
  const auto make = [] {
    const auto state = std::make_shared<Running>();
    const auto prepare = [state] {
      state->Prepare(state->net.out);
      state->other = state->scope.Clone();
      for (const std::string& name : PersistableNames(state->net.main)) {
        Tensor& value = state->other.GetMutable(name);
        if (value.dtype() == DType::kFloat32 && value.numel() > 1)
          value = Tensor::Full<float>(value.shape(), 0.25f);
      }
      state->Run(state->scope, state->two);
      state->kept = state->Result();
    };
    const auto recover = [state] {
      state->Run(state->scope, state->two);
      if (state->Result() != state->kept)
        throw std::logic_error("a part of another scope was used");
    };
    return Work{.prepare = prepare,
                .attempt = [state] { state->Run(state->other, state->three); },
                .result = [state] { return state->Result(); },
                .recover = recover};
  };
  CheckAll("scope", make, 150);
}

TEST(AllocationFaults, OfAFrozenProgram) {
  const auto make = [] {
    const auto state = std::make_shared<Running>();
    const auto attempt = [state, executor = Executor(), feeds = std::vector<std::string>{"x"},
                          fetches = std::vector<std::string>{state->net.out}] {
      PreparedProgram made = executor.PrepareFrozen(state->net.main, state->scope, feeds, fetches);
      state->run = std::move(made);
      state->Run(state->scope, state->three);
    };
    return Work{.prepare = [state] { Executor().Run(state->net.startup, state->scope); },
                .attempt = attempt,
                .result = [state] { return state->Result(); }};
  };
  CheckAll("frozen", make, 150);
}

// A failed step may have updated some parameters, so all are put back.
TEST(AllocationFaults, OfATrainingStep) {
  const auto make = [] {
    const auto state = std::make_shared<Running>(true);
    const auto prepare = [state] {
      state->Prepare(state->net.loss);
      state->other = state->scope.Clone();
    };
    const auto attempt = [state] {
      for (int i = 0; i < 2; ++i) state->Run(state->scope, state->two);
    };
    const auto result = [state] {
      std::string bytes = state->Result();
      for (const std::string& name : PersistableNames(state->net.main))
        AppendTensor(state->scope.Get(name), &bytes);
      return bytes;
    };
    const auto recover = [state] {
      state->scope = state->other.Clone();
      state->run->SetStep(0);
    };
    return Work{.prepare = prepare, .attempt = attempt, .result = result, .recover = recover};
  };
  CheckAll("step", make, 150);
}

// A model and its parameters, read into a scope.
MakeWork Loading(const std::string& path, bool onnx) {
  return [path, onnx] {
    struct State {
      InferenceModel model;
      Scope scope;
    };
    const auto state = std::make_shared<State>();
    const auto attempt = [state, file = onnx ? path + ".onnx" : path, onnx] {
      state->model = onnx ? ImportOnnx(file, state->scope) : LoadInferenceModel(file, state->scope);
    };
    const auto result = [state] {
      std::string bytes = SerializeProgram(state->model.program);
      for (const std::string& name : PersistableNames(state->model.program))
        AppendTensor(state->scope.Get(name), &bytes);
      return bytes;
    };
    return Work{.attempt = attempt, .result = result};
  };
}

class AllocationFaultsOfFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const Net net;
    Scope scope;
    Executor().Run(net.startup, scope);
    SaveInferenceModel(directory_.File("m"), {"x"}, {net.out}, net.main, scope);
    Scope loaded;
    const InferenceModel model = LoadInferenceModel(directory_.File("m"), loaded);
    ExportOnnx(directory_.File("m.onnx"), model.program, loaded);
  }
  TemporaryDirectory directory_;
};

TEST_F(AllocationFaultsOfFiles, Loading) {
  CheckAll("load", Loading(directory_.File("m"), false), 100);
}
TEST_F(AllocationFaultsOfFiles, Importing) {
  CheckAll("import", Loading(directory_.File("m"), true), 100);
}

// What an import leaves: a program and its parameters, or a text.
struct Imported {
  InferenceModel model;
  Scope scope;
  std::string text;

  std::string Bytes() const {
    std::string bytes = text + SerializeProgram(model.program);
    for (const std::string& name : PersistableNames(model.program)) {
      if (scope.Find(name)) AppendTensor(scope.Get(name), &bytes);
    }
    return bytes;
  }
};

MakeWork Importing(const std::function<void(Imported&)>& import) {
  return [import] {
    const auto state = std::make_shared<Imported>();
    return Work{.attempt = [state, import] { import(*state); },
                .result = [state] { return state->Bytes(); }};
  };
}

// No allocation of libpng or libjpeg that fails passes for a damaged picture.
TEST(AllocationFaults, OfPictures) {
  const auto decoding = [](const std::string& bytes) {
    return [bytes] {
      const auto picture = std::make_shared<Tensor>();
      const auto attempt = [bytes, picture] {
        *picture = TranslateMemoryErrors([&] { return DecodePicture(bytes, "a picture", 3); },
                                         [] { return "a picture"; });
      };
      return Work{.attempt = attempt, .result = [picture] { return BytesOf({*picture}); }};
    };
  };
  const std::vector<uint8_t> pixels(size_t{3} * 40 * 40, 77);
  CheckAll("png", decoding(MakePng(40, 8, 2, {40, std::string(120, 'a')})), 100);
  CheckAll("jpeg", decoding(MakeJpeg(40, 40, 3, pixels)), 100);
  CheckAll("progressive jpeg", decoding(MakeJpeg(40, 40, 3, pixels, true)), 100);
}

TEST_F(AllocationFaultsOfFiles, ImportingForInputs) {
  const std::string path = directory_.File("m.onnx");
  const std::map<std::string, Tensor> inputs = {{"x", Images(2)}};
  CheckAll("for inputs",
           Importing([&](Imported& to) { to.model = ImportOnnxFor(path, inputs, to.scope); }), 100);
  CheckAll("inputs", Importing([&](Imported& to) { to.model.program = OnnxInputs(path); }), 60);
  const std::string bytes = ReadFile(path);
  CheckAll("bytes", Importing([&](Imported& to) { to.model = ParseOnnx(bytes, "m", to.scope); }),
           60);
}

TEST_F(AllocationFaultsOfFiles, Exporting) {
  Scope scope;
  const InferenceModel model = LoadInferenceModel(directory_.File("m"), scope);
  const std::string path = directory_.File("out.onnx");
  CheckAll("export", Importing([&](Imported& to) {
             ExportOnnx(path, model.program, scope);
             to.text = ReadFile(path);
           }),
           100);
}

// relu of an input, as Paddle 3 writes it.
constexpr const char* kPir =
    R"({"base_code":{"magic":"pir","trainable":true,"version":1},"program":{"regions":[{"#":"r",)"
    R"("blocks":[{"#":"b","args":[],"ops":[{"#":"1.data","A":[{"N":"name","AT":{"#":"0.a_str",)"
    R"("D":"x"}}],"I":[],"O":[{"%":1,"TT":{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[-1,4],"NCHW",)"
    R"([],0]}}],"OA":[]},{"#":"1.relu","A":[],"I":[{"%":1}],"O":[{"%":2,"TT":{"#":"0.t_dtensor",)"
    R"("D":[{"#":"0.t_f32"},[-1,4],"NCHW",[],0]}}],"OA":[]},{"#":"1.fetch","A":[{"N":"name","AT":)"
    R"({"#":"0.a_str","D":"y"}},{"N":"col","AT":{"#":"0.a_i32","D":0}}],"I":[{"%":2}],"O":[{"%":3,)"
    R"("TT":{"#":"0.t_dtensor","D":[{"#":"0.t_f32"},[-1,4],"NCHW",[],0]}}],"OA":[]}]}]}]}})";

TEST_F(AllocationFaultsOfFiles, ImportingPaddle3) {
  const std::string path = directory_.File("inference.json");
  WriteFileAtomic(path, kPir);
  CheckAll("pir", Importing([&](Imported& to) { to.model = ImportPir(path, to.scope); }), 100);
  CheckAll("pir read", Importing([&](Imported& to) {
             to.text = IsPirFile(path) ? "pir" : "";
             to.model.program = ReadPir(path);
           }),
           60);
  CheckAll("pir text", Importing([&](Imported& to) { to.model.program = ParsePir(kPir, "p"); }),
           60);
}

TEST_F(AllocationFaultsOfFiles, ImportingCaffe) {
  const std::string net = directory_.File("net.prototxt");
  WriteFileAtomic(net,
                  "name: 'n' input: 'x' input_dim: 1 input_dim: 3 input_dim: 4 input_dim: 4\n"
                  "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c'\n"
                  "  convolution_param { num_output: 2 kernel_size: 3 } }\n"
                  "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' }\n");
  CheckAll("caffe", Importing([&](Imported& to) {
             to.text = caffe::IsSolverFile(net) ? "" : caffe::ImportNetFile(net, {}).text;
           }),
           100);
}

TEST(AllocationFaults, OfAJob) {
  const auto make = [] {
    struct State {
      JobConfig job;
      TrainResult result;
    };
    const auto state = std::make_shared<State>();
    const auto prepare = [state] {
      JobConfig& job = state->job;
      job.model_text =
          "data { name: 'image' shape: [-1, 784] } "
          "data { name: 'label' shape: [-1, 1] dtype: INT64 } "
          "layer { fc { input: 'image' size: 10 output: 'logits' } } "
          "layer { softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' } } "
          "layer { mean { input: 'ce' output: 'loss' } }";
      job.train.source = DigitsOptions{.count = 20};
      job.batch_size = 10;
      job.max_iter = 2;
      job.prefetch = false;
    };
    const auto result = [state] {
      std::string bytes;
      for (const std::string& name : PersistableNames(state->result.main))
        AppendTensor(state->result.scope.Get(name), &bytes);
      return bytes;
    };
    return Work{.prepare = prepare,
                .attempt = [state] { state->result = RunJob(state->job); },
                .result = result};
  };
  CheckAll("job", make, 40);
}

// The system gives less and less memory: the op and the size are in the Error.
TEST(AllocationFaults, OfTheSystem) {
  SetNumThreads(1);
  const std::string outcome = InChild([] {
    ProgramDesc main, startup;
    Builder net(main, startup);
    Variable x = net.Data("x", {-1, 1000});
    const std::string out = net.Relu(net.Add(x, x)).name();
    Scope scope;
    PreparedProgram run = Executor({.optimize = false}).Prepare(main, {"x"}, {out});
    const Tensor small = Tensor::Full<float>({2, 1000}, 1.0f);
    const std::string expected = BytesOf(run.Run(scope, {small}));
    const Tensor large = Tensor::Zeros(DType::kFloat32, {20'000, 1000});
    rlimit before{}, tight{};
    ::getrlimit(RLIMIT_AS, &before);
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    tight = before;
    std::string problem = "no allocation failed";
    for (uint64_t megabytes = 2000; megabytes >= 100; megabytes -= 50) {
      tight.rlim_cur = megabytes << 20;
      ::setrlimit(RLIMIT_AS, &tight);
      std::string message;
      try {
        run.Run(scope, {large});
      } catch (const Error& error) {
        message = error.message();
      }
      ::setrlimit(RLIMIT_AS, &before);
      if (BytesOf(run.Run(scope, {small})) != expected) return std::string("another result");
      if (message.empty()) continue;
      problem = message.find("out of memory") == message.npos ? message : "";
      if (message.find("MiB") == message.npos) problem = "no size: " + message;
      break;
    }
    return problem;
  });
  EXPECT_EQ(outcome, "");
}

}  // namespace coracle::allocation_faults_test
