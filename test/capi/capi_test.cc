// The C interface from outside: a program that knows coracle_c.h and libcoracle_c only.

#include <coracle/test/capi/capi_fixture.h>
#include <coracle/test/sanitizers.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <thread>

namespace coracle::capi_test {

namespace fs = std::filesystem;

TEST_F(Capi, RunsModelsFromFiles) {
  EXPECT_EQ(coracle_api_version(), CORACLE_API_VERSION);
  EXPECT_STREQ(coracle_version(), "0.1.0");
  for (const char* name : {"circle", "circle.pdmodel", "circle.onnx"}) {
    SCOPED_TRACE(name);
    Load(name);
    ASSERT_EQ(coracle_model_inputs(model_), 1);
    ASSERT_EQ(coracle_model_outputs(model_), 1);
    const char* input = nullptr;
    int32_t dtype = -1, rank = -1;
    int64_t dims[9];
    ASSERT_EQ(coracle_model_input(model_, 0, &input, &dtype, &rank, dims), CORACLE_OK);
    EXPECT_STREQ(input, "x");
    EXPECT_EQ(dtype, CORACLE_FLOAT32);
    ASSERT_EQ(rank, 2);
    EXPECT_EQ(dims[0], -1);
    EXPECT_EQ(dims[1], 2);
    EXPECT_EQ(coracle_model_output(model_, 0, nullptr, nullptr, nullptr, nullptr), CORACLE_OK);
    EXPECT_EQ(coracle_model_output(model_, 1, &input, nullptr, nullptr, nullptr),
              CORACLE_OUT_OF_RANGE);
    ExpectCircle(session_);
    Free();
  }
}

TEST_F(Capi, RunsModelsFromMemory) {
  const std::string program = FileBytes(directory_ + "/circle.pdmodel"),
                    parameters = FileBytes(directory_ + "/circle.pdiparams"),
                    onnx = FileBytes(directory_ + "/circle.onnx");
  ASSERT_EQ(coracle_model_load_memory("pdmodel", program.data(), program.size(), parameters.data(),
                                      parameters.size(), nullptr, &model_),
            CORACLE_OK)
      << coracle_last_error();
  ASSERT_EQ(coracle_session_new(model_, &session_), CORACLE_OK);
  ExpectCircle(session_);
  coracle_session_free(session_);
  coracle_model_free(model_);
  ASSERT_EQ(
      coracle_model_load_memory("onnx", onnx.data(), onnx.size(), nullptr, 0, nullptr, &model_),
      CORACLE_OK)
      << coracle_last_error();
  ASSERT_EQ(coracle_session_new(model_, &session_), CORACLE_OK);
  ExpectCircle(session_);
  // Damaged ones, each with its reason.
  coracle_model* none = nullptr;
  EXPECT_EQ(coracle_model_load_memory("pdmodel", program.data(), program.size(), parameters.data(),
                                      parameters.size() - 1, nullptr, &none),
            CORACLE_DATA_LOSS);
  EXPECT_EQ(coracle_model_load_memory("pdmodel", program.data(), program.size() / 2,
                                      parameters.data(), parameters.size(), nullptr, &none),
            CORACLE_DATA_LOSS);
  EXPECT_EQ(coracle_model_load_memory("tflite", program.data(), program.size(), nullptr, 0, nullptr,
                                      &none),
            CORACLE_INVALID_ARGUMENT);
  EXPECT_STREQ(coracle_last_error(), "the format must be pdmodel, json or onnx, got 'tflite'");
  EXPECT_EQ(none, nullptr);
}

// Batch sizes change; results lie in the session's memory or in the caller's.
TEST_F(Capi, ResultsInBothKindsOfMemory) {
  Load("circle");
  for (int64_t rows : {1, 3, 1, 7, 0}) {
    SCOPED_TRACE(rows);
    Values points = {{rows, 2}, std::vector<float>(static_cast<size_t>(2 * rows), 0.25f)};
    coracle_tensor in = points.View(), out = Empty();
    ASSERT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
    EXPECT_EQ(out.bytes, static_cast<uint64_t>(8 * rows));
    const std::vector<float> borrowed = FloatsOf(out);
    std::vector<float> own(20, -7);
    out.data = own.data();
    out.capacity = own.size() * sizeof(float);
    ASSERT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
    EXPECT_EQ(out.bytes, static_cast<uint64_t>(8 * rows));
    for (size_t i = 0; i < own.size(); ++i)
      EXPECT_EQ(own[i], i < borrowed.size() ? borrowed[i] : -7) << i;
  }
}

TEST_F(Capi, BadArgumentsAreErrors) {
  Load("circle");
  Values points = {{1, 2}, {0, 0}};
  const coracle_tensor good = points.View();
  const auto error_of = [&](coracle_tensor in, int32_t count = 1) -> std::string {
    coracle_tensor out = Empty();
    EXPECT_NE(coracle_session_run(session_, &in, count, &out, 1), CORACLE_OK);
    const std::string text = coracle_last_error();
    return text.substr(0, text.find('\n'));
  };
  coracle_tensor bad = good;
  bad.struct_size = 8;
  EXPECT_EQ(error_of(bad), fmt::format("input 'x': struct_size is 8; it must be "
                                       "sizeof(coracle_tensor), {}",
                                       sizeof(coracle_tensor)));
  bad = good, bad.dtype = 7;
  EXPECT_EQ(error_of(bad), "input 'x': 7 is no dtype");
  bad = good, bad.rank = 10;
  EXPECT_EQ(error_of(bad), "input 'x': the rank must be from 0 to 9, got 10");
  bad = good, bad.dims = nullptr;
  EXPECT_EQ(error_of(bad), "input 'x': dims is NULL");
  bad = good, bad.data = nullptr;
  EXPECT_EQ(error_of(bad), "input 'x': data is NULL");
  bad = good, bad.bytes = 12;
  EXPECT_EQ(error_of(bad), "input 'x': float32 of shape [1, 2] has 8 bytes, but bytes is 12");
  const int64_t negative[] = {-1, 2}, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  bad = good, bad.dims = negative;
  EXPECT_EQ(error_of(bad), "input 'x': a dim is -1");
  bad = good, bad.dims = huge;
  EXPECT_FALSE(error_of(bad).empty());
  bad = good, bad.lod_levels = 1;
  EXPECT_EQ(error_of(bad), "input 'x': lod_levels needs lod and lod_sizes");
  EXPECT_EQ(error_of(good, 2), "the model has 1 inputs, got 2");
  const int64_t wide[] = {1, 3};
  float three[3] = {};
  bad = good, bad.dims = wide, bad.data = three, bad.bytes = 12;
  EXPECT_FALSE(error_of(bad).empty());
  ExpectCircle(session_);  // the session is as good as before
}

TEST_F(Capi, Options) {
  coracle_options* options = nullptr;
  ASSERT_EQ(coracle_options_new(&options), CORACLE_OK);
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"kernels", "reference"},
                                                        {"optimize", "0"},
                                                        {"memory_limit", "100000000"},
                                                        {"flush_subnormals", "0"},
                                                        {"seed", "3"},
                                                        {"tune", "0"},
                                                        {"time_limit", "60"}})
    EXPECT_EQ(coracle_options_set(options, name, value), CORACLE_OK) << name;
  EXPECT_EQ(coracle_options_set(options, "kernel", "auto"), CORACLE_NOT_FOUND);
  EXPECT_EQ(coracle_options_set(options, "kernels", "gpu"), CORACLE_INVALID_ARGUMENT);
  EXPECT_STREQ(coracle_last_error(), "the option kernels must be auto or reference, got 'gpu'");
  EXPECT_EQ(coracle_options_set(options, "time_limit", "-1"), CORACLE_INVALID_ARGUMENT);
  EXPECT_EQ(coracle_options_set(options, "memory_limit", "1e9"), CORACLE_INVALID_ARGUMENT);
  EXPECT_EQ(coracle_options_set(options, "shape:x", "3,"), CORACLE_INVALID_ARGUMENT);
  Load("circle", options);
  ExpectCircle(session_);
  coracle_options_free(options);
}

