// The rules of the C interface about arguments, threads, cancelling and messages.

#include <coracle/test/capi/capi_fixture.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace coracle::rules_test {

class CapiRules : public Capi {};

// Each pointer that must not be NULL, in each function.
TEST_F(CapiRules, NullArgumentsAreErrors) {
  Load("circle");
  const std::string path = directory_ + "/circle", program = directory_ + "/train.pdmodel";
  coracle_options* options = nullptr;
  ASSERT_EQ(coracle_options_new(&options), CORACLE_OK);
  coracle_trainer* trainer = nullptr;
  ASSERT_EQ(coracle_trainer_new(program.c_str(), nullptr, nullptr, nullptr, &trainer), CORACLE_OK)
      << coracle_last_error();
  coracle_model* model = nullptr;
  coracle_session* session = nullptr;
  coracle_trainer* made = nullptr;
  Values points = {{1, 2}, {0, 0}};
  const coracle_tensor in = points.View();
  coracle_tensor out = Empty();
  const char* const names[] = {"x"};
  const char* const none[] = {nullptr};
  const struct {
    const char* argument;
    std::function<int32_t()> call;
  } calls[] = {
      {"options", [&] { return coracle_options_new(nullptr); }},
      {"options", [&] { return coracle_options_set(nullptr, "seed", "1"); }},
      {"name", [&] { return coracle_options_set(options, nullptr, "1"); }},
      {"value", [&] { return coracle_options_set(options, "seed", nullptr); }},
      {"path", [&] { return coracle_model_load(nullptr, nullptr, &model); }},
      {"model", [&] { return coracle_model_load(path.c_str(), nullptr, nullptr); }},
      {"format", [&] { return coracle_model_load_memory(nullptr, "", 0, "", 0, nullptr, &model); }},
      {"program",
       [&] { return coracle_model_load_memory("onnx", nullptr, 1, "", 0, nullptr, &model); }},
      {"parameters",
       [&] { return coracle_model_load_memory("onnx", "", 0, nullptr, 1, nullptr, &model); }},
      {"model", [&] { return coracle_model_load_memory("onnx", "", 0, "", 0, nullptr, nullptr); }},
      {"model",
       [&] { return coracle_model_input(nullptr, 0, nullptr, nullptr, nullptr, nullptr); }},
      {"model",
       [&] { return coracle_model_output(nullptr, 0, nullptr, nullptr, nullptr, nullptr); }},
      {"model", [&] { return coracle_session_new(nullptr, &session); }},
      {"session", [&] { return coracle_session_new(model_, nullptr); }},
      {"session", [&] { return coracle_session_run(nullptr, &in, 1, &out, 1); }},
      {"inputs", [&] { return coracle_session_run(session_, nullptr, 1, &out, 1); }},
      {"outputs", [&] { return coracle_session_run(session_, &in, 1, nullptr, 1); }},
      {"program", [&] { return coracle_trainer_new(nullptr, nullptr, nullptr, nullptr, &made); }},
      {"trainer",
       [&] { return coracle_trainer_new(program.c_str(), nullptr, nullptr, nullptr, nullptr); }},
      {"trainer", [&] { return coracle_trainer_step(nullptr, names, &in, 1, names, &out, 1); }},
      {"feed_names",
       [&] { return coracle_trainer_step(trainer, nullptr, &in, 1, names, &out, 1); }},
      {"feed_names", [&] { return coracle_trainer_step(trainer, none, &in, 1, names, &out, 1); }},
      {"feeds", [&] { return coracle_trainer_step(trainer, names, nullptr, 1, names, &out, 1); }},
      {"fetch_names",
       [&] { return coracle_trainer_step(trainer, names, &in, 1, nullptr, &out, 1); }},
      {"fetches", [&] { return coracle_trainer_step(trainer, names, &in, 1, names, nullptr, 1); }},
      {"trainer", [&] { return coracle_trainer_save(nullptr, "/tmp/x"); }},
      {"path", [&] { return coracle_trainer_save(trainer, nullptr); }},
      {"trainer",
       [&] { return coracle_trainer_save_model(nullptr, "/tmp/x", names, 1, names, 1); }},
      {"path", [&] { return coracle_trainer_save_model(trainer, nullptr, names, 1, names, 1); }},
      {"inputs",
       [&] { return coracle_trainer_save_model(trainer, "/tmp/x", nullptr, 1, names, 1); }},
      {"outputs", [&] { return coracle_trainer_save_model(trainer, "/tmp/x", names, 1, none, 1); }},
  };
  for (const auto& call : calls) {
    EXPECT_EQ(call.call(), CORACLE_INVALID_ARGUMENT) << call.argument;
    EXPECT_EQ(coracle_last_status(), CORACLE_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(coracle_last_error()),
              fmt::format("the argument {} is NULL", call.argument));
  }
  EXPECT_EQ(coracle_session_run(session_, &in, -1, &out, 1), CORACLE_INVALID_ARGUMENT);
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 2), CORACLE_INVALID_ARGUMENT);
  EXPECT_EQ(coracle_trainer_step(trainer, names, &in, 1, names, &out, -1),
            CORACLE_INVALID_ARGUMENT);
  EXPECT_EQ(coracle_model_inputs(nullptr), 0);
  EXPECT_EQ(coracle_model_outputs(nullptr), 0);
  coracle_model_free(nullptr);
  coracle_session_free(nullptr);
  coracle_session_cancel(nullptr);
  coracle_options_free(nullptr);
  coracle_trainer_free(nullptr);
  ExpectCircle(session_);  // the session is as good as before
  coracle_options_free(options);
  coracle_trainer_free(trainer);
}

