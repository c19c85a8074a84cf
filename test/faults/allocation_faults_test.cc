// Each allocation of a run, of training, of loading a model and of a job fails in turn: an Error
// says so, the process goes on, and the next attempt gives the right result. Each attempt is made
// in a child process, so that a crash is one failure.

#include <coracle/convert/models.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/faults/allocations.h>
#include <coracle/test/test_data.h>
#include <coracle/train/run/trainer.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace coracle::allocation_faults_test {

using faults::ScopedAllocationFault;

// What is tried, in a fresh child each time: `prepare` makes the state, `attempt` is the work
// whose allocations fail, and returns the bytes of its result. A second attempt must return the
// same. `recover` puts back what a failed attempt may leave changed.
struct Work {
  std::function<void()> prepare = [] {};
  std::function<std::string()> attempt;
  std::function<void()> recover = [] {};
};
using MakeWork = std::function<Work()>;

std::string BytesOf(const std::vector<Tensor>& tensors) {
  std::string bytes;
  for (const Tensor& tensor : tensors) AppendTensor(tensor, &bytes);
  return bytes;
}

// Runs f in a child, and returns what it returns, or how the child ended.
std::string InChild(const std::function<std::string()>& f) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::alarm(120);
    SetLogSink([](MessageLevel, const std::string&) {});
    const std::string text = f();
    const bool written = ::write(ends[1], text.data(), text.size()) >= 0;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return status == 0 ? text : "ended with status " + std::to_string(WEXITSTATUS(status));
}

// The outcome of an attempt whose allocation number `at` fails: "" if all is well.
std::string Outcome(const MakeWork& make, int64_t at, const std::string& expected) {
  const Work work = make();
  work.prepare();
  std::string got, problem;
  try {
    const ScopedAllocationFault fault(at);
    got = work.attempt();
  } catch (const InternalError& error) {
    problem = error.what();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted) problem = error.what();
  } catch (const std::exception& error) {
    problem = std::string("not an Error: ") + error.what();
  }
  if (!problem.empty()) return problem;
  if (!got.empty() && got != expected) return "another result without an error";
  try {
    work.recover();
    return work.attempt() == expected ? "" : "another result of the next attempt";
  } catch (const std::exception& error) {
    return std::string("the next attempt: ") + error.what();
  }
}