// For all kinds of models; a name that the model lacks is an error.
TEST_F(Capi, ShapesOfInputs) {
  coracle_options *options = nullptr, *wrong = nullptr;
  ASSERT_EQ(coracle_options_new(&options), CORACLE_OK);
  EXPECT_EQ(coracle_options_set(options, "shape:x", "2,2"), CORACLE_OK);
  ASSERT_EQ(coracle_options_new(&wrong), CORACLE_OK);
  EXPECT_EQ(coracle_options_set(wrong, "shape:X", "2,2"), CORACLE_OK);
  for (const char* name : {"circle", "circle.onnx"}) {
    SCOPED_TRACE(name);
    Load(name, options);
    int64_t dims[9];
    ASSERT_EQ(coracle_model_input(model_, 0, nullptr, nullptr, nullptr, dims), CORACLE_OK);
    EXPECT_EQ(dims[0], 2);
    ASSERT_EQ(coracle_model_output(model_, 0, nullptr, nullptr, nullptr, dims), CORACLE_OK);
    EXPECT_EQ(dims[0], 2);
    ExpectCircle(session_);
    Free();
    coracle_model* none = nullptr;
    EXPECT_EQ(coracle_model_load((directory_ + "/" + name).c_str(), wrong, &none),
              CORACLE_NOT_FOUND)
        << coracle_last_error();
    EXPECT_EQ(none, nullptr);
  }
  const std::string program = FileBytes(directory_ + "/circle.pdmodel"),
                    parameters = FileBytes(directory_ + "/circle.pdiparams");
  ASSERT_EQ(coracle_model_load_memory("pdmodel", program.data(), program.size(), parameters.data(),
                                      parameters.size(), options, &model_),
            CORACLE_OK)
      << coracle_last_error();
  int64_t dims[9];
  ASSERT_EQ(coracle_model_input(model_, 0, nullptr, nullptr, nullptr, dims), CORACLE_OK);
  EXPECT_EQ(dims[0], 2);
  coracle_trainer* trainer = nullptr;
  EXPECT_EQ(coracle_trainer_new((directory_ + "/train.pdmodel").c_str(), nullptr, nullptr, options,
                                &trainer),
            CORACLE_INVALID_ARGUMENT);
  coracle_options_free(options);
  coracle_options_free(wrong);
}

