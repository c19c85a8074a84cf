#include <coracle/framework/base/text.h>
#include <coracle/serve/repository.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

namespace coracle::serve {
namespace {

constexpr int kReads = 3;  // of files that change meanwhile

ServeOptions WithStop(ServeOptions options, const std::atomic<bool>* stopping) {
  options.stop_loading = [stopping] { return stopping->load(); };
  return options;
}

// For threads whose callers are gone.
void LogFailure(const char* what) noexcept {
  try {
    LogMessage(MessageLevel::kError, fmt::format("looking for models failed: {}", what));
  } catch (...) {  // no memory for the message either
  }
}

HttpError NoModel(const std::string& name) {
  return HttpError(404, fmt::format("there is no model {}", Quote(name)));
}

}  // namespace

Repository::Repository(const ServeOptions& options, std::shared_ptr<MetricsTable> metrics)
    : options_(WithStop(options, &stopping_)), metrics_(std::move(metrics)) {}

Repository::~Repository() { Stop(); }

void Repository::AddModel(const std::string& name, const std::string& path) {
  if (!IsModelName(name)) {
    ThrowInvalid(fmt::format("{} cannot be the name of a model: use letters, digits, _, - and .",
                             Quote(name)));
  }
  const auto [known, is_new] = files_.emplace(name, path);
  if (!is_new) {
    ThrowInvalid(fmt::format("two models have the name {}: {} and {}; use NAME=PATH", Quote(name),
                             known->second, path));
  }
}

void Repository::AddDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator it(path, error);
  if (error) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot read the directory {}: {}", Quote(path, 300), error.message()));
  }
  directories_.push_back(path);
}

// Reads the model again if its files changed meanwhile: it may be half old and half new.
std::shared_ptr<ServedModel> Repository::Read(const std::string& name, int64_t number,
                                              const std::string& path, std::string* stamp) const {
  const std::string version = std::to_string(number);
  for (int i = 0; i < kReads; ++i) {
    auto model = std::make_shared<ServedModel>(FileToLoad(path), name, version, options_,
                                               metrics_->Of(name, version));
    const std::string now = StampOf(path);
    if (now == *stamp) return model;
    *stamp = now;
  }
  *stamp = "";  // to be read again
  throw Error(ErrorCode::kIo, fmt::format("the files of {} change while they are read", path));
}

// Loads the version if it is new, has changed, or has to be loaded `again`. Returns why it could
// not be loaded.
std::string Repository::LoadVersion(const std::string& name, int64_t number,
                                    const ModelPlace& place, bool again) {
  std::string stamp = place.conflict.empty() ? StampOf(place.path) : place.conflict;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [at, is_new] = models_[name].try_emplace(number);
    Version& version = at->second;
    if (!again && !is_new && (version.unloaded || version.stamp == stamp)) return "";
    version.unloaded = false;
  }
  std::shared_ptr<ServedModel> model;
  std::string reason = place.conflict;
  try {
    if (reason.empty()) model = Read(name, number, place.path, &stamp);
  } catch (const Error& error) {
    reason = error.message();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Version& version = models_[name][number];
    version.stamp = stamp;
    version.reason = reason;
    // A file that cannot be read does not take away the model that serves.
    if (model) version.model.swap(model);
  }
  if (!reason.empty()) {
    LogMessage(MessageLevel::kError, fmt::format("model {}, version {}: {}", name, number, reason));
  } else {
    LogMessage(MessageLevel::kInfo, fmt::format("model {}, version {} is ready", name, number));
  }
  if (model) DrainLater({std::move(model)});  // the one before
  return reason;
}

void Repository::Refresh() {
  const std::lock_guard<std::mutex> one(loading_);
  const FoundModels found = FindModels(files_, directories_);
  for (const auto& [name, versions] : found.models) {
    for (const auto& [number, place] : versions) {
      if (stopping_) return;
      LoadVersion(name, number, place, false);
    }
  }
  const std::string problems = Join(found.problems, "; ");
  if (problems.empty())
    Remove(found);
  else if (problems != problems_)
    LogMessage(MessageLevel::kError,
               "no model is unloaded, because this cannot be read: " + problems);
  problems_ = problems;
}

void Repository::Remove(const FoundModels& found) {
  std::vector<std::shared_ptr<ServedModel>> gone;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [name, versions] : models_) {
      const auto there = found.models.find(name);
      std::erase_if(versions, [&](auto& entry) {
        if (there != found.models.end() && there->second.count(entry.first)) return false;
        if (entry.second.model) gone.push_back(std::move(entry.second.model));
        return true;
      });
    }
    std::erase_if(models_, [](const auto& entry) { return entry.second.empty(); });
  }
  DrainLater(std::move(gone));
}

