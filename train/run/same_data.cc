#include <coracle/framework/tensor/fingerprint.h>
#include <coracle/train/run/same_data.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace coracle {

void RequireSameData(const Ranks& ranks, const DataSourcePtr& data, const std::string& what) {
  if (!ranks.several()) return;
  constexpr int64_t kSample = 256;
  std::string sample;
  if (data->size() > 0) {
    BatchReader reader(
        data, {.batch_size = std::min(kSample, data->size()), .shuffle = true, .prefetch = false});
    for (const Tensor& column : reader.Next())
      sample += fmt::format("{:016x}", Fingerprint(column.raw(), column.nbytes()));
  }
  const std::string shown = fmt::format("{}, {} rows", data->Describe(), data->size());
  ranks.RequireSame(what, shown, "all ranks must read the same files");
  ranks.RequireSame("rows of the " + what, shown + ", fingerprint " + sample,
                    "all ranks must read the same files");
}

SavedSnapshot ReadSameSnapshot(const Ranks& ranks, const std::string& path) {
  if (!ranks.several()) return ReadSnapshot(path);
  std::optional<SavedSnapshot> saved;
  std::optional<Error> error;
  try {
    saved = ReadSnapshot(path);
  } catch (const Error& e) {
    error = e;
  }
  ranks.RequireSame(
      "snapshot " + path, saved ? fmt::format("step {}", saved->state.step) : "not to be read",
      "all ranks must see the directory " + std::filesystem::path(path).parent_path().string());
  if (error) throw *error;
  return std::move(*saved);
}

}  // namespace coracle