TEST_F(Capi, Strings) {
  Load("names");
  const coracle_string texts[] = {{"ab", 2}, {nullptr, 0}, {"\0x\xff", 3}};
  const int64_t dims[] = {3};
  coracle_tensor in = Empty(), out = Empty();
  in.dtype = CORACLE_STRING, in.rank = 1, in.dims = dims;
  in.data = const_cast<coracle_string*>(texts);
  in.bytes = sizeof texts;
  ASSERT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
  ASSERT_EQ(out.bytes, sizeof texts);
  const auto* got = static_cast<const coracle_string*>(out.data);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(std::string(got[i].data ? got[i].data : "", got[i].size),
              std::string(texts[i].data ? texts[i].data : "", texts[i].size));
}

TEST_F(Capi, Sequences) {
  Load("lengths");
  Values rows = {{5, 1}, {1, 2, 3, 4, 5}};
  coracle_tensor in = rows.View(), out = Empty();
  const uint64_t offsets[] = {0, 2, 5}, bad[] = {0, 2, 6};
  const uint64_t* levels[] = {offsets};
  const uint64_t sizes[] = {3};
  in.lod_levels = 1, in.lod = levels, in.lod_sizes = sizes;
  ASSERT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
  EXPECT_EQ(FloatsOf(out), (std::vector<float>{3, 12}));
  levels[0] = bad;
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_INVALID_ARGUMENT);
}

// Each session keeps its own state from run to run.
TEST_F(Capi, SessionsHaveStatesOfTheirOwn) {
  Load("counter");
  coracle_session* other = nullptr;
  ASSERT_EQ(coracle_session_new(model_, &other), CORACLE_OK);
  Values one = {{1}, {1}};
  coracle_tensor in = one.View(), out = Empty();
  for (float sum = 1; sum < 4; ++sum) {
    ASSERT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
    EXPECT_EQ(FloatsOf(out)[0], sum);
  }
  ASSERT_EQ(coracle_session_run(other, &in, 1, &out, 1), CORACLE_OK);
  EXPECT_EQ(FloatsOf(out)[0], 1);
  coracle_session_free(other);
}

