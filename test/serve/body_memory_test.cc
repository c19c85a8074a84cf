// The budget counts the memory that bodies take, not only their bytes.

#include <coracle/serve/decode_body.h>
#include <coracle/serve/request_parser.h>
#include <coracle/test/serve/http_client.h>

namespace coracle::body_memory_test {

using serve::BudgetShare;
using serve::HttpError;
using serve::MemoryBudget;
using serve::Request;
using serve::RequestParser;

constexpr uint64_t kMb = uint64_t{1} << 20;

Request Packed(const std::string& text) {
  Request request;
  request.headers["content-encoding"] = "gzip";
  request.body = Gzip(text);
  return request;
}

TEST(BodyMemory, GrowingBodies) {
  MemoryBudget budget(64 * kMb);
  RequestParser parser({.max_body = 8 * kMb}, &budget);
  parser.Feed("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "1000\r\n" + std::string(4096, 'x') + "\r\n";
  for (int i = 0; i < 500; ++i) {
    parser.Feed(chunk);
    ASSERT_GE(budget.used(), parser.request().body.capacity()) << i;
  }
  EXPECT_EQ(parser.request().body, std::string(500 * 4096, 'x'));
  EXPECT_LE(budget.used(), 2 * 500 * 4096u);
}

// The memory of a body is no larger than the body, if its length is known.
TEST(BodyMemory, KnownLength) {
  MemoryBudget budget(64 * kMb);
  RequestParser parser({.max_body = 8 * kMb}, &budget);
  parser.Feed("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
  for (int i = 0; i < 100; ++i) {
    parser.Feed(std::string(10'000, 'x'));
    ASSERT_GE(budget.used(), parser.request().body.capacity()) << i;
    ASSERT_LE(budget.used(), 1'000'000u);
  }
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(budget.used(), 1'000'000u);
}

TEST(BodyMemory, UnpackedBodies) {
  MemoryBudget budget(64 * kMb);
  BudgetShare share(&budget);
  Request request = Packed(std::string(9'000'000, 'a'));
  share.Grow(request.body.size());
  serve::DecodeBody(16 * kMb, &share, &request);
  EXPECT_EQ(request.body, std::string(9'000'000, 'a'));
  EXPECT_LE(request.body.capacity(), 9'000'100u);
  EXPECT_GE(share.bytes(), request.body.size());
  EXPECT_LE(share.bytes(), request.body.capacity());  // without the packed bytes
}

// What is too large for the limit of bodies never comes near the budget, and what is too large for
// the budget is refused before memory is taken.
TEST(BodyMemory, BombsAreRefusedBeforeTheyGrow) {
  MemoryBudget budget(kMb);
  BudgetShare share(&budget);
  const auto status = [&](size_t size) {
    Request request = Packed(std::string(size, 'a'));
    const std::string before = request.body;
    try {
      serve::DecodeBody(4 * kMb, &share, &request);
    } catch (const HttpError& error) {
      EXPECT_EQ(request.body, before);
      EXPECT_EQ(share.bytes(), 0u);
      return error.status();
    }
    return 200;
  };
  EXPECT_EQ(status(5 * kMb), 413);
  EXPECT_EQ(status(2 * kMb), 413);
  ASSERT_TRUE(budget.Reserve(3 * kMb / 4));  // for other requests
  EXPECT_EQ(status(kMb / 2), 503);
  budget.Return(3 * kMb / 4);
  EXPECT_EQ(status(kMb / 2), 200);
}

TEST(BodyMemory, ManyHeaders) {
  RequestParser parser({});
  std::string head = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 199; ++i) head += fmt::format("h{}: x\r\n", i);
  parser.Feed(head);
  EXPECT_EQ(parser.request().headers.size(), serve::kMaxHeaders);
  parser.Feed("h0: y\r\n");  // no new one
  try {
    parser.Feed("one: x\r\n");
    ADD_FAILURE() << "taken";
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 431);
  }
}

}  // namespace coracle::body_memory_test
