#pragma once
// Data that tests may use when it is there: models and data sets that are not part of the sources.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace coracle {

// The directory of the data: $CORACLE_DATA, or shared/data next to the sources; "" if there
// is none.
inline std::string TestDataDirectory() {
  namespace fs = std::filesystem;
  std::error_code error;
  if (const char* data = std::getenv("CORACLE_DATA"))
    return fs::is_directory(data, error) ? data : "";
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) return "";
  fs::path data = fs::path(sources) / ".." / "shared" / "data";
  return fs::is_directory(data, error) ? data.string() : "";
}

// A directory of the test's own, removed with its contents at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "coracle_test_XXXXXX").string();
    path_ = ::mkdtemp(name.data()) ? name : "";
  }
  ~TemporaryDirectory() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace coracle