// Elements that no kernel expects.
TEST_F(CapiRules, BadElements) {
  Load("circle");
  unsigned char bools[] = {1, 0, 2, 1};
  Values points = {{2, 2}, {0, 0, 0, 0}};
  coracle_tensor in = points.View(), out = Empty();
  in.dtype = CORACLE_BOOL;
  in.data = bools;
  in.bytes = sizeof bools;
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(coracle_last_error()), "input 'x': element 2 is 2, but a bool is 0 or 1");
  coracle_string texts[] = {{"a", 1}, {nullptr, 0}, {nullptr, 5}};
  points.dims = {3};
  in = points.View();
  in.dtype = CORACLE_STRING;
  in.data = texts;
  in.bytes = sizeof texts;
  Free();
  Load("names");
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(coracle_last_error()),
            "input 'x': element 2 has 5 bytes, but its data is NULL");
  texts[2].size = 0;
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
}

// A handle is NULL after a failure, even if it was not before.
TEST_F(CapiRules, FailuresClearTheHandle) {
  char nothing = 0;
  auto* model = reinterpret_cast<coracle_model*>(&nothing);
  EXPECT_EQ(coracle_model_load("/no/such/model", nullptr, &model), CORACLE_NOT_FOUND);
  EXPECT_EQ(coracle_last_status(), CORACLE_NOT_FOUND);
  EXPECT_EQ(model, nullptr);
  model = reinterpret_cast<coracle_model*>(&nothing);
  EXPECT_NE(coracle_model_load_memory("onnx", "x", 1, nullptr, 0, nullptr, &model), CORACLE_OK);
  EXPECT_EQ(model, nullptr);
  auto* session = reinterpret_cast<coracle_session*>(&nothing);
  EXPECT_NE(coracle_session_new(nullptr, &session), CORACLE_OK);
  EXPECT_EQ(session, nullptr);
  auto* trainer = reinterpret_cast<coracle_trainer*>(&nothing);
  EXPECT_NE(coracle_trainer_new("/none", nullptr, nullptr, nullptr, &trainer), CORACLE_OK);
  EXPECT_EQ(trainer, nullptr);
}

