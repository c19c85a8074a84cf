// Who owns the memory of inputs and outputs of the C interface.

#include <coracle/test/capi/capi_fixture.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace coracle::memory_test {

class CapiMemory : public Capi {
 protected:
  Values Points(int64_t rows, float value) const {
    return {{rows, 2}, std::vector<float>(static_cast<size_t>(2 * rows), value)};
  }
  int32_t Run(Values points, coracle_tensor* out, int32_t outputs = 1) {
    coracle_tensor in = points.View();
    return coracle_session_run(session_, &in, 1, out, outputs);
  }
};

// Memory of exactly that size, so that AddressSanitizer sees each byte that is too many.
struct Buffer {
  explicit Buffer(size_t count) : floats(new float[count]), size(count) {
    std::fill_n(floats.get(), count, -7.0f);
  }
  void Give(coracle_tensor* out) const {
    out->data = floats.get();
    out->capacity = size * sizeof(float);
  }
  std::unique_ptr<float[]> floats;
  size_t size;
};

// A tensor that was filled with the session's memory is filled with it again; it is not taken for
// memory of the caller.
TEST_F(CapiMemory, FilledTensorsServeAgain) {
  Load("circle");
  coracle_tensor out = Empty();
  for (int64_t rows : {3, 1, 7, 0, 2, 7}) {
    SCOPED_TRACE(rows);
    ASSERT_EQ(Run(Points(rows, 0.25f), &out), CORACLE_OK) << coracle_last_error();
    EXPECT_EQ(out.bytes, static_cast<uint64_t>(8 * rows));
    EXPECT_EQ(out.capacity, 0u);
    coracle_tensor fresh = Empty();
    const std::vector<float> first = FloatsOf(out);
    ASSERT_EQ(Run(Points(rows, 0.25f), &fresh), CORACLE_OK);
    EXPECT_EQ(FloatsOf(fresh), first);
  }
  // Also in another session.
  coracle_session* other = nullptr;
  ASSERT_EQ(coracle_session_new(model_, &other), CORACLE_OK);
  Values points = Points(2, 0.25f);
  coracle_tensor in = points.View();
  const void* before = out.data;
  ASSERT_EQ(coracle_session_run(other, &in, 1, &out, 1), CORACLE_OK);
  EXPECT_NE(out.data, before);
  coracle_session_free(other);
}

// The caller's memory keeps its capacity, whatever the sizes of results.
TEST_F(CapiMemory, BuffersServeAgain) {
  Load("circle");
  const Buffer buffer(8);
  coracle_tensor out = Empty();
  buffer.Give(&out);
  for (int64_t rows : {4, 1, 4, 5, 4, 0, 9, 2}) {
    SCOPED_TRACE(rows);
    const std::vector<float> before(buffer.floats.get(), buffer.floats.get() + buffer.size);
    const int32_t status = Run(Points(rows, 0.5f), &out);
    EXPECT_EQ(out.data, buffer.floats.get());
    EXPECT_EQ(out.capacity, 32u);
    EXPECT_EQ(out.bytes, static_cast<uint64_t>(8 * rows));  // also if they do not fit
    if (rows > 4) {
      EXPECT_EQ(status, CORACLE_OUT_OF_RANGE);
      EXPECT_EQ(std::vector<float>(buffer.floats.get(), buffer.floats.get() + buffer.size), before);
      EXPECT_EQ(std::string(coracle_last_error()),
                fmt::format("output 'logits': the result, float32[{}, 2], has {} bytes, but there "
                            "is room for 32",
                            rows, 8 * rows));
      continue;
    }
    ASSERT_EQ(status, CORACLE_OK) << coracle_last_error();
    coracle_tensor borrowed = Empty();
    const std::vector<float> got = FloatsOf(out);
    ASSERT_EQ(Run(Points(rows, 0.5f), &borrowed), CORACLE_OK);
    EXPECT_EQ(FloatsOf(borrowed), got);
  }
  // From memory of the caller to the session's and back.
  out.capacity = 0;
  ASSERT_EQ(Run(Points(5, 0.5f), &out), CORACLE_OK);
  EXPECT_NE(out.data, buffer.floats.get());
  const Buffer large(10);
  large.Give(&out);
  ASSERT_EQ(Run(Points(5, 0.5f), &out), CORACLE_OK);
  EXPECT_EQ(out.data, large.floats.get());
}

TEST_F(CapiMemory, OutputsAreCheckedBeforeTheRun) {
  Load("counter");
  const auto run = [&](coracle_tensor* out) {
    Values one = {{1}, {1}};
    coracle_tensor in = one.View();
    return coracle_session_run(session_, &in, 1, out, 1);
  };
  coracle_tensor out = Empty();
  out.capacity = 4;
  EXPECT_EQ(run(&out), CORACLE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(coracle_last_error()).find("capacity is 4, but data is NULL"),
            std::string::npos);
  out = Empty();
  out.struct_size = 8;
  EXPECT_EQ(run(&out), CORACLE_INVALID_ARGUMENT);
  out = Empty();
  ASSERT_EQ(run(&out), CORACLE_OK);
  EXPECT_EQ(FloatsOf(out)[0], 1);  // the refused runs did not count
}