// Lets up to `most` allocations fail, the first ones and some of the others.
void CheckAll(const char* name, const MakeWork& make, int64_t most) {
  SetNumThreads(1);  // threads do not live on in a child
  const Work work = make();
  work.prepare();
  std::string expected;
  int64_t count = 0;
  {
    const ScopedAllocationFault counting;
    expected = work.attempt();
    count = ScopedAllocationFault::Count();
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

TEST(AllocationFaults, OfARunOfANewShape) {
  CheckAll(
      "run",
      [] {
        struct State {
          Net net;
          Scope scope;
          std::unique_ptr<PreparedProgram> step;
        };
        const auto state = std::make_shared<State>();
        return Work{
            .prepare =
                [state] {
                  Executor().Run(state->net.startup, state->scope);
                  state->step = std::make_unique<PreparedProgram>(
                      Executor().Prepare(state->net.main, {"x"}, {state->net.out}));
                  state->step->Run(state->scope, {Images(2)});
                },
            .attempt = [state] { return BytesOf(state->step->Run(state->scope, {Images(3)})); }};
      },
      500);
}

// A run that fails in another scope must not leave parts of the program bound to it.
TEST(AllocationFaults, OfARunInAnotherScope) {
  struct State {
    Net net;
    Scope first, second;
    std::unique_ptr<PreparedProgram> run;
    std::string of_first;
  };
  CheckAll(
      "scope",
      [] {
        const auto state = std::make_shared<State>();
        return Work{
            .prepare =
                [state] {
                  const Executor executor;
                  state->run = std::make_unique<PreparedProgram>(
                      executor.Prepare(state->net.main, {"x"}, {state->net.out}));
                  for (Scope* scope : {&state->first, &state->second})
                    executor.Run(state->net.startup, *scope);
                  for (const std::string& name : PersistableNames(state->net.main)) {
                    Tensor& value = state->second.GetMutable(name);
                    if (value.dtype() == DType::kFloat32 && value.numel() > 1)
                      value = Tensor::Full<float>(value.shape(), 0.25f);
                  }
                  state->of_first = BytesOf(state->run->Run(state->first, {Images(2)}));
                },
            .attempt = [state] { return BytesOf(state->run->Run(state->second, {Images(2)})); },
            .recover =
                [state] {
                  if (BytesOf(state->run->Run(state->first, {Images(2)})) != state->of_first)
                    throw std::logic_error("a part of another scope was used");
                }};
      },
      500);
}

TEST(AllocationFaults, OfAFrozenProgram) {
  CheckAll(
      "frozen",
      [] {
        struct State {
          Net net;
          Scope scope;
        };
        const auto state = std::make_shared<State>();
        return Work{.prepare = [state] { Executor().Run(state->net.startup, state->scope); },
                    .attempt =
                        [state] {
                          PreparedProgram run = Executor().PrepareFrozen(
                              state->net.main, state->scope, {"x"}, {state->net.out});
                          return BytesOf(run.Run(state->scope, {Images(3)}));
                        }};
      },
      500);
}

TEST(AllocationFaults, OfATrainingStep) {
  CheckAll(
      "step",
      [] {
        struct State {
          Net net{true};
          Scope scope, before;
          std::unique_ptr<PreparedProgram> step;
        };
        const auto state = std::make_shared<State>();
        const auto restore = [state] {
          state->scope = state->before.Clone();
          state->step->SetStep(0);
        };
        return Work{.prepare =
                        [state] {
                          Executor().Run(state->net.startup, state->scope);
                          state->before = state->scope.Clone();
                          state->step = std::make_unique<PreparedProgram>(
                              Executor().Prepare(state->net.main, {"x"}, {state->net.loss}));
                        },
                    .attempt =
                        [state] {
                          std::string bytes;
                          for (int i = 0; i < 2; ++i)
                            bytes += BytesOf(state->step->Run(state->scope, {Images(2)}));
                          return bytes;
                        },
                    .recover = restore};
      },
      500);
}

// A model in a directory of its own, and what it computes.
MakeWork Loading(const std::string& path, bool onnx) {
  return [path, onnx] {
    return Work{.attempt = [path, onnx] {
      Scope scope;
      InferenceModel model =
          onnx ? ImportOnnx(path + ".onnx", scope) : LoadInferenceModel(path, scope);
      return SerializeProgram(model.program) +
             BytesOf({scope.Get(PersistableNames(model.program).front())});
    }};
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
  CheckAll("load", Loading(directory_.File("m"), false), 300);
}
TEST_F(AllocationFaultsOfFiles, Importing) {
  CheckAll("import", Loading(directory_.File("m"), true), 300);
}

TEST(AllocationFaults, OfAJob) {
  CheckAll(
      "job",
      [] {
        return Work{.attempt = [] {
          JobConfig job;
          job.model_text =
              "data { name: 'image' shape: [-1, 784] } "
              "data { name: 'label' shape: [-1, 1] dtype: INT64 } "
              "layer { fc { input: 'image' size: 10 output: 'logits' } } "
              "layer { softmax_with_cross_entropy { logits: 'logits' label: 'label' output: 'ce' } "
              "} layer { mean { input: 'ce' output: 'loss' } }";
          job.train.source = DigitsOptions{.count = 20};
          job.batch_size = 10;
          job.max_iter = 2;
          job.prefetch = false;
          const TrainResult result = RunJob(job);
          return BytesOf({result.scope.Get(PersistableNames(result.main).front())});
        }};
      },
      500);
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
