#pragma once
// Answers requests: the routes of the Open Inference Protocol (version 2), of its extension for
// model repositories, and /metrics. It does not know connections.

#include <coracle/serve/http_message.h>
#include <coracle/serve/memory_budget.h>
#include <coracle/serve/repository.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace coracle::serve {

struct ServerOptions {
  bool repository_api = true;  // whether clients may load and unload models
  // Of what tensors need besides the request's body; nullptr: no limit.
  std::shared_ptr<MemoryBudget> memory = nullptr;
};

class Server {
 public:
  Server(Repository& repository, std::shared_ptr<MetricsTable> metrics,
         const ServerOptions& options = {});

  // Never throws. Thread-safe.
  Response Handle(Request request);

  // Health says "not ready" from now on; requests are still answered.
  void StopBeingReady() { ready_ = false; }

 private:
  Response Route(Request& request);
  Response Health(const std::string& what) const;
  Response ServerMetadata() const;
  Response ModelRoute(Request& request, const std::vector<std::string>& path);
  Response ModelMetadata(const std::string& name, const std::string& version) const;
  Response Infer(Request& request, ServedModel& model);
  Response Predict(Request& request, ServedModel& model);
  void AllowRepositoryVerb(const Request& request) const;
  Response RepositoryRoute(const Request& request, const std::vector<std::string>& path);
  Response Index() const;

  Repository& repository_;
  const std::shared_ptr<MetricsTable> metrics_;
  const ServerOptions options_;
  std::atomic<bool> ready_{true};
};

}  // namespace coracle::serve
