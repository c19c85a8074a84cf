// What strangers send: each bad request has one answer, and no byte of it becomes another request.

#include <coracle/framework/base/error.h>
#include <coracle/test/serve/http_client.h>

#include <chrono>
#include <cstring>

namespace coracle::http_test {

using serve::HttpError;
using serve::Request;
using serve::Response;

const std::string kPost = "POST /x HTTP/1.1\r\nHost: a\r\n";
const std::string kGet = "GET /x HTTP/1.1\r\nHost: a\r\n";
const std::string kHidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

class Http : public HttpTest {
 protected:
  void SetUp() override { Start(SmallLimits()); }
  // The answer to a request that has `length` bytes of body, which is `body`.
  std::string Posted(const std::string& headers, const std::string& body) const {
    return Ask(kPost + headers +
               fmt::format("Content-Length: {}\r\nConnection: close\r\n\r\n", body.size()) + body);
  }
};

TEST_F(Http, Answers) {
  ExpectAnswers();
  EXPECT_NE(Posted("", "abc").find("POST /x 3"), std::string::npos);
  EXPECT_NE(Posted("", "").find("POST /x 0"), std::string::npos);
  EXPECT_NE(Ask("POST /a?b=c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n"
                "Connection: close\r\n\r\n3;x=y\r\nabc\r\n00A\r\n0123456789\r\n0\r\nX: y\r\n\r\n")
                .find("POST /a 13"),
            std::string::npos);
  EXPECT_NE(Posted("Content-Encoding: gzip\r\n", Gzip(std::string(900, 'a'))).find("POST /x 900"),
            std::string::npos);
  // A body need not be there; an answer comes at once.
  EXPECT_NE(Ask(kPost + "Connection: close\r\n\r\n").find("POST /x 0"), std::string::npos);
  const std::string head = Ask("HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 9\r\n"), head.npos);
  EXPECT_EQ(head.substr(head.size() - 4), "\r\n\r\n");
  // HTTP/1.0 closes unless it is asked not to; the name of a host may be in the path.
  EXPECT_NE(Ask("GET http://a/x HTTP/1.0\r\n\r\n").find("GET /x 0"), std::string::npos);
  EXPECT_NE(Ask("GET HTTP://a?/hidden HTTP/1.0\r\n\r\n").find("GET / 0"), std::string::npos);
}

TEST_F(Http, ConnectionsAreKept) {
  const HttpClient client(port());
  for (int i = 0; i < 20; ++i) {
    client.Send(fmt::format("POST /{} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", i));
    const std::string end = fmt::format("POST /{} 2", i);
    const std::string answer = client.Read(end);
    EXPECT_NE(answer.find(end), answer.npos);
    EXPECT_NE(answer.find("\r\nConnection: keep-alive\r\nKeep-Alive: timeout=3\r\n"), answer.npos);
  }
  // Several at once, byte by byte and together.
  const std::string two = kGet + "\r\n" + kPost + "Content-Length: 1\r\n\r\nx" + kHidden;
  for (char c : two) client.Send(std::string(1, c));
  EXPECT_NE(client.Read("/hidden 0").find("POST /x 1"), std::string::npos);
  client.Send(two);
  EXPECT_NE(client.Read("/hidden 0").find("POST /x 1"), std::string::npos);
  client.Send(kGet + "Connection: x, Close\r\n\r\n" + kHidden);
  EXPECT_EQ(client.Read().find("/hidden"), std::string::npos);
}

