#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace coracle {
namespace {

MemoryColumn MakeColumn(const std::string& file, const std::string& name, const Tensor& tensor) {
  if (tensor.shape().rank() == 0) {
    ThrowInvalid(fmt::format("{}: {} is a scalar; axis 0 must count the rows", file, Quote(name)));
  }
  MemoryColumn column;
  column.name = name;
  column.rows = tensor;
  for (int i = 1; i < tensor.shape().rank(); ++i) column.shape.Append(tensor.shape()[i]);
  if (tensor.shape().rank() == 1) column.shape.Append(1);
  if (tensor.lod().size() > 1) {
    ThrowInvalid(fmt::format("{}: {} has nested sequences, {} levels; a row can be one sequence",
                             file, Quote(name), tensor.lod().size()));
  }
  if (!tensor.lod().empty()) column.offsets = tensor.lod()[0];
  return column;
}

}  // namespace

DataSourcePtr MakeNpzSource(const NpzOptions& options) {
  const NamedTensors arrays = ReadTensorArchive(options.file);
  std::vector<std::string> keys;
  for (const auto& array : arrays) keys.push_back(array.first);
  std::vector<NpzColumn> wanted = options.columns;
  if (wanted.empty()) {
    for (const std::string& key : keys) wanted.push_back({key, ""});
  }
  std::vector<MemoryColumn> columns;
  for (const NpzColumn& want : wanted) {
    auto found = std::find(keys.begin(), keys.end(), want.key);
    if (found == keys.end()) {
      throw Error(ErrorCode::kNotFound, fmt::format("{}: no array {}{}", options.file,
                                                    Quote(want.key), DidYouMean(want.key, keys)));
    }
    const Tensor& tensor = arrays[static_cast<size_t>(found - keys.begin())].second;
    columns.push_back(MakeColumn(options.file, want.name.empty() ? want.key : want.name, tensor));
    if (!columns.back().offsets.empty()) columns.push_back(LengthsOf(columns.back()));
  }
  return MakeMemorySource(
      std::move(columns),
      fmt::format("npz {}", Quote(std::filesystem::path(options.file).filename().string(), 300)));
}

}  // namespace coracle