// Results that no op computed are copies: the caller may write to them.
TEST_F(CapiMemory, FeedsThatPassThroughAreCopied) {
  Load("pass");
  Values a = {{2, 2}, {1, 2, 3, 4}}, b = {{2, 2}, {5, 6, 7, 8}};
  coracle_tensor in[] = {a.View(), b.View()}, out[] = {Empty(), Empty(), Empty()};
  const auto expect = [&](const std::vector<float>& first, const std::vector<float>& second) {
    EXPECT_EQ(FloatsOf(out[0]), first);
    EXPECT_EQ(FloatsOf(out[1]), second);
    EXPECT_EQ(FloatsOf(out[2]), second);
  };
  ASSERT_EQ(coracle_session_run(session_, in, 2, out, 3), CORACLE_OK) << coracle_last_error();
  expect(b.elements, a.elements);
  EXPECT_EQ(out[2].rank, 1);
  for (const coracle_tensor& result : out) {
    EXPECT_NE(result.data, in[0].data);
    EXPECT_NE(result.data, in[1].data);
    std::fill_n(static_cast<float*>(result.data), 4, 0.0f);
  }
  EXPECT_EQ(a.elements, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(b.elements, (std::vector<float>{5, 6, 7, 8}));
  // Results as the next inputs: each run exchanges them.
  ASSERT_EQ(coracle_session_run(session_, in, 2, out, 3), CORACLE_OK);
  for (int i = 0; i < 4; ++i) {
    const coracle_tensor again[] = {out[0], out[1]};
    ASSERT_EQ(coracle_session_run(session_, again, 2, out, 3), CORACLE_OK) << coracle_last_error();
    if (i % 2 == 0)
      expect(a.elements, b.elements);
    else
      expect(b.elements, a.elements);
  }
  // The inputs' memory as the outputs': they exchange places.
  for (size_t i = 0; i < 2; ++i) out[i] = in[i], out[i].capacity = 16;
  ASSERT_EQ(coracle_session_run(session_, in, 2, out, 3), CORACLE_OK) << coracle_last_error();
  EXPECT_EQ(a.elements, (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(b.elements, (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(CapiMemory, ParametersAndStatesAreCopied) {
  Load("parameter");
  Values x = {{3}, {10, 10, 10}};
  coracle_tensor in = x.View(), out[] = {Empty(), Empty()};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(coracle_session_run(session_, &in, 1, out, 2), CORACLE_OK) << coracle_last_error();
    EXPECT_EQ(FloatsOf(out[0]), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(FloatsOf(out[1]), (std::vector<float>{11, 12, 13}));
    for (const coracle_tensor& result : out) std::fill_n(static_cast<float*>(result.data), 3, 0.0f);
  }
  Free();
  Load("total");
  Values one = {{1}, {1}};
  in = one.View();
  for (float sum = 1; sum < 4; ++sum) {
    ASSERT_EQ(coracle_session_run(session_, &in, 1, out, 1), CORACLE_OK) << coracle_last_error();
    EXPECT_EQ(FloatsOf(out[0])[0], sum);
    *static_cast<float*>(out[0].data) = 100;
  }
}

TEST_F(CapiMemory, StringsStayInTheSession) {
  Load("names");
  const coracle_string texts[] = {{"ab", 2}};
  const int64_t dims[] = {1};
  coracle_tensor in = Empty(), out = Empty();
  in.dtype = CORACLE_STRING, in.rank = 1, in.dims = dims;
  in.data = const_cast<coracle_string*>(texts);
  in.bytes = sizeof texts;
  coracle_string room;
  out.data = &room, out.capacity = sizeof room;
  EXPECT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_INVALID_ARGUMENT);
  out.capacity = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(coracle_session_run(session_, &in, 1, &out, 1), CORACLE_OK) << coracle_last_error();
    const auto* got = static_cast<const coracle_string*>(out.data);
    EXPECT_NE(static_cast<const void*>(got), static_cast<const void*>(texts));
    EXPECT_EQ(std::string(got->data, got->size), "ab");
    if (i == 1) in = out;  // a result as the next input
  }
}

// A step's results are copies of parameters, too.
TEST_F(CapiMemory, TrainersCopyParameters) {
  coracle_trainer* trainer = nullptr;
  ASSERT_EQ(coracle_trainer_new((directory_ + "/total.pdmodel").c_str(), nullptr,
                                (directory_ + "/total.pdiparams").c_str(), nullptr, &trainer),
            CORACLE_OK)
      << coracle_last_error();
  Values one = {{1}, {1}};
  coracle_tensor in = one.View(), out = Empty();
  const char* const feeds[] = {"x"};
  const char* const fetches[] = {"total"};
  for (float sum = 1; sum < 4; ++sum) {
    ASSERT_EQ(coracle_trainer_step(trainer, feeds, &in, 1, fetches, &out, 1), CORACLE_OK)
        << coracle_last_error();
    EXPECT_EQ(FloatsOf(out)[0], sum);
    *static_cast<float*>(out.data) = 100;
  }
  coracle_trainer_free(trainer);
}

}  // namespace coracle::memory_test