TEST_F(Http, BadRequests) {
  for (const char* length : {"abc", "-1", "+1", "", " ", "%32", "1%30", "0x1", "1,1", "1 1",
                             "99999999999999999999", "1."})
    EXPECT_EQ(OnlyStatus(kPost + "Content-Length: " + length + "\r\n\r\n" + kHidden), 400)
        << length;
  for (const char* headers : {"Content-Length: 1\r\nContent-Length: 2\r\n",
                              "Content-Length: 1\r\nContent-Length: 1\r\n",
                              "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                              "Content-Length : 3\r\n",
                              "Transfer-Encoding : chunked\r\n",
                              "Transfer-Encoding: xchunked\r\n",
                              "Transfer-Encoding: chunked, chunked\r\n",
                              "Transfer-Encoding: gzip, chunked\r\n",
                              "Transfer-Encoding:\r\n",
                              "Transfer-Encoding: %63hunked\r\n",
                              "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
                              "Host: b\r\n",
                              "Inference-Header-Content-Length: %32\r\n",
                              "Inference-Header-Content-Length: \r\n",
                              "X: a\r\n b\r\n",
                              " X: a\r\n",
                              ": a\r\n",
                              "no colon\r\n",
                              "X: a\nY: b\r\n",
                              "X: a\rY: b\r\n",
                              "X\x01: a\r\n",
                              "X: a\x7f\r\n"})
    EXPECT_EQ(OnlyStatus(kPost + headers + "\r\n" + kHidden), 400) << headers;
  EXPECT_EQ(OnlyStatus(kPost + std::string("X: a\0b\r\n", 8) + "\r\n" + kHidden), 400);
  for (const char* line :
       {"\r\nGET /x HTTP/1.1\r\n", "GET /x\r\n", "GET  HTTP/1.1\r\n", "GET /x y HTTP/1.1\r\n",
        "GET x HTTP/1.1\r\n", "GET ?x=http://a/x HTTP/1.1\r\n", "GET ftp://a/x HTTP/1.1\r\n",
        "GET /x#y HTTP/1.1\r\n", "GET /x http/1.1\r\n", "G(T /x HTTP/1.1\r\n",
        "GET /\x80 HTTP/1.1\r\n", "GET /x HTTP/1.1\n", "\x16\x03\x01\x02\r\n",
        "GET /x\tHTTP/1.1\r\n"})
    EXPECT_EQ(OnlyStatus(line + std::string("Host: a\r\n\r\n") + kHidden), 400) << line;
  EXPECT_EQ(OnlyStatus("GET /x HTTP/1.1\r\n\r\n" + kHidden), 400);  // without Host
  EXPECT_EQ(OnlyStatus("GET /x HTTP/2.0\r\nHost: a\r\n\r\n" + kHidden), 505);
  EXPECT_EQ(OnlyStatus(kGet + "Content-Length: 20\r\n\r\n" + kHidden), 400);
  // Also if the body is empty, or the request has none.
  for (const std::string end : {"Content-Length: 1\r\n\r\na", "Content-Length: 0\r\n\r\n", "\r\n",
                                "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}) {
    for (const std::string coding : {"br", "gzip, gzip", "zstd"}) {
      const std::string head = kPost + "Content-Encoding: " + coding + "\r\n";
      EXPECT_EQ(OnlyStatus(head + end + kHidden), 415) << head << end;
    }
  }
  ExpectAnswers();
}

TEST_F(Http, BadChunks) {
  for (const char* chunks :
       {"-2\r\nabc\r\n0\r\n\r\n", "0x2\r\nab\r\n0\r\n\r\n", "\r\n0\r\n\r\n", "g\r\n",
        " 1\r\na\r\n0\r\n\r\n", "1 \r\na\r\n0\r\n\r\n", "1\r\nab\r\n0\r\n\r\n", "2\na\n",
        "ffffffffffffffffff\r\n", "1\nab\r\n", ";x\r\na\r\n", "+1\r\na\r\n0\r\n\r\n"})
    EXPECT_EQ(OnlyStatus(kPost + "Transfer-Encoding: chunked\r\n\r\n" + chunks + kHidden), 400)
        << chunks;
  EXPECT_EQ(OnlyStatus(kPost + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(300, 'x')),
            400);
  EXPECT_EQ(OnlyStatus(kPost + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n" + kHidden),
            413);
  ExpectAnswers();
}

// A library once answered these by itself, and then read their bodies as requests.
TEST_F(Http, OneAnswerForEachRequest) {
  const std::string body = fmt::format("Content-Length: {}\r\n\r\n", kHidden.size()) + kHidden;
  for (const char* headers :
       {"Range: x\r\n", "Range: bytes=0-0\r\n", "Content-Type: multipart/form-data\r\n",
        "Content-Type: multipart/form-data; boundary=a\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n", "Expect: 100-continue\r\n"}) {
    const std::string answer = Ask(kPost + headers + "Connection: close\r\n" + body);
    EXPECT_NE(answer.find(fmt::format("POST /x {}", kHidden.size())), answer.npos) << answer;
    EXPECT_EQ(answer.find("/hidden"), answer.npos) << answer;
  }
  const std::string path = "/" + std::string(3000, 'a');
  EXPECT_NE(Ask("POST " + path + " HTTP/1.1\r\nHost: a\r\n" + body).find(path), std::string::npos);
  EXPECT_EQ(OnlyStatus("FOO /x HTTP/1.1\r\nHost: a\r\n" + body), 400);
  EXPECT_NE(Ask("FOO /x HTTP/1.1\r\nHost: a\r\n\r\n").find("FOO /x 0"), std::string::npos);
}

TEST_F(Http, LargeRequests) {
  EXPECT_EQ(OnlyStatus(kPost + "Content-Length: 1001\r\n\r\n" + kHidden), 413);
  const std::string bomb = Gzip(std::string(900'000, 'a'));
  EXPECT_NE(Posted("Content-Encoding: gzip\r\n", bomb).find(" 413 "), std::string::npos);
  EXPECT_NE(Posted("Content-Encoding: gzip\r\n", Gzip(std::string(1000, 'a'))).find(" 200 "),
            std::string::npos);
  std::string chunks;
  for (int i = 0; i < 30; ++i) chunks += "64\r\n" + std::string(100, 'x') + "\r\n";
  EXPECT_EQ(OnlyStatus(kPost + "Transfer-Encoding: chunked\r\n\r\n" + chunks + "0\r\n\r\n"), 413);
  // Heads: one line, many lines, and bytes without a line's end.
  EXPECT_EQ(OnlyStatus(kGet + "X: " + std::string(5000, 'y') + "\r\n\r\n" + kHidden), 431);
  std::string head = kGet;
  for (int i = 0; i < 1000; ++i) head += fmt::format("X-{}: y\r\n", i);
  EXPECT_EQ(OnlyStatus(head), 431);
  EXPECT_EQ(OnlyStatus("GET /" + std::string(5000, 'a')), 431);
  ExpectAnswers();
}

TEST_F(Http, DamagedBodiesAreNotTooLarge) {
  const std::string whole = Gzip(std::string(900, 'a') + "bcd");
  std::string damaged = whole;
  char& crc = damaged[damaged.size() - 5];
  crc = static_cast<char>(crc ^ 1);
  for (const std::string& body : {std::string("not gzip"), whole.substr(0, whole.size() - 3),
                                  whole + "more", damaged, std::string(1, '\x1f')}) {
    const std::string answer = Posted("Content-Encoding: gzip\r\n", body);
    EXPECT_NE(answer.find(" 400 "), answer.npos) << answer;
  }
  EXPECT_NE(Posted("Content-Encoding: deflate\r\n", whole).find(" 400 "), std::string::npos);
}

TEST_F(Http, Expectations) {
  const HttpClient client(port());
  client.Send(kPost + "Content-Length: 3\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_EQ(client.Read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("abc");
  EXPECT_NE(client.Read("POST /x 3").find(" 200 "), std::string::npos);
  // The answer is final: no 100 before it.
  EXPECT_EQ(OnlyStatus(kPost + "Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n"), 413);
  EXPECT_EQ(OnlyStatus(kPost + "Content-Length: 3\r\nExpect: 200-ok\r\n\r\nabc" + kHidden), 417);
  EXPECT_EQ(OnlyStatus(kPost +
                       "Content-Encoding: x\r\nContent-Length: 3\r\n"
                       "Expect: 100-continue\r\n\r\nabc" +
                       kHidden),
            415);
}

TEST_F(Http, SlowClientsAreLeft) {
  // As many as there are connections, with a byte now and then.
  std::vector<std::unique_ptr<HttpClient>> slow;
  for (int i = 0; i < 40; ++i) slow.push_back(std::make_unique<HttpClient>(port()));
  for (int k = 0; k < 3; ++k) {
    for (const auto& client : slow) client->Send("G");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ExpectAnswers();
  slow.clear();
  EXPECT_EQ(OnlyStatus("GET /x HT"), 408);
  EXPECT_EQ(OnlyStatus(kPost + "Content-Length: 10\r\n\r\nabc"), 408);
  // Clients that stop sending.
  EXPECT_NE(Ask(kPost + "Content-Length: 10\r\n\r\nabc").find(" 400 "), std::string::npos);
  EXPECT_NE(Ask("GET /x HT").find(" 400 "), std::string::npos);
  EXPECT_EQ(Ask(""), "");
}

TEST_F(Http, AllAnswersAreLogged) {
  OnlyStatus(kPost + "Content-Length: abc\r\n\r\n");
  OnlyStatus(kGet + "X: " + std::string(5000, 'y'));
  OnlyStatus("GET /late");
  Ask(kPost +
      "X-Request-Id: a-7\r\nX-Trace: 1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc");
  const auto log = Log();
  ASSERT_EQ(log.size(), 4u);
  EXPECT_EQ(log[0].status, 400);
  EXPECT_EQ(log[0].method + log[0].path, "POST/x");
  EXPECT_EQ(log[1].status, 431);
  EXPECT_EQ(log[2].status, 408);
  EXPECT_EQ(log[3].status, 200);
  EXPECT_EQ(log[3].request_bytes, 3u);
  EXPECT_EQ(log[3].response_bytes, std::strlen("POST /x 3"));
  EXPECT_EQ(log[3].id, "a-7");
  EXPECT_TRUE(log[3].trace && log[3].sent && !log[0].trace);
  EXPECT_EQ(log[3].remote, "127.0.0.1");
}

TEST_F(Http, RequestIdsComeBack) {
  EXPECT_NE(Posted("X-Request-Id: a/7\r\n", "").find("\r\nX-Request-Id: a/7\r\n"),
            std::string::npos);
  EXPECT_NE(Posted("X-Request-Id: a b\r\n", "").find(" 400 "), std::string::npos);
  EXPECT_NE(Posted("X-Request-Id: " + std::string(129, 'a') + "\r\n", "").find(" 400 "),
            std::string::npos);
}

TEST_F(Http, ATakenPortIsAnError) {
  serve::HttpOptions options;
  options.port = port();
  serve::HttpServer other(options, Echo);
  EXPECT_THROW(other.Bind(), Error);
  options.address = "192.0.2.1";
  serve::HttpServer elsewhere(options, Echo);
  EXPECT_THROW(elsewhere.Bind(), Error);
}

}  // namespace coracle::http_test