TEST_F(Capi, RunsEndWhenCancelled) {
  Load("slow");
  int32_t status = CORACLE_OK;
  std::string text;
  std::thread run([&] {
    Values one = {{1}, {1}};
    coracle_tensor in = one.View(), out = Empty();
    status = coracle_session_run(session_, &in, 1, &out, 1);
    text = coracle_last_error();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  // Another thread cannot use the session meanwhile.
  Values one = {{1}, {1}};
  coracle_tensor in = one.View(), out = Empty();
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_INVALID_ARGUMENT);
  coracle_session_cancel(session_);
  run.join();
  EXPECT_EQ(status, CORACLE_CANCELLED) << text;
  // The next run is a run like any other.
  one.elements[0] = -1;
  in = one.View();
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
}

TEST_F(Capi, TimeLimits) {
  coracle_options* options = nullptr;
  ASSERT_EQ(coracle_options_new(&options), CORACLE_OK);
  ASSERT_EQ(coracle_options_set(options, "time_limit", "0.05"), CORACLE_OK);
  Load("slow", options);
  coracle_options_free(options);
  Values one = {{1}, {1}};
  coracle_tensor in = one.View(), out = Empty();
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_DEADLINE_EXCEEDED)
      << coracle_last_error();
}

TEST_F(Capi, EightThreadsOnOneModel) {
  Load("circle");
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      coracle_session* session = nullptr;
      ASSERT_EQ(coracle_session_new(model_, &session), CORACLE_OK);
      for (int i = 0; i < 100; ++i) {
        ExpectCircle(session);
        coracle_tensor none = Empty();
        EXPECT_NE(coracle_session_run(session, &none, 1, &none, 1), CORACLE_OK);
        EXPECT_EQ(std::string(coracle_last_error()).substr(0, 9), "input 'x'");
      }
      coracle_session_free(session);
    });
  }
  coracle_model* model = model_;
  for (std::thread& thread : threads) thread.join();
  // Sessions outlive their model.
  coracle_model_free(model);
  model_ = nullptr;
  ExpectCircle(session_);
}

TEST_F(Capi, TrainsAndSaves) {
  const std::string loss = FileBytes(directory_ + "/loss.txt");
  coracle_trainer* trainer = nullptr;
  ASSERT_EQ(
      coracle_trainer_new((directory_ + "/train.pdmodel").c_str(),
                          (directory_ + "/startup.pdmodel").c_str(), nullptr, nullptr, &trainer),
      CORACLE_OK)
      << coracle_last_error();
  Values x = {{4, 2}, {0, 0, 1, 0, 0, 1, 1, 1}};
  int64_t classes[] = {0, 1, 1, 0};
  const int64_t dims[] = {4, 1};
  coracle_tensor feeds[] = {x.View(), Empty()};
  feeds[1].dtype = CORACLE_INT64, feeds[1].rank = 2, feeds[1].dims = dims;
  feeds[1].data = classes, feeds[1].bytes = sizeof classes;
  const char* const names[] = {"x", "y"};
  const char* const fetches[] = {loss.c_str()};
  float first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    coracle_tensor out = Empty();
    ASSERT_EQ(coracle_trainer_step(trainer, names, feeds, 2, fetches, &out, 1), CORACLE_OK)
        << coracle_last_error();
    last = FloatsOf(out)[0];
    if (step == 0) first = last;
  }
  EXPECT_LT(last, 0.9f * first);
  const char* const wrong[] = {"nothing"};
  coracle_tensor out = Empty();
  EXPECT_EQ(coracle_trainer_step(trainer, names, feeds, 2, wrong, &out, 1), CORACLE_NOT_FOUND);
  EXPECT_EQ(coracle_trainer_step(trainer, names, feeds, -1, fetches, &out, 1),
            CORACLE_INVALID_ARGUMENT);
  const std::string saved = directory_ + "/trained.npz", model = directory_ + "/trained";
  ASSERT_EQ(coracle_trainer_save(trainer, saved.c_str()), CORACLE_OK) << coracle_last_error();
  const char* const in[] = {"x"};
  const char* const results[] = {"logits"};
  ASSERT_EQ(coracle_trainer_save_model(trainer, model.c_str(), in, 1, results, 1), CORACLE_OK)
      << coracle_last_error();
  coracle_trainer_free(trainer);
  // A trainer that starts from the saved values continues.
  ASSERT_EQ(coracle_trainer_new((directory_ + "/train.pdmodel").c_str(), nullptr, saved.c_str(),
                                nullptr, &trainer),
            CORACLE_OK)
      << coracle_last_error();
  ASSERT_EQ(coracle_trainer_step(trainer, names, feeds, 2, fetches, &out, 1), CORACLE_OK)
      << coracle_last_error();
  EXPECT_LT(FloatsOf(out)[0], last);
  coracle_trainer_free(trainer);
  Load("trained");
  coracle_tensor points = x.View();
  out = Empty();
  ASSERT_EQ(coracle_session_run(session_, &points, 1, &out, 1), CORACLE_OK);
  EXPECT_EQ(out.dims[0], 4);
}

