#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/database.h>
#include <fmt/format.h>

#ifdef CORACLE_LEVELDB
#include <leveldb/db.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <vector>
#endif

namespace coracle {

#ifdef CORACLE_LEVELDB
namespace {

[[noreturn]] void Fail(const std::string& path, const leveldb::Status& status) {
  const std::string text = PrintableLine(status.ToString());
  if (status.IsIOError() && text.find("IO error: lock ") == 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: another process has it open, and LevelDB lets one at a time; make "
                            "an LMDB of it, or give each process a copy",
                            Quote(path, 300)),
                text);
  }
  throw Error(status.IsCorruption() ? ErrorCode::kDataLoss : ErrorCode::kIo,
              fmt::format("{}: LevelDB: {}", Quote(path, 300), text));
}

// One for all that read a directory: the library lets a process open it once.
std::shared_ptr<leveldb::DB> Open(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<leveldb::DB>> opened;
  std::error_code error;
  const std::string key = std::filesystem::weakly_canonical(path, error).string();
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<leveldb::DB> found = opened[key].lock()) return found;
  leveldb::Options options;
  options.paranoid_checks = true;
  leveldb::DB* database = nullptr;
  const leveldb::Status status = leveldb::DB::Open(options, path, &database);
  if (!status.ok()) Fail(path, status);
  std::shared_ptr<leveldb::DB> owner(database);
  opened[key] = owner;
  return owner;
}

class LevelDb : public Database {
 public:
  explicit LevelDb(const std::string& path) : path_(path), database_(Open(path)) {
    leveldb::ReadOptions options = Checked();
    options.fill_cache = false;
    const std::unique_ptr<leveldb::Iterator> row(database_->NewIterator(options));
    for (row->SeekToFirst(); row->Valid(); row->Next()) keys_.push_back(row->key().ToString());
    if (!row->status().ok()) Fail(path, row->status());
  }

  int64_t size() const override { return static_cast<int64_t>(keys_.size()); }
  std::string value(int64_t i) const override {
    std::string value;
    const leveldb::Status status = database_->Get(Checked(), keys_[static_cast<size_t>(i)], &value);
    if (!status.ok()) Fail(path_, status);
    return value;
  }

 private:
  static leveldb::ReadOptions Checked() {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    return options;
  }

  std::string path_;
  std::shared_ptr<leveldb::DB> database_;
  std::vector<std::string> keys_;
};

}  // namespace
#endif

std::unique_ptr<Database> OpenLevelDb(const std::string& path) {
  // The library would make what is not there.
  if (!FileExists(path + "/CURRENT"))
    throw Error(ErrorCode::kNotFound, fmt::format("there is no LevelDB {}", Quote(path, 300)));
#ifdef CORACLE_LEVELDB
  return std::make_unique<LevelDb>(path);
#else
  throw Error(
      ErrorCode::kUnimplemented,
      fmt::format("{}: this build does not read LevelDB: make an LMDB of it, or build where "
                  "libleveldb-dev is installed",
                  Quote(path, 300)));
#endif
}

}  // namespace coracle
