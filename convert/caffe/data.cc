#include <coracle/convert/caffe/data.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace coracle::caffe {
namespace {

namespace fs = std::filesystem;
using proto::caffe::TransformationParameter;

struct KnownSet {
  const char* word;  // in the name of a database
  const char* name;
  int64_t channels, height, width;
};
constexpr KnownSet kKnownSets[] = {{"siamese", "pairs of MNIST's pictures", 2, 28, 28},
                                   {"cifar", "CIFAR", 3, 32, 32},
                                   {"ilsvrc", "ImageNet (ILSVRC)", 3, 256, 256},
                                   {"imagenet", "ImageNet (ILSVRC)", 3, 256, 256},
                                   {"mnist", "MNIST", 1, 28, 28}};

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

int64_t BatchOf(const Layer& layer) {
  const auto& def = layer.def;
  if (def.type() == "Data" || def.type() == "AnnotatedData") return def.data_param().batch_size();
  if (def.type() == "ImageData") return def.image_data_param().batch_size();
  if (def.type() == "HDF5Data") return def.hdf5_data_param().batch_size();
  return def.memory_data_param().batch_size();
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

bool IsDatabase(const std::string& directory) {
  return FileExists(directory + "/data.mdb") || FileExists(directory + "/CURRENT");
}

// Whether there is a file "data_dir/name", packed or not.
bool HasIdx(const std::string& directory, const std::string& name) {
  const std::string path = directory.empty() ? name : directory + "/" + name;
  return FileExists(path) || FileExists(path + ".gz");
}

// Whether the fields of `idx` can express transform_param: scale and a single mean_value.
bool FitsIdx(const TransformationParameter& p) {
  return p.crop_size() == 0 && !p.mirror() && !p.has_mean_file() && p.mean_value_size() <= 1;
}

std::string TransformText(const Layer& layer, const DataPlaces& places, std::string* note) {
  const TransformationParameter& p = layer.def.transform_param();
  Entry entry("");
  if (p.has_mean_file() && p.mean_value_size() > 0)
    layer.Fail({"transform_param"}, "mean_file and mean_value exclude each other");
  if (p.force_color() || p.force_gray())
    layer.Fail({"transform_param"},
               "force_color and force_gray apply to encoded pictures, which are not read");
  if (!layer.unknown.empty()) ThrowInvalid(layer.unknown.front());
  if (p.resize_param_size() > 0 || p.crop_h() > 0 || p.crop_w() > 0)
    layer.Fail({"transform_param"},
               "pictures are not resized here, nor cut to crop_h by crop_w: write the database "
               "with pictures of the size that the net takes, and leave the fields out");
  if (p.has_mean_file()) {
    std::string found = FindFile(p.mean_file(), places.solver);
    if (found.empty() && !places.data_dir.empty()) {
      found = places.data_dir + "/" + fs::path(p.mean_file()).filename().string();
      if (!FileExists(found)) found = "";
    }
    entry.Text("mean_file", found.empty() ? p.mean_file() : Absolute(found));
    if (found.empty())
      *note = fmt::format("the mean image {} does not exist here", Quote(p.mean_file(), 300));
  }
  for (const float mean : p.mean_value()) entry.Float("mean_value", mean);
  if (p.crop_size() > 0) entry.Int("crop_size", p.crop_size());
  if (p.mirror()) entry.Bool("mirror", true);
  if (p.scale() != 1) entry.Float("scale", p.scale());
  const std::string text = entry.Body();
  return text.empty() ? "" : " transform { " + text + " }";
}

// Uses images and labels in MNIST's format.
void UseIdx(const Layer& layer, const std::string& images, const std::string& labels,
            const DataPlaces& places, JobData* data) {
  const TransformationParameter& p = layer.def.transform_param();
  Entry idx("");
  idx.Text("images", images).Text("labels", labels);
  if (FitsIdx(p)) {
    if (p.mean_value_size() > 0) idx.Float("mean", p.mean_value(0));
    idx.Float("scale", p.scale());
    data->text = "idx { " + idx.Body() + " }";
  } else {
    idx.Float("scale", 1);
    data->text = "idx { " + idx.Body() + " }" + TransformText(layer, places, &data->note);
  }
  data->bind["image"] = layer.def.top(0);
  if (layer.def.top_size() > 1) data->bind["label"] = layer.def.top(1);
}

// The dims of the images in an existing source, after cropping.
Dims DimsIn(const DataSource& source, const std::string& name, const Layer& layer) {
  const int column = source.FindColumn(name);
  if (column < 0) return {};
  Dims dims = source.columns()[static_cast<size_t>(column)].shape.ToVector();
  const int64_t crop = layer.def.transform_param().crop_size();
  if (crop > 0 && dims.size() == 3) dims[1] = dims[2] = crop;
  return dims;
}

// Uses a database: an existing directory, or one named in the text together with its format.
void UseDatabase(const Layer& layer, const std::string& directory, const DataPlaces& places,
                 JobData* data) {
  using Format = DatumOptions::Format;
  Format format = layer.def.data_param().backend() == proto::caffe::DataParameter::LMDB
                      ? Format::kLmdb
                      : Format::kLevelDb;
  if (IsDatabase(directory)) {
    format = FileExists(directory + "/data.mdb") ? Format::kLmdb : Format::kLevelDb;
    const DataSourcePtr source = MakeDatumSource({format, directory});
    data->rows = source->size();
    data->dims = DimsIn(*source, "data", layer);
  }
  data->text = fmt::format("{} {{ file: {} }}{}", format == Format::kLmdb ? "lmdb" : "leveldb",
                           Quoted(directory), TransformText(layer, places, &data->note));
  data->bind["data"] = layer.def.top(0);
  if (layer.def.top_size() > 1) data->bind["label"] = layer.def.top(1);
}

// Uses arrays named like the tops; `file` is relative to data_dir.
void UseNpz(const Layer& layer, const std::string& file, const DataPlaces& places, JobData* data) {
  const std::string path = FileExists(file) ? file : places.data_dir + "/" + file;
  const DataSourcePtr source = MakeNpzSource({path});
  data->rows = source->size();
  data->dims = DimsIn(*source, layer.def.top(0), layer);
  data->text = "npz { file: " + Quoted(file) + " }" + TransformText(layer, places, &data->note);
}

// Uses a file given by the user.
void UseFile(const Layer& layer, const std::string& file, const DataPlaces& places, JobData* data) {
  if (!FileExists(file))
    throw Error(ErrorCode::kNotFound,
                fmt::format("--data: file {} does not exist", Quote(file, 300)));
  const std::string path = Absolute(file);
  if (IsDatabase(path)) return UseDatabase(layer, path, places, data);
  if (path.ends_with(".npz")) return UseNpz(layer, path, places, data);
  const size_t images = path.rfind("images-idx3");
  if (images != std::string::npos) {
    std::string labels = path;
    labels.replace(images, 11, "labels-idx1");
    return UseIdx(layer, path, labels, places, data);
  }
  ThrowInvalid(fmt::format(
      "--data: {} is neither an .npz, nor a database's directory, nor MNIST's *images-idx3*",
      Quote(file, 300)));
}

bool UseDataDir(const Layer& layer, bool train, const DataPlaces& places, JobData* data) {
  const std::string& directory = places.data_dir;
  if (directory.empty()) return false;
  const std::string prefix = train ? "train" : "t10k";
  const std::string images = prefix + "-images-idx3-ubyte", labels = prefix + "-labels-idx1-ubyte";
  if (HasIdx(directory, images) && HasIdx(directory, labels)) {
    UseIdx(layer, images + ".gz", labels + ".gz", places, data);
    return true;
  }
  const std::string base = fs::path(SourceOf(layer)).filename().string();
  for (const std::string& name : {base, std::string(train ? "train_lmdb" : "test_lmdb")}) {
    if (name.empty() || !IsDatabase(directory + "/" + name)) continue;
    UseDatabase(layer, Absolute(directory + "/" + name), places, data);
    return true;
  }
  for (const std::string& name : {base + ".npz", std::string(train ? "train.npz" : "test.npz")}) {
    if (!FileExists(directory + "/" + name)) continue;
    UseNpz(layer, name, places, data);
    return true;
  }
  return false;
}

}  // namespace

std::string FindFile(const std::string& path, const std::string& text) {
  if (path.empty()) return "";
  if (FileExists(path) || fs::path(path).is_absolute()) return FileExists(path) ? path : "";
  std::error_code error;
  const fs::path start = fs::absolute(text, error).parent_path();
  for (fs::path at = start; !error; at = at.parent_path()) {
    const std::string found = (at / path).lexically_normal().string();
    if (FileExists(found)) return found;
    if (at == at.parent_path()) break;
  }
  // Copies of the database may be next to each other: FILE, or DIRECTORY_FILE.
  const fs::path given = path;
  for (const std::string& name :
       {given.filename().string(),
        given.parent_path().filename().string() + "_" + given.filename().string()}) {
    const std::string found = (start / name).string();
    if (FileExists(found)) return found;
  }
  return "";
}

std::string SourceOf(const Layer& layer) {
  const auto& def = layer.def;
  if (def.type() == "Data" || def.type() == "AnnotatedData") return def.data_param().source();
  if (def.type() == "ImageData") return def.image_data_param().source();
  if (def.type() == "HDF5Data") return def.hdf5_data_param().source();
  return "";
}

Dims ImageDims(const Layer& layer, std::string* note) {
  const auto& images = layer.def.image_data_param();
  const std::string source = SourceOf(layer), name = Lower(source);
  using Resize = proto::caffe::ResizeParameter;
  const TransformationParameter& transform = layer.def.transform_param();
  const int64_t crop = transform.crop_size();
  const int64_t crop_h = transform.crop_h(), crop_w = transform.crop_w();
  const std::string top = layer.def.top(0);
  Dims dims;
  for (const KnownSet& known : kKnownSets) {
    if (name.find(known.word) == std::string::npos) continue;
    dims = {known.channels, known.height, known.width};
    *note = fmt::format("{}: its size is in a database that is not here; taken as that of {}, {}{}",
                        Quote(top), known.name, ToText(dims),
                        crop > 0 ? fmt::format(", cropped to {0} x {0}", crop)
                                 : fmt::format("; --shape={}:3x32x32 would say another", top));
    break;
  }
  if (layer.def.type() == "ImageData" && images.new_height() > 0 && images.new_width() > 0)
    dims = {images.is_color() ? 3 : 1, images.new_height(), images.new_width()};
  // With several, the pictures have several sizes.
  if (transform.resize_param_size() == 1) {
    const Resize& resize = transform.resize_param(0);
    if (resize.height() > 0 && resize.width() > 0 &&
        resize.resize_mode() != Resize::FIT_SMALL_SIZE) {
      note->clear();
      dims = {3, resize.height(), resize.width()};
    }
  }
  if (dims.empty() && crop > 0) {
    dims = {3, crop, crop};
    *note =
        fmt::format("{}: images of 3 channels are assumed; --shape={}:1x{}x{} would say another",
                    Quote(top), PrintableLine(top), crop, crop);
  }
  if (dims.empty()) return dims;
  if (crop > 0) dims[1] = dims[2] = crop;
  if (crop_h > 0) dims[1] = crop_h;
  if (crop_w > 0) dims[2] = crop_w;
  return dims;
}

JobData FindData(const Layer& layer, bool train, const DataPlaces& places) {
  JobData data;
  data.batch_size = BatchOf(layer);
  data.shuffle = (layer.def.type() == "ImageData" && layer.def.image_data_param().shuffle()) ||
                 (layer.def.type() == "HDF5Data" && layer.def.hdf5_data_param().shuffle());
  const auto given = places.files.find(train ? "train" : "test");
  if (given != places.files.end()) {
    UseFile(layer, given->second, places, &data);
    return data;
  }
  const std::string source = SourceOf(layer);
  const std::string found = FindFile(source, places.solver);
  if (!found.empty() && IsDatabase(found)) {
    UseDatabase(layer, Absolute(found), places, &data);
    return data;
  }
  if (UseDataDir(layer, train, places, &data)) return data;
  if (layer.def.type() != "Data") {
    layer.Fail({"type"}, fmt::format("{} is no data source here: write what it reads as arrays "
                                     "into .npz files; {}",
                                     layer.def.type(), kDataAdvice));
  }
  UseDatabase(layer, source, places, &data);
  data.missing = source;
  return data;
}

}  // namespace coracle::caffe