// The examples in C and Rust print the logits.
TEST_F(Capi, ProgramInC) {
  if (!fs::exists(CORACLE_CLASSIFY)) GTEST_SKIP() << "the examples are not built";
  const std::string model = directory_ + "/circle ";
  const ShellOutput good = Shell(CORACLE_CLASSIFY " " + model + "0 0 0.5 -1");
  EXPECT_EQ(good.status, 0);
  std::istringstream numbers(good.text);
  for (float wanted : expected_) {
    float value = 0;
    ASSERT_TRUE(numbers >> value) << good.text;
    EXPECT_NEAR(value, wanted, 1e-5f);
  }
  EXPECT_EQ(Shell(CORACLE_CLASSIFY " " + model + "1").text,
            "classify: the input takes float32, a multiple of 2 numbers\n");
  EXPECT_NE(Shell(CORACLE_CLASSIFY " /none 1").text.find("no model at '/none'"), std::string::npos);
}

TEST_F(Capi, ProgramInRust) {
  if (Shell("rustc --version").status != 0) GTEST_SKIP() << "rustc is not installed";
  if (UnderSanitizer()) GTEST_SKIP() << "a program in Rust does not load a sanitizer's library";
  const std::string library = fs::path(CORACLE_LIBRARY).parent_path();
  const ShellOutput compiled = Shell(fmt::format(
      "cd {} && rustc {}/examples/embed/classify.rs -L {} -l coracle_c -C link-arg=-Wl,-rpath,{}",
      directory_, std::getenv("CORACLE_SOURCE_DIR"), library, library));
  ASSERT_EQ(compiled.status, 0) << compiled.text;
  const ShellOutput good = Shell(directory_ + "/classify " + directory_ + "/circle 2 0 0 0.5 -1");
  EXPECT_EQ(good.status, 0);
  std::istringstream numbers(good.text);
  for (float wanted : expected_) {
    float value = 0;
    ASSERT_TRUE(numbers >> value) << good.text;
    EXPECT_NEAR(value, wanted, 1e-5f);
  }
  EXPECT_EQ(Shell(directory_ + "/classify /none 2 1 1").status >> 8, 1);
}

