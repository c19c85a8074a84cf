#include <coracle/framework/base/text.h>
#include <coracle/serve/repository.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <set>

namespace coracle::serve {
namespace {

namespace fs = std::filesystem;

bool IsNumber(const std::string& text, int64_t* number) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) &&
         ParseInt64(text, number);
}

bool IsModelFile(const fs::path& path) {
  return path.extension() == ".onnx" || path.extension() == ".pdmodel";
}

// Changes when a file of the model does.
std::string StampOf(const std::string& path) {
  std::string stamp;
  std::error_code error;
  const auto add = [&](const fs::path& file) {
    const auto time = fs::last_write_time(file, error).time_since_epoch().count();
    stamp += fmt::format("{} {} {};", file.string(), time, fs::file_size(file, error));
  };
  if (fs::is_directory(path, error)) {
    std::set<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path, error))
      if (entry.is_regular_file(error)) files.insert(entry.path());
    for (const fs::path& file : files) add(file);
    return stamp;
  }
  const std::string prefix = fs::path(path).replace_extension().string();
  for (const char* ending : {".pdmodel", ".pdiparams", ".onnx", ".json"})
    if (fs::exists(prefix + ending, error)) add(prefix + ending);
  if (stamp.empty() && fs::exists(path, error)) add(path);
  return stamp;
}

}  // namespace

bool IsModelName(const std::string& name) {
  return !name.empty() && name.size() <= 128 && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return c < 128 && (std::isalnum(c) || c == '_' || c == '-' || c == '.');
         });
}

Repository::Repository(const ServeOptions& options, std::shared_ptr<MetricsTable> metrics)
    : options_(options), metrics_(std::move(metrics)) {}

Repository::~Repository() { Stop(); }

void Repository::AddModel(const std::string& name, const std::string& path) {
  if (!IsModelName(name)) {
    ThrowInvalid(fmt::format("{} cannot be the name of a model: use letters, digits, _, - and .",
                             Quote(name)));
  }
  if (!files_.emplace(name, path).second)
    ThrowInvalid(fmt::format("two models have the name {}; use NAME=PATH", Quote(name)));
}

void Repository::AddDirectory(const std::string& path) { directories_.push_back(path); }

// The paths of all versions that are there now.
std::map<std::string, std::map<int64_t, std::string>> Repository::FindPaths() const {
  std::map<std::string, std::map<int64_t, std::string>> found;
  for (const auto& [name, path] : files_) found[name][1] = path;
  for (const std::string& directory : directories_) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const fs::path& path = entry.path();
      const bool folder = entry.is_directory(error);
      const std::string name = folder ? path.filename().string() : path.stem().string();
      if (!IsModelName(name) || files_.count(name) || (!folder && !IsModelFile(path))) continue;
      if (!folder) {
        found[name][1] = path.string();
        continue;
      }
      std::map<int64_t, std::string> versions;
      for (const auto& inner : fs::directory_iterator(path, error)) {
        int64_t number = 0;
        if (inner.is_directory(error) && IsNumber(inner.path().filename().string(), &number))
          versions[number] = inner.path().string();
      }
      if (versions.empty()) versions[1] = path.string();
      found[name] = versions;
    }
  }
  return found;
}

// Loads the version if it is new, has changed, or has to be loaded again.
void Repository::LoadVersion(const std::string& name, int64_t number, const std::string& path,
                             bool again) {
  const std::string stamp = StampOf(path);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Version& version = models_[name][number];
    if (!again && (version.unloaded || version.stamp == stamp)) return;
    version.path = path;
    version.stamp = stamp;
    version.unloaded = false;
  }
  std::shared_ptr<ServedModel> model;
  std::string reason;
  try {
    std::string file = path;
    std::error_code error;
    if (fs::is_directory(path, error)) {
      for (const auto& entry : fs::directory_iterator(path, error))
        if (entry.path().extension() == ".onnx") file = entry.path().string();
    }
    const std::string version = std::to_string(number);
    model =
        std::make_shared<ServedModel>(file, name, version, options_, metrics_->Of(name, version));
  } catch (const Error& error) {
    reason = error.message();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  std::shared_ptr<ServedModel> before;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Version& version = models_[name][number];
    version.reason = reason;
    // A file that cannot be read does not take away the model that serves.
    if (model) before = std::exchange(version.model, model);
  }
  if (!reason.empty()) {
    LogMessage(MessageLevel::kError, fmt::format("model {}, version {}: {}", name, number, reason));
  } else {
    LogMessage(MessageLevel::kInfo, fmt::format("model {}, version {} is ready", name, number));
  }
  // `before` drains here, after the new one serves.
}

