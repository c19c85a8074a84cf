#pragma once
// The models that a server has: files that are named, and directories that are watched.

#include <coracle/serve/served_model.h>

#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace coracle::serve {

// One version of a model, as POST /v2/repository/index shows it.
struct ModelState {
  std::string name, version;
  bool ready = false;
  std::string reason;  // why it is not
};

class Repository {
 public:
  Repository(const ServeOptions& options, std::shared_ptr<MetricsTable> metrics);
  ~Repository();
  Repository(const Repository&) = delete;
  Repository& operator=(const Repository&) = delete;

  // A model of this name at a path that LoadInferenceModel takes. Throws kInvalidArgument for a
  // name that is used or has characters besides letters, digits, '_', '-' and '.'.
  void AddModel(const std::string& name, const std::string& path);
  // A directory with models: NAME.onnx, NAME.pdmodel, NAME/ (a model's directory), or
  // NAME/VERSION/ with a number for each version.
  void AddDirectory(const std::string& path);

  // Loads what is new or has changed, and unloads what is gone. A version that is loaded again
  // serves until its successor is warm. An Error of one model becomes its reason.
  void Refresh();
  // Calls Refresh every `seconds` in a thread, until Stop.
  void Watch(double seconds);
  void Stop();

  // Loads all versions of a model again, or for the first time; removes them. Throw HttpError with
  // status 404 for an unknown name, and 400 for a model that cannot be loaded.
  void Load(const std::string& name);
  void Unload(const std::string& name);

  // The version; "": the highest that is ready. Throws HttpError with status 404 for an unknown
  // name or version, and 503 for one that is not ready.
  std::shared_ptr<ServedModel> Find(const std::string& name, const std::string& version) const;
  std::vector<std::string> VersionsOf(const std::string& name) const;  // those that are ready
  std::vector<ModelState> Index() const;
  bool AllReady() const;

 private:
  struct Version {
    std::string path;
    std::string stamp;  // times and sizes of its files
    std::shared_ptr<ServedModel> model;
    std::string reason = "not loaded yet";
    bool unloaded = false;  // by request: Refresh leaves it alone
  };
  // Versions by number, so that the last one is the highest.
  using Versions = std::map<int64_t, Version>;

  std::map<std::string, std::map<int64_t, std::string>> FindPaths() const;
  void LoadVersion(const std::string& name, int64_t number, const std::string& path, bool again);
  void DrainLater(std::vector<std::shared_ptr<ServedModel>> models);
  Versions& VersionsIn(const std::string& name);

  const ServeOptions options_;
  const std::shared_ptr<MetricsTable> metrics_;
  std::map<std::string, std::string> files_;  // name to path
  std::vector<std::string> directories_;

  std::mutex loading_;  // one load at a time
  mutable std::mutex mutex_;
  std::map<std::string, Versions> models_;
  std::vector<std::future<void>> drains_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread watcher_;
};

// Whether the name can be a part of a path: up to 128 letters, digits, '_', '-' and '.', without a
// '.' at the beginning.
bool IsModelName(const std::string& name);

}  // namespace coracle::serve