// Draining takes as long as the requests that wait, so a thread does it. The caller has loading_.
void Repository::DrainLater(std::vector<std::shared_ptr<ServedModel>> models) {
  std::erase_if(drains_, [](const std::future<void>& drain) {
    return drain.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
  if (models.empty()) return;
  try {
    drains_.push_back(
        std::async(std::launch::async, [models = std::move(models)]() mutable { models.clear(); }));
  } catch (const std::exception&) {  // no thread: they have been drained here
  }
}

void Repository::Watch(double seconds) {
  watcher_ = std::thread([this, seconds] {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::chrono::duration<double> pause(seconds);
    while (!stop_.wait_for(lock, pause, [&] { return stopping_.load(); })) {
      lock.unlock();
      try {
        Refresh();
      } catch (const std::exception& error) {
        LogFailure(error.what());
      } catch (...) {
        LogFailure("an exception of an unknown type");
      }
      lock.lock();
    }
  });
}

void Repository::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  std::map<std::string, Versions> models;
  std::vector<std::future<void>> drains;
  const std::lock_guard<std::mutex> one(loading_);
  const std::lock_guard<std::mutex> lock(mutex_);
  models.swap(models_);
  drains.swap(drains_);
}

Repository::Versions& Repository::VersionsIn(const std::string& name) {
  const auto found = models_.find(name);
  if (found == models_.end()) throw NoModel(name);
  return found->second;
}

void Repository::Load(const std::string& name) {
  const std::lock_guard<std::mutex> one(loading_);
  if (stopping_) throw HttpError(503, "the server is stopping");
  const FoundModels found = FindModels(files_, directories_);
  const auto versions = found.models.find(name);
  if (versions == found.models.end()) throw NoModel(name);
  std::string problems;
  for (const auto& [number, place] : versions->second) {
    if (stopping_) throw HttpError(503, "the server is stopping");
    const std::string reason = LoadVersion(name, number, place, true);
    if (!reason.empty())
      problems += fmt::format("{}version {}: {}", problems.empty() ? "" : "; ", number, reason);
  }
  if (!problems.empty()) throw HttpError(400, problems);
}

void Repository::Unload(const std::string& name) {
  const std::lock_guard<std::mutex> one(loading_);
  std::vector<std::shared_ptr<ServedModel>> gone;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [number, version] : VersionsIn(name)) {
      if (version.model) gone.push_back(std::move(version.model));
      version.model = nullptr;
      version.reason = "unloaded";
      version.unloaded = true;
    }
  }
  DrainLater(std::move(gone));
}

std::shared_ptr<ServedModel> Repository::Find(const std::string& name,
                                              const std::string& version) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) throw NoModel(name);
  const Versions& versions = found->second;
  if (version.empty()) {
    for (auto it = versions.rbegin(); it != versions.rend(); ++it)
      if (it->second.model) return it->second.model;
    throw HttpError(503, fmt::format("the model {} is not ready: {}", Quote(name),
                                     versions.rbegin()->second.reason));
  }
  int64_t number = 0;
  const auto at = IsNumber(version, &number) ? versions.find(number) : versions.end();
  if (at == versions.end() || version != std::to_string(number)) {
    throw HttpError(404,
                    fmt::format("the model {} has no version {}", Quote(name), Quote(version, 40)));
  }
  if (!at->second.model) {
    throw HttpError(503, fmt::format("version {} of the model {} is not ready: {}", version,
                                     Quote(name), at->second.reason));
  }
  return at->second.model;
}

std::vector<std::string> Repository::VersionsOf(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> ready;
  const auto found = models_.find(name);
  if (found == models_.end()) return ready;
  for (const auto& [number, version] : found->second)
    if (version.model) ready.push_back(std::to_string(number));
  return ready;
}

std::vector<ModelState> Repository::Index() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<ModelState> states;
  for (const auto& [name, versions] : models_) {
    for (const auto& [number, version] : versions) {
      states.push_back({name, std::to_string(number), version.model != nullptr, version.reason,
                        version.unloaded});
    }
  }
  return states;
}

bool Repository::AllReady() const {
  const std::vector<ModelState> states = Index();
  return std::all_of(states.begin(), states.end(),
                     [](const ModelState& state) { return state.ready || state.unloaded; });
}

}  // namespace coracle::serve