void Repository::Refresh() {
  const std::lock_guard<std::mutex> one(loading_);
  const auto found = FindPaths();
  for (const auto& [name, versions] : found)
    for (const auto& [number, path] : versions) LoadVersion(name, number, path, false);
  std::vector<std::shared_ptr<ServedModel>> gone;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [name, versions] : models_) {
    const auto there = found.find(name);
    std::erase_if(versions, [&](auto& entry) {
      if (there != found.end() && there->second.count(entry.first)) return false;
      gone.push_back(std::move(entry.second.model));
      return true;
    });
  }
  std::erase_if(models_, [](const auto& entry) { return entry.second.empty(); });
  DrainLater(std::move(gone));
}

// Draining takes as long as the requests that wait, so a thread does it, without the lock.
void Repository::DrainLater(std::vector<std::shared_ptr<ServedModel>> models) {
  if (!models.empty())
    drains_.push_back(
        std::async(std::launch::async, [models = std::move(models)]() mutable { models.clear(); }));
  std::erase_if(drains_, [](const std::future<void>& drain) {
    return drain.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  });
}

void Repository::Watch(double seconds) {
  watcher_ = std::thread([this, seconds] {
    std::unique_lock<std::mutex> lock(mutex_);
    while (
        !stop_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return stopping_; })) {
      lock.unlock();
      Refresh();
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
  const std::lock_guard<std::mutex> lock(mutex_);
  models.swap(models_);
  drains.swap(drains_);
}

Repository::Versions& Repository::VersionsIn(const std::string& name) {
  const auto found = models_.find(name);
  if (found == models_.end())
    throw HttpError(404, fmt::format("there is no model {}", Quote(name)));
  return found->second;
}

void Repository::Load(const std::string& name) {
  const std::lock_guard<std::mutex> one(loading_);
  const auto found = FindPaths();
  const auto versions = found.find(name);
  if (versions == found.end())
    throw HttpError(404, fmt::format("there is no model {}", Quote(name)));
  for (const auto& [number, path] : versions->second) LoadVersion(name, number, path, true);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, version] : VersionsIn(name)) {
    if (!version.reason.empty())
      throw HttpError(400, fmt::format("version {}: {}", number, version.reason));
  }
}

void Repository::Unload(const std::string& name) {
  const std::lock_guard<std::mutex> one(loading_);
  std::vector<std::shared_ptr<ServedModel>> gone;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [number, version] : VersionsIn(name)) {
    gone.push_back(std::move(version.model));
    version.model = nullptr;
    version.reason = "unloaded";
    version.unloaded = true;
  }
  DrainLater(std::move(gone));
}

std::shared_ptr<ServedModel> Repository::Find(const std::string& name,
                                              const std::string& version) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end())
    throw HttpError(404, fmt::format("there is no model {}", Quote(name)));
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
    for (const auto& [number, version] : versions)
      states.push_back({name, std::to_string(number), version.model != nullptr, version.reason});
  }
  return states;
}

bool Repository::AllReady() const {
  const std::vector<ModelState> states = Index();
  return std::all_of(states.begin(), states.end(), [](const ModelState& state) {
    return state.ready || state.reason == "unloaded";
  });
}

}  // namespace coracle::serve
