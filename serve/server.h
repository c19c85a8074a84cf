#pragma once
// Answers requests: the routes of the Open Inference Protocol (version 2), of its extension for
// model repositories, and /metrics. It does not know connections.

#include <coracle/serve/http_message.h>
#include <coracle/serve/repository.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace coracle::serve {

class Server {
 public:
  Server(Repository& repository, std::shared_ptr<MetricsTable> metrics);

  // Never throws. Thread-safe.
  Response Handle(const Request& request);

  // Health says "not ready" from now on; requests are still answered.
  void StopBeingReady() { ready_ = false; }

 private:
  Response Route(const Request& request);
  Response Health(const std::string& what) const;
  Response ServerMetadata() const;
  Response ModelRoute(const Request& request, const std::vector<std::string>& path);
  Response ModelMetadata(const std::string& name, const std::string& version) const;
  Response Infer(const Request& request, ServedModel& model);
  Response RepositoryRoute(const Request& request, const std::vector<std::string>& path);
  Response Index() const;

  Repository& repository_;
  const std::shared_ptr<MetricsTable> metrics_;
  std::atomic<bool> ready_{true};
};

}  // namespace coracle::serve