// coracle.py gives numpy arrays.
TEST_F(Capi, Python) {
  if (Shell("/usr/bin/python3 -c 'import numpy'").status != 0)
    GTEST_SKIP() << "python3 with numpy is not installed";
  if (UnderSanitizer()) GTEST_SKIP() << "Python does not load a sanitizer's library";
  const std::string script = directory_ + "/try.py";
  std::ofstream(script) << R"(
import sys, threading
sys.path.insert(0, sys.argv[1] + "/capi")
import numpy as np
import coracle
d = sys.argv[2]
model = coracle.Model(d + "/circle.pdmodel")
assert model.inputs == [("x", np.dtype(np.float32), (-1, 2))], model.inputs
points = np.array([[0, 0], [0.5, -1]], np.float32)
want = np.array([float(x) for x in sys.argv[3:]]).reshape(2, 2)
(got,) = model.run(points)
assert got.dtype == np.float32 and np.abs(got - want).max() < 1e-5, got
assert np.array_equal(model.run(x=points[:, ::1])[0], got)
assert np.array_equal(model.run(np.asfortranarray(points))[0], got)  # made contiguous
bytes_of = lambda name: open(d + "/" + name, "rb").read()
again = coracle.Model(program=bytes_of("circle.pdmodel"), parameters=bytes_of("circle.pdiparams"))
assert np.array_equal(again.run(points)[0], got)
onnx = coracle.Model(program=bytes_of("circle.onnx"), format="onnx", time_limit=10)
assert np.abs(onnx.run(points)[0] - want).max() < 1e-5
for call, text in [(lambda: model.run(points[0, :0]), "x"), (lambda: coracle.Model("/none"), "no model"),
                   (lambda: coracle.Model(d + "/circle", speed=1), "no option")]:
    try:
        call()
    except coracle.Error as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
for call in (lambda: coracle.Model(d + "/circle.pdmodel\0x"), lambda: coracle.Model(d + "/circle", seed="1\0"),
             lambda: coracle.Trainer(d + "/train.pdmodel\0")):
    try:
        call()
    except ValueError as error:
        assert "zero byte" in str(error), error
    else:
        raise AssertionError("a zero byte ends a text in C")
shifted = np.frombuffer(b"x" + points.tobytes(), np.float32, offset=1).reshape(2, 2)  # not aligned
assert np.array_equal(model.run(shifted)[0], got)
for kind in (bytearray, memoryview):
    held = coracle.Model(program=kind(bytes_of("circle.pdmodel")),
                         parameters=kind(bytes_of("circle.pdiparams")))
    assert np.array_equal(held.run(points)[0], got)
names = coracle.Model(d + "/names")
assert list(names.run(np.array(["a", "", "öl"]))[0]) == ["a", "", "öl"]
raw = names.run(np.array([b"\xff\xfe", b"a"], object))[0]  # not UTF-8: nothing is lost
assert [text.encode("utf-8", "surrogateescape") for text in raw] == [b"\xff\xfe", b"a"]
assert list(names.run(raw)[0]) == list(raw)
try:
    names.run(np.array([1, None], object))
except TypeError:
    pass
else:
    raise AssertionError("objects that are no texts")
slow = coracle.Model(d + "/slow")
stopped = threading.Event()
def stop():
    while not stopped.wait(0.01):
        slow.cancel()
stopper = threading.Thread(target=stop)
stopper.start()
try:
    slow.run(np.ones(1, np.float32))
except coracle.Error as error:
    assert error.status == 8, error
else:
    raise AssertionError("not cancelled")
stopped.set()
stopper.join()
def many():
    for _ in range(50):
        assert np.array_equal(model.run(points)[0], got)
threads = [threading.Thread(target=many) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
trainer = coracle.Trainer(d + "/train.pdmodel", d + "/startup.pdmodel")
loss = open(d + "/loss.txt").read()
batch = {"x": points, "y": np.array([[0], [1]])}
losses = [trainer.step(batch, [loss])[0].item() for _ in range(50)]
assert losses[-1] < losses[0]
trainer.save_model(d + "/python", ["x"], ["logits"])
assert coracle.Model(d + "/python").run(points)[0].shape == (2, 2)
print("python agrees")
)";
  std::string command = fmt::format("CORACLE_LIBRARY={} /usr/bin/python3 {} {} {}", CORACLE_LIBRARY,
                                    script, std::getenv("CORACLE_SOURCE_DIR"), directory_);
  for (float value : expected_) command += fmt::format(" {}", value);
  const ShellOutput output = Shell(command);
  EXPECT_EQ(output.status, 0) << output.text;
  EXPECT_EQ(output.text, "python agrees\n");
}

}  // namespace coracle::capi_test
