// A connection of `coracle serve`: its requests, and what the decoder of infer requests makes of
// their bodies.

#include <coracle/framework/base/error.h>
#include <coracle/serve/decode_body.h>
#include <coracle/serve/http_answer.h>
#include <coracle/serve/infer_codec.h>
#include <coracle/serve/request_parser.h>
#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/targets.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace coracle {
namespace {

constexpr serve::RequestLimits kLimits = {.max_body = 1 << 16, .max_head = 1 << 12};

// What the server understands of a connection's bytes.
struct Understood {
  std::vector<serve::Request> requests;
  std::string error;  // that ends the connection
};

// As the server does, with pieces of `step` bytes.
Understood Understand(std::string_view bytes, size_t step) {
  Understood read;
  serve::MemoryBudget budget(uint64_t{1} << 20);
  std::optional<serve::RequestParser> parser;
  parser.emplace(kLimits, &budget);
  while (!bytes.empty()) {
    try {
      const size_t taken = parser->Feed(bytes.substr(0, step));
      Require(taken > 0, "a parser takes no bytes");
      bytes.remove_prefix(taken);
    } catch (const serve::HttpError& error) {
      Require(error.status() >= 400 && error.status() < 600, "an error has no error's status");
      read.error = std::to_string(error.status()) + error.what();
      break;
    }
    if (!parser->done()) continue;
    read.requests.push_back(parser->request());
    const std::string& body = parser->request().body;
    const bool allocated = body.capacity() > std::string().capacity();
    Require(!allocated || budget.used() >= body.capacity(), "a body's memory is not counted");
    const bool goes_on = parser->keep_alive();
    parser.emplace(kLimits, &budget);
    if (!goes_on) break;
  }
  parser.reset();
  Require(budget.used() == 0, "memory is not returned");
  return read;
}

bool Same(const Understood& a, const Understood& b) {
  return a.error == b.error &&
         std::equal(a.requests.begin(), a.requests.end(), b.requests.begin(), b.requests.end(),
                    [](const serve::Request& x, const serve::Request& y) {
                      return x.method == y.method && x.path == y.path && x.headers == y.headers &&
                             x.body == y.body && x.has_length == y.has_length;
                    });
}

// The inputs of a model that gives them back.
const std::vector<std::vector<serve::Port>>& Models() {
  static const std::vector<std::vector<serve::Port>> models = {
      {{"x", DType::kFloat32, {-1, 2}}},
      {{"x", DType::kString, {-1}}},
      {{"x", DType::kInt64, {-1}}, {"y", DType::kUInt8, {2}}, {"z", DType::kBool, {-1}}},
      {{"x", DType::kFloat16, {-1}}, {"y", DType::kFloat64, {-1}}}};
  return models;
}

void UseRequest(serve::Request request) {
  serve::BudgetShare share(nullptr);
  serve::DecodeBody(kLimits.max_body, &share, &request);
  Require(request.body.size() <= kLimits.max_body, "a body is too large");
  for (const std::vector<serve::Port>& ports : Models()) {
    try {
      const serve::InferRequest infer = serve::ParseInferRequest(request, ports, ports);
      Require(infer.inputs.size() == ports.size(), "an input is missing");
      serve::Response response = serve::InferResponse(infer, "m", "1", ports, infer.inputs);
      Require(response.type != "application/json" || nlohmann::json::accept(response.body),
              "an answer is not JSON");
      serve::CompressBody(request.Header("accept-encoding"), &response);
      Require(!serve::AnswerHead(response, true, 1).empty(), "an answer has no head");
    } catch (const serve::HttpError& error) {
      Require(error.status() == 400, "a request is refused with another status than 400");
    }
  }
}

}  // namespace

void FuzzServe(std::string_view bytes) {
  const Understood whole = Understand(bytes, std::string_view::npos);
  Require(Same(whole, Understand(bytes, 1)), "pieces are understood in another way");
  Require(Same(whole, Understand(bytes, 7)), "pieces are understood in another way");
  for (const serve::Request& request : whole.requests) {
    try {
      UseRequest(request);
    } catch (const serve::HttpError& error) {
      Require(error.status() == 400 || error.status() == 413, "a body has another status");
    }
  }
}

}  // namespace coracle