// A cancel between runs is lost; one that is repeated reaches the run whenever that begins.
TEST_F(CapiRules, CancelBeforeTheRun) {
  Load("slow");
  Values ends = {{1}, {-1}}, endless = {{1}, {1}};
  coracle_tensor in = ends.View(), out = Empty();
  coracle_session_cancel(session_);
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
  std::atomic<bool> ended{false};
  std::thread canceller([&] {
    while (!ended) {
      coracle_session_cancel(session_);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  in = endless.View();
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_CANCELLED);
  ended = true;
  canceller.join();
  in = ends.View();
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
}

struct Log {
  std::vector<std::string> lines;
  std::atomic<int> inside{0};
  std::function<void()> also;
};

void Keep(int32_t level, const char* message, void* user) {
  auto* log = static_cast<Log*>(user);
  EXPECT_EQ(++log->inside, 1);
  log->lines.push_back(fmt::format("{} {}", level, message));
  if (log->also) log->also();
  --log->inside;
}

class CapiLog : public Capi {
 protected:
  void SetUp() override {
    Load("print");
    ASSERT_EQ(coracle_session_new(model_, &other_), CORACLE_OK);
  }
  void TearDown() override {
    coracle_set_log(nullptr, nullptr);
    coracle_session_free(other_);
    Capi::TearDown();
  }
  // A run that logs one message.
  static void Print(coracle_session* session, float value) {
    Values x = {{1}, {value}};
    coracle_tensor in = x.View(), out = Empty();
    ASSERT_EQ(coracle_session_run(session, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
    EXPECT_EQ(FloatsOf(out)[0], value);
  }

  coracle_session* other_ = nullptr;
};

TEST_F(CapiLog, MessagesGoToTheCaller) {
  Log log, second;
  coracle_set_log(Keep, &log);
  Print(session_, 4);
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_EQ(log.lines[0].substr(0, 2), "0 ");
  EXPECT_NE(log.lines[0].find('4'), std::string::npos) << log.lines[0];
  coracle_set_log(Keep, &second);
  Print(session_, 5);
  EXPECT_EQ(log.lines.size(), 1u);
  EXPECT_EQ(second.lines.size(), 1u);
}

// The function may call others; what these log in its thread is dropped.
TEST_F(CapiLog, ReentrantCalls) {
  Log log;
  log.also = [&] { Print(other_, 6); };
  coracle_set_log(Keep, &log);
  Print(session_, 4);
  EXPECT_EQ(log.lines.size(), 1u);
  // It may also replace itself.
  Log second;
  log.also = [&] { coracle_set_log(Keep, &second); };
  Print(session_, 4);
  Print(session_, 5);
  EXPECT_EQ(log.lines.size(), 2u);
  EXPECT_EQ(second.lines.size(), 1u);
}

// A trainer that runs refuses every other use, as a session does.
TEST_F(CapiLog, TrainersRunOnce) {
  coracle_trainer* trainer = nullptr;
  ASSERT_EQ(coracle_trainer_new((directory_ + "/print.pdmodel").c_str(), nullptr, nullptr, nullptr,
                                &trainer),
            CORACLE_OK)
      << coracle_last_error();
  const char *const x[] = {"x"}, *const y[] = {"y"};
  Values value = {{1}, {4}};
  const coracle_tensor in = value.View();
  coracle_tensor out = Empty(), other = Empty();
  Log log;
  log.also = [&] {
    std::thread([&] {
      EXPECT_EQ(coracle_trainer_step(trainer, x, &in, 1, y, &other, 1), CORACLE_INVALID_ARGUMENT);
      EXPECT_EQ(coracle_trainer_save(trainer, "/tmp/none"), CORACLE_INVALID_ARGUMENT);
      EXPECT_EQ(coracle_trainer_save_model(trainer, "/tmp/none", x, 1, y, 1),
                CORACLE_INVALID_ARGUMENT);
      EXPECT_NE(std::string(coracle_last_error()).find("another thread"), std::string::npos);
    }).join();
  };
  coracle_set_log(Keep, &log);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(coracle_trainer_step(trainer, x, &in, 1, y, &out, 1), CORACLE_OK)
        << coracle_last_error();
    EXPECT_EQ(FloatsOf(out)[0], 4);
  }
  EXPECT_EQ(log.lines.size(), 2u);
  coracle_trainer_free(trainer);
}

// Messages of several threads come one at a time, and none after the function was replaced.
TEST_F(CapiLog, Threads) {
  std::atomic<bool> ended{false};
  std::vector<std::thread> threads;
  for (coracle_session* session : {session_, other_}) {
    threads.emplace_back([&ended, session] {
      while (!ended) Print(session, 1);
    });
  }
  size_t lines = 0;
  for (int i = 0; i < 50; ++i) {
    auto log = std::make_unique<Log>();
    coracle_set_log(Keep, log.get());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Log silent;
    coracle_set_log(Keep, &silent);
    lines += log->lines.size();
    log.reset();  // AddressSanitizer sees a message that comes now
    coracle_set_log([](int32_t, const char*, void*) {}, nullptr);
  }
  ended = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(lines, 0u);
}

}  // namespace coracle::rules_test
