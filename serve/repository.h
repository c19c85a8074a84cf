#pragma once
// The models that a server has: files that are named, and directories that are watched.

#include <coracle/serve/model_files.h>
#include <coracle/serve/served_model.h>

#include <atomic>
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
  // Why it is not; or why its files on the disk were refused while an earlier state of them serves.
  std::string reason;
  bool unloaded = false;  // by request
};

class Repository {
 public:
  Repository(const ServeOptions& options, std::shared_ptr<MetricsTable> metrics);
  ~Repository();
  Repository(const Repository&) = delete;
  Repository& operator=(const Repository&) = delete;

  // A model of this name at a path that LoadInferenceModel takes. Throws kInvalidArgument for a
  // name that is used or that IsModelName refuses.
  void AddModel(const std::string& name, const std::string& path);
  // A directory with models (FindModels). Throws kIo if it cannot be read.
  void AddDirectory(const std::string& path);

  // Loads what is new or has changed, and unloads what is gone. A version that is loaded again
  // serves until its successor is warm. An Error of one model becomes its reason; it is loaded
  // again when its files change. While a directory cannot be read, nothing is unloaded.
  void Refresh();
  // Calls Refresh every `seconds` in a thread, until Stop.
  void Watch(double seconds);
  // Refuses to load models from now on, and ends the first runs of those that are being loaded.
  // Models that serve go on.
  void StopLoading() { stopping_ = true; }
  // StopLoading; unloads all models after the requests that wait for them.
  void Stop();

  // Loads all versions of a model again, or for the first time; removes them. Throw HttpError with
  // status 404 for an unknown name, 400 for a version that cannot be loaded, and 503 after Stop.
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
    std::string stamp;  // of the files when they were loaded last
    std::shared_ptr<ServedModel> model;
    std::string reason = "it is being loaded";
    bool unloaded = false;  // by request: Refresh leaves it alone
  };
  // Versions by number, so that the last one is the highest.
  using Versions = std::map<int64_t, Version>;

  std::string LoadVersion(const std::string& name, int64_t number, const ModelPlace& place,
                          bool again);
  std::shared_ptr<ServedModel> Read(const std::string& name, int64_t number,
                                    const std::string& path, std::string* stamp) const;
  void Remove(const FoundModels& found);
  void DrainLater(std::vector<std::shared_ptr<ServedModel>> models);
  Versions& VersionsIn(const std::string& name);

  std::atomic<bool> stopping_{false};
  const ServeOptions options_;
  const std::shared_ptr<MetricsTable> metrics_;
  std::map<std::string, std::string> files_;  // name to path
  std::vector<std::string> directories_;

  std::mutex loading_;  // one load at a time; taken before mutex_
  std::vector<std::future<void>> drains_;
  std::string problems_;  // that were logged last

  mutable std::mutex mutex_;
  std::map<std::string, Versions> models_;
  std::condition_variable stop_;
  std::thread watcher_;
};

}  // namespace coracle::serve
