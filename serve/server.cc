#include <coracle/framework/base/text.h>
#include <coracle/framework/base/version.h>
#include <coracle/serve/api_pages.h>
#include <coracle/serve/predict_route.h>
#include <coracle/serve/request_time.h>
#include <coracle/serve/server.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace coracle::serve {
namespace {

using nlohmann::json;

// "%41" as "A"; nothing for a path that is badly encoded.
std::optional<std::string> Decoded(const std::string& text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    int value = 0;
    for (size_t k = i + 1; k <= i + 2; ++k) {
      const char c = k < text.size() ? text[k] : ' ';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      value = value * 16 + digit;
    }
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

[[noreturn]] void ThrowNoRoute() {
  throw HttpError(404, "there is nothing at this path; GET / lists what there is");
}

// Thrown with the header Allow.
struct WrongMethod {
  std::string allowed;
};

void RequireMethod(const Request& request, const char* method) {
  if (request.method != method && !(request.method == "HEAD" && std::string(method) == "GET"))
    throw WrongMethod{method};
}

std::string TextOf(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

Response Json(const json& body) {
  Response response;
  response.body = TextOf(body);
  return response;
}

json PortsAsJson(const std::vector<Port>& ports) {
  json list = json::array();
  for (const Port& port : ports) {
    list.push_back({{"name", port.name},
                    {"datatype", DatatypeOf(port.dtype)},
                    {"shape", port.shape.ToVector()}});
  }
  return list;
}

// Bytes that the tensors of a request take while it is read, at most: an element of JSON has two
// bytes or more, a text of BYTES four.
uint64_t TensorBytes(const Request& request, const std::vector<Port>& inputs) {
  constexpr uint64_t kPerJsonByte = 12, kPerJsonTextByte = 14, kPerTextByte = 8;
  const bool texts = std::any_of(inputs.begin(), inputs.end(),
                                 [](const Port& port) { return port.dtype == DType::kString; });
  const uint64_t json = std::min<uint64_t>(JsonSize(request), request.body.size());
  return json * (texts ? kPerJsonTextByte : kPerJsonByte) +
         (request.body.size() - json) * (texts ? kPerTextByte : 1);
}

// "http://HOST:PORT" as "HOST:PORT".
std::string HostOfOrigin(const std::string& origin) {
  const size_t scheme = origin.find("://");
  return scheme == origin.npos ? "" : origin.substr(scheme + 3);
}

// Whether no name server decides what the host of an origin is. Any name can be made to point to
// this machine, so that a page of that name could ask the server for everything.
bool IsSafeHost(const std::string& host) {
  if (host.starts_with('[')) return true;  // an address of IPv6
  const std::string name = LowerCase(host.substr(0, host.find(':')));
  return name == "localhost" || name.find_first_not_of("0123456789.") == name.npos;
}

// Runs `answer` for a request to a model, and counts how it ends.
template <class F>
Response Counted(Request& request, ServedModel& model, F answer) {
  try {
    if (!request.has_length)
      throw HttpError(411, "the request needs Content-Length or Transfer-Encoding: chunked");
    request.deadline = std::min(request.deadline, DeadlineOf(request, 0));
    Response response = answer();
    ++model.metrics().Requests(RequestEnd::kSuccess);
    model.metrics().request_seconds.Add(
        std::chrono::duration<double>(Clock::now() - request.received).count());
    return response;
  } catch (const HttpError& error) {
    ++model.metrics().Requests(error.end());
    throw;
  } catch (...) {
    ++model.metrics().Requests(RequestEnd::kFailure);
    throw;
  }
}

}  // namespace

Server::Server(Repository& repository, std::shared_ptr<MetricsTable> metrics,
               const ServerOptions& options)
    : repository_(repository), metrics_(std::move(metrics)), options_(options) {}

Response Server::Handle(Request request) {
  try {
    return Route(request);
  } catch (const WrongMethod& wrong) {
    Response response = ErrorResponse(405, "use " + wrong.allowed);
    response.headers["Allow"] = wrong.allowed;
    return response;
  } catch (const HttpError& error) {
    return ErrorResponse(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return ErrorResponse(503, "out of memory");
  } catch (const Error& error) {
    const bool memory = error.code() == ErrorCode::kResourceExhausted;
    return ErrorResponse(memory ? 503 : 500, error.message());
  } catch (const std::exception&) {
    return ErrorResponse(500, "the server failed");
  }
}

Response Server::Route(Request& request) {
  std::vector<std::string> path;
  for (const std::string& part : Split(request.path, '/')) {
    const auto decoded = Decoded(part);
    if (!decoded) ThrowNoRoute();
    path.push_back(*decoded);
  }
  if (path.size() < 2 || !path[0].empty()) ThrowNoRoute();
  path.erase(path.begin());
  if (path.size() > 1 && !path[0].empty() && path.back().empty()) path.pop_back();  // "/v2/"
  const std::string& first = path[0];
  if (path.size() == 1) {
    if (first.empty()) {
      RequireMethod(request, "GET");
      return {.type = "text/html; charset=utf-8", .body = StartPage()};
    }
    if (first == "metrics") {
      RequireMethod(request, "GET");
      return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_->Text()};
    }
    if (first == "openapi.json") {
      RequireMethod(request, "GET");
      return {.body = OpenApi()};
    }
    if (first != "v2") ThrowNoRoute();
    RequireMethod(request, "GET");
    return ServerMetadata();
  }
  if (first == "v1" && path[1] == "predict" && path.size() == 3) {
    if (!IsModelName(path[2])) ThrowNoRoute();
    RequireMethod(request, "POST");
    const std::shared_ptr<ServedModel> model = repository_.Find(path[2], "");
    return Predict(request, *model);
  }
  if (first != "v2") ThrowNoRoute();
  if (path[1] == "health" && path.size() == 3) {
    RequireMethod(request, "GET");
    return Health(path[2]);
  }
  if (path[1] == "models" && path.size() > 2) return ModelRoute(request, path);
  if (path[1] == "repository") return RepositoryRoute(request, path);
  ThrowNoRoute();
}

Response Server::Health(const std::string& what) const {
  if (what == "live") return Json({{"live", true}});
  if (what != "ready") ThrowNoRoute();
  if (!ready_) throw HttpError(503, "the server is stopping");
  if (!repository_.AllReady()) throw HttpError(503, "a model is not ready");
  return Json({{"ready", true}});
}

Response Server::ServerMetadata() const {
  return Json({{"name", "coracle"},
               {"version", fmt::format("{}.{}.{}", CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR,
                                       CORACLE_VERSION_PATCH)},
               {"extensions", {"binary_tensor_data", "model_repository"}}});
}

// /v2/models/NAME[/versions/V][/ready|/infer]
Response Server::ModelRoute(Request& request, const std::vector<std::string>& path) {
  const std::string& name = path[2];
  if (!IsModelName(name)) ThrowNoRoute();
  size_t at = 3;
  std::string version;
  if (path.size() > 4 && path[3] == "versions") {
    version = path[4];
    if (version.empty()) ThrowNoRoute();
    at = 5;
  }
  if (path.size() == at) {
    RequireMethod(request, "GET");
    return ModelMetadata(name, version);
  }
  if (path.size() != at + 1) ThrowNoRoute();
  if (path[at] == "ready") {
    RequireMethod(request, "GET");
    repository_.Find(name, version);
    return Json({{"name", name}, {"ready", true}});
  }
  if (path[at] != "infer") ThrowNoRoute();
  RequireMethod(request, "POST");
  const std::shared_ptr<ServedModel> model = repository_.Find(name, version);
  return Infer(request, *model);
}

Response Server::ModelMetadata(const std::string& name, const std::string& version) const {
  const std::shared_ptr<ServedModel> model = repository_.Find(name, version);
  json metadata = {{"name", name},
                   {"versions", repository_.VersionsOf(name)},
                   {"platform", "coracle_program"},
                   {"inputs", PortsAsJson(model->inputs())},
                   {"outputs", PortsAsJson(model->outputs())}};
  const std::string rows = model->RawRows();
  if (!rows.empty()) metadata["properties"] = {{"raw_rows", rows}};
  if (rows == "cells")
    metadata["properties"]["columns"] = TextOf(json(model->predictor().columns()));
  return Json(metadata);
}

Response Server::Infer(Request& request, ServedModel& model) {
  return Counted(request, model, [&] {
    BudgetShare memory(options_.memory.get());
    memory.Grow(TensorBytes(request, model.inputs()));
    InferRequest infer = DoUntil(request.deadline, "it was read", [&] {
      return ParseInferRequest(request, model.inputs(), model.outputs());
    });
    request.body = {};
    InferTimes times;
    const std::vector<Tensor> results =
        model.Infer(std::move(infer.inputs), request.deadline, &times);
    Response response = DoUntil(request.deadline, "its answer was written", [&] {
      return InferResponse(infer, model.name(), model.version(), model.outputs(), results);
    });
    response.queue_seconds = times.queue_seconds;
    response.run_seconds = times.run_seconds;
    return response;
  });
}

Response Server::Predict(Request& request, ServedModel& model) {
  return Counted(request, model, [&] {
    BudgetShare memory(options_.memory.get());
    memory.Grow(PredictBytes(request));
    InferTimes all;  // of the runs one after the other
    const RunFeeds run = [&](std::vector<Tensor> feeds) {
      InferTimes times;
      std::vector<Tensor> results = model.Infer(std::move(feeds), request.deadline, &times);
      all.queue_seconds += times.queue_seconds;
      all.run_seconds += times.run_seconds;
      return results;
    };
    Response response = DoUntil(request.deadline, "its rows were read", [&] {
      return PredictRoute(model.predictor(), request, model.max_batch(), run, model.decode_mb());
    });
    response.queue_seconds = all.queue_seconds;
    response.run_seconds = all.run_seconds;
    return response;
  });
}

// Any page that a browser on this machine shows can send a POST; the header Origin names the page.
void Server::AllowRepositoryVerb(const Request& request) const {
  if (!options_.repository_api) throw HttpError(403, "the server runs with --repository_api=false");
  if (!request.headers.count("origin")) return;
  const std::string origin = HostOfOrigin(request.Header("origin"));
  if (origin.empty() || LowerCase(origin) != LowerCase(request.Header("host")))
    throw HttpError(403, "a web page of another host may not load or unload models");
  if (!IsSafeHost(origin))
    throw HttpError(403,
                    "a web page may load or unload models only if its host is an IP address or "
                    "localhost");
}

Response Server::RepositoryRoute(const Request& request, const std::vector<std::string>& path) {
  if (path.size() == 3 && path[2] == "index") {
    RequireMethod(request, "POST");
    return Index();
  }
  if (path.size() != 5 || path[2] != "models" || !IsModelName(path[3])) ThrowNoRoute();
  if (path[4] != "load" && path[4] != "unload") ThrowNoRoute();
  RequireMethod(request, "POST");
  AllowRepositoryVerb(request);
  if (path[4] == "load")
    repository_.Load(path[3]);
  else
    repository_.Unload(path[3]);
  return Json(json::object());
}

Response Server::Index() const {
  json list = json::array();
  for (const ModelState& state : repository_.Index()) {
    list.push_back({{"name", state.name},
                    {"version", state.version},
                    {"state", state.ready ? "READY" : "UNAVAILABLE"},
                    {"reason", state.reason}});
  }
  return Json(list);
}

}  // namespace coracle::serve
