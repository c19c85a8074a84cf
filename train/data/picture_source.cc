// Pictures in files as training data.

#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/batch_check.h>
#include <coracle/train/data/csv_columns.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/picture.h>
#include <coracle/train/data/standardize.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

namespace coracle {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFile = uint64_t{256} << 20;
constexpr uint64_t kMaxList = uint64_t{1} << 30;
constexpr size_t kMaxFiles = 10'000'000;

struct PictureFile {
  std::string path = {}, name = {};  // the name begins below the directory
  int64_t label = 0;
};

bool LooksLikePicture(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  std::string ending = name.substr(dot + 1);
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  constexpr std::array kEndings = {"png", "jpg", "jpeg", "pgm", "ppm", "pnm"};
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

// The names of a directory's entries, sorted; hidden ones are left out.
std::vector<std::string> NamesIn(const std::string& directory, bool folders) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    const bool fits = folders ? at->is_directory(ignored) : at->is_regular_file(ignored);
    if (fits && name[0] != '.') names.push_back(name);
    if (names.size() > kMaxFiles) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("{}: more than {} files", directory, kMaxFiles));
    }
  }
  if (error) {
    throw Error(
        error == std::errc::no_such_file_or_directory ? ErrorCode::kNotFound : ErrorCode::kIo,
        fmt::format("cannot read the directory {}: {}", Quote(directory, 300), error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

void CheckClasses(const PictureOptions& options, const std::string& where) {
  std::set<std::string> seen;
  for (const std::string& name : options.classes)
    if (!seen.insert(name).second)
      ThrowInvalid(fmt::format("{}: class lists {} twice", where, Quote(name, 40)));
}

int64_t ClassOf(const PictureOptions& options, const std::string& name, const std::string& where) {
  const auto found = std::find(options.classes.begin(), options.classes.end(), name);
  if (found != options.classes.end()) return found - options.classes.begin();
  ThrowInvalid(fmt::format("{}: {} is not one of the classes{}", where, Quote(name, 40),
                           DidYouMean(name, options.classes)));
}

// Lists a folder for each class, and sets the classes if they are not given.
std::vector<PictureFile> FilesOfFolders(PictureOptions* options) {
  const std::vector<std::string> folders = NamesIn(options->directory, true);
  if (options->classes.empty()) options->classes = folders;
  CheckClasses(*options, options->directory);
  std::vector<PictureFile> files;
  for (const std::string& folder : folders) {
    const int64_t label = ClassOf(*options, folder, options->directory);
    const std::string path = (fs::path(options->directory) / folder).string();
    for (const std::string& name : NamesIn(path, false)) {
      if (!LooksLikePicture(name)) continue;
      files.push_back({(fs::path(path) / name).string(), folder + "/" + name, label});
    }
  }
  return files;
}

std::vector<PictureFile> FilesOfList(const PictureOptions& options) {
  CheckClasses(options, options.list);
  std::vector<PictureFile> files;
  int64_t number = 0;
  for (const std::string& whole : Split(ReadFile(options.list, kMaxList), '\n')) {
    ++number;
    const std::string_view line = Trim(whole);
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", options.list, number);
    const size_t cut = line.find_last_of(" \t");
    if (cut == std::string_view::npos)
      ThrowInvalid(fmt::format("{}: no label after the path {}", where, Quote(line)));
    PictureFile file;
    file.name = std::string(Trim(line.substr(0, cut)));
    file.path = (fs::path(options.list).parent_path() / file.name).string();
    const std::string label(line.substr(cut + 1));
    if (!options.classes.empty())
      file.label = ClassOf(options, label, where);
    else if (!ParseWholeNumber(label, &file.label) || file.label < 0)
      ThrowInvalid(
          fmt::format("{}: the label {} is not the number of a class; give the names of "
                      "the classes: class: \"...\"",
                      where, Quote(label, 40)));
    files.push_back(std::move(file));
    if (files.size() > kMaxFiles) {
      throw Error(ErrorCode::kResourceExhausted,
                  fmt::format("{}: more than {} files", options.list, kMaxFiles));
    }
  }
  return files;
}

void CheckOptions(const PictureOptions& o) {
  if (o.directory.empty() == o.list.empty())
    ThrowInvalid("pictures need either a directory or a list");
  if (o.channels != 1 && o.channels != 3)
    ThrowInvalid(fmt::format("pictures have 1 or 3 channels, not {}", o.channels));
  if (o.height == 0 || o.width == 0)
    ThrowInvalid("pictures need height and width, to which all are resized");
  if (o.height < 1 || o.width < 1 || o.height > kMaxPictureSide || o.width > kMaxPictureSide ||
      o.height * o.width > kMaxPicturePixels)
    ThrowInvalid(fmt::format("pictures cannot have {} x {} pixels", o.width, o.height));
  if (o.cache_mb < 0) ThrowInvalid("cache_mb must not be negative");
  if (o.decode_mb < 1 || o.decode_mb > 1 << 24)
    ThrowInvalid(fmt::format("decode_mb must lie in [1, 2^24], got {}", o.decode_mb));
  for (const auto& values : {o.mean, o.scale}) {
    if (values.size() <= 1 || static_cast<int64_t>(values.size()) == o.channels) continue;
    ThrowInvalid(
        fmt::format("mean and scale of pictures are one number or one for each of {} "
                    "channels, got {}",
                    o.channels, values.size()));
  }
}

class PictureSource : public DataSource {
 public:
  PictureSource(const PictureOptions& options, const RowChoice& fit_rows) : options_(options) {
    CheckOptions(options);
    where_ = options_.list.empty() ? options_.directory : options_.list;
    files_ = options_.list.empty() ? FilesOfFolders(&options_) : FilesOfList(options_);
    cache_.resize(files_.size());
    room_ = static_cast<uint64_t>(options_.cache_mb) << 20;
    if (options_.bad_files == BadFiles::kSkip) SkipBadFiles();
    if (files_.empty())
      ThrowInvalid(where_ + ": no pictures (.png, .jpg, .jpeg, .pgm, .ppm, .pnm)");
    columns_ = {{"image", DType::kFloat32, {options_.channels, options_.height, options_.width}},
                {"label", DType::kInt64, {1}}};
    if (options_.standardize) Standardize(ChosenRows(fit_rows, size()));
    options_.standardize = false;
    FillTables();
    FittedOptions fitted;
    fitted.pictures = options_;
    fitted_ = std::make_shared<const FittedOptions>(std::move(fitted));
  }

  const std::vector<DataColumn>& columns() const override { return columns_; }
  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  std::shared_ptr<const FittedOptions> fitted() const override { return fitted_; }
  std::string Place(int64_t row) const override {
    return row < 0 || row >= size() ? DataSource::Place(row)
                                    : files_[static_cast<size_t>(row)].path;
  }
  std::vector<int64_t> Labels() const override {
    std::vector<int64_t> labels;
    for (const PictureFile& file : files_) labels.push_back(file.label);
    return labels;
  }
  std::string Describe() const override {
    uLong crc = crc32(0, nullptr, 0);
    for (const PictureFile& file : files_) {
      const std::string line = fmt::format("{} {}\n", file.name, file.label);
      crc = crc32_z(crc, reinterpret_cast<const Bytef*>(line.data()), line.size());
    }
    const std::string name = fs::path(where_).lexically_normal().filename().string();
    return fmt::format("pictures {} ({} files, crc {:08x})", Quote(name, 300), files_.size(), crc);
  }

  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    CheckBatch(*this, rows, out);
    const int64_t plane = options_.height * options_.width;
    float* to = out[0].data<float>();
    for (size_t i = 0; i < rows.size(); ++i) {
      const Tensor picture = PictureOf(static_cast<size_t>(rows[i]));
      const uint8_t* from = picture.data<uint8_t>();
      for (int64_t c = 0; c < options_.channels; ++c) {
        const std::array<float, 256>& table = tables_[static_cast<size_t>(c)];
        for (int64_t k = 0; k < plane; ++k) *to++ = table[*from++];
      }
      out[1].data<int64_t>()[i] = files_[static_cast<size_t>(rows[i])].label;
    }
  }

 private:
  Tensor Read(size_t row) const {
    const std::string& path = files_[row].path;
    PictureForm form{options_.channels, options_.height, options_.width, options_.channel_order};
    form.most_bytes = static_cast<uint64_t>(options_.decode_mb) << 20;
    return DecodePicture(ReadFile(path, kMaxFile), path, form);
  }

  // The bytes of a row, decoded now or kept from an earlier call.
  Tensor PictureOf(size_t row) const {
    {
      const std::lock_guard lock(mutex_);
      if (cache_[row]) return *cache_[row];
    }
    auto picture = std::make_shared<const Tensor>(Read(row));
    const std::lock_guard lock(mutex_);
    if (!cache_[row] && picture->nbytes() <= room_) {
      room_ -= picture->nbytes();
      cache_[row] = picture;
    }
    return *picture;
  }

  void SkipBadFiles() {
    std::vector<PictureFile> good;
    std::vector<std::shared_ptr<const Tensor>> kept;
    std::string first;
    for (size_t row = 0; row < files_.size(); ++row) {
      try {
        PictureOf(row);
        good.push_back(files_[row]);
        kept.push_back(cache_[row]);
      } catch (const Error& e) {
        if (first.empty()) first = e.message();
      }
    }
    if (!first.empty()) {
      LogMessage(MessageLevel::kWarning,
                 fmt::format("{}: {} of {} pictures are left out; the first: {}", where_,
                             files_.size() - good.size(), files_.size(), first));
    }
    files_ = std::move(good);
    cache_ = std::move(kept);
  }

  // The sums are exact, and so is the variance: (n * sum of squares - sum^2) / n^2.
  void Standardize(const std::vector<int64_t>& rows) {
    const auto channels = static_cast<size_t>(options_.channels);
    const int64_t plane = options_.height * options_.width;
    std::vector<uint64_t> sums(channels, 0), squares(channels, 0);
    for (const int64_t row : rows) {
      const Tensor picture = PictureOf(static_cast<size_t>(row));
      const uint8_t* value = picture.data<uint8_t>();
      for (size_t c = 0; c < channels; ++c) {
        for (int64_t k = 0; k < plane; ++k, ++value) {
          sums[c] += *value;
          squares[c] += uint64_t{*value} * *value;
        }
      }
    }
    options_.mean.clear();
    options_.scale.clear();
    const uint64_t n = rows.size() * static_cast<uint64_t>(plane);
    for (size_t c = 0; c < channels && n > 0; ++c) {
      const auto spread = static_cast<unsigned __int128>(n) * squares[c] -
                          static_cast<unsigned __int128>(sums[c]) * sums[c];
      const double deviation = std::sqrt(static_cast<double>(spread)) / static_cast<double>(n);
      const double mean = static_cast<double>(sums[c]) / static_cast<double>(n);
      const ValueScale scale = ScaleFor(mean, deviation, where_, fmt::format("channel {}", c));
      options_.mean.push_back(scale.mean);
      options_.scale.push_back(scale.scale);
    }
  }

  void FillTables() {
    const auto value_of = [](const std::vector<float>& values, size_t c, float usual) {
      return values.empty() ? usual : values[values.size() == 1 ? 0 : c];
    };
    tables_.resize(static_cast<size_t>(options_.channels));
    for (size_t c = 0; c < tables_.size(); ++c) {
      const float mean = value_of(options_.mean, c, 0);
      const float scale = value_of(options_.scale, c, 1.0f / 255.0f);
      for (size_t v = 0; v < 256; ++v) tables_[c][v] = (static_cast<float>(v) - mean) * scale;
    }
  }

  PictureOptions options_;
  std::string where_;  // the directory or the list
  std::vector<PictureFile> files_;
  std::vector<DataColumn> columns_;
  std::vector<std::array<float, 256>> tables_;  // the value of each byte, by channels
  std::shared_ptr<const FittedOptions> fitted_;

  mutable std::mutex mutex_;
  // Guarded by mutex_ after the constructor.
  mutable std::vector<std::shared_ptr<const Tensor>> cache_;
  mutable uint64_t room_ = 0;  // bytes that the cache may still take
};

}  // namespace

DataSourcePtr MakePictureSource(const PictureOptions& options, const RowChoice& fit_rows) {
  return std::make_shared<PictureSource>(options, fit_rows);
}

}  // namespace coracle
