// Targets that read data: tables, pictures, texts, databases.

#include <coracle/test/fuzz/any_program.h>
#include <coracle/test/fuzz/memory_file.h>
#include <coracle/test/fuzz/small_limits.h>
#include <coracle/test/fuzz/targets.h>
#include <coracle/tools/tensor_csv.h>
#include <coracle/train/data/byte_pairs.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/database.h>
#include <coracle/train/data/picture.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace coracle {
namespace {

// Removes the first byte and returns it; 0 if there is none.
uint8_t FirstByte(std::string_view* bytes) {
  if (bytes->empty()) return 0;
  const auto byte = static_cast<uint8_t>((*bytes)[0]);
  bytes->remove_prefix(1);
  return byte;
}

// Reads the first rows and the last one, each by itself; the others may be millions.
void ReadRows(const DataSource& source) {
  std::vector<Tensor> out;
  for (const DataColumn& column : source.columns()) {
    Require(column.shape.numel() >= 0, "a column has an unknown size");
    std::vector<int64_t> shape = column.shape.ToVector();
    shape.insert(shape.begin(), 1);
    out.emplace_back(column.dtype, column.sequences ? Shape{0} : Shape(shape));
  }
  const int64_t rows = std::min<int64_t>(source.size(), 20);
  for (int64_t row = 0; row < rows; ++row) source.Get(std::vector<int64_t>{row}, out);
  if (source.size() > 0) source.Get(std::vector<int64_t>{source.size() - 1}, out);
  Require(!source.Describe().empty() && !source.Place(0).empty(), "a source has no name");
}

// The columns that a file of a few cells may be said to have.
std::vector<CsvColumn> CsvColumns(uint8_t kind) {
  CsvColumn column;
  column.name = "0";
  switch (kind % 6) {
    case 1:
      column.categories = {"a", "b", "c"};
      break;
    case 2:
      column.categories = {"a", "b"};
      column.ids = "id";
      break;
    case 3:
      column.sequence = "steps";
      break;
    case 4:
      column.words.emplace();
      column.words->lower = true;
      column.length = 3;
      break;
    case 5:
      column.characters.emplace();
      column.sequence = "letters";
      break;
    default:
      return {};
  }
  return {column};
}

// Each option depends on some bits of the two bytes.
CsvOptions CsvOptionsOf(uint8_t a, uint8_t b) {
  CsvOptions options;
  options.file = "input";
  options.header = a & 1;
  options.delimiter = (a & 2) != 0 ? ';' : ',';
  options.label_kind = static_cast<CsvLabel>((a >> 2) % 3);
  if (options.label_kind == CsvLabel::kClass) options.classes = {"a", "b"};
  if ((a & 16) != 0) options.fill = 0.5F;
  options.standardize = (a & 32) != 0;
  options.standardize_label = (a & 64) != 0 && options.label_kind == CsvLabel::kReal;
  if ((a & 128) != 0) options.skip = {"1"};
  options.columns = CsvColumns(b);
  if (options.header && !options.columns.empty()) options.columns[0].name = "x";
  return options;
}

// Tensors that were read from a table are read from what is written of them.
void UseTensorCsv(std::string_view text) {
  const NamedTensors tensors = tools::ParseTensorCsv(text, "input", {"texts"});
  const std::string written = tools::TensorCsv(tensors);
  Require(tools::TensorCsv(tools::ParseTensorCsv(written, "again", {"texts"})) == written,
          "a second reading differs");
}

// A source of two images, which are changed by the mean image in a file of Caffe.
void UseMeanImage(std::string_view bytes) {
  const MemoryFile file(bytes);
  MemoryColumn images;
  images.name = "data";
  images.rows = Tensor::Zeros(DType::kFloat32, {2, 1, 2, 2});
  images.shape = {1, 2, 2};
  TransformOptions transform;
  transform.mean_file = file.path();
  ReadRows(*MakeTransformed(MakeMemorySource({images}, "images"), transform));
}

// Merges, the tokens as JSON, and a text, with a zero byte between each two. The tokens of the text
// spell it again.
void UseBytePairs(std::string_view bytes) {
  const size_t first = std::min(bytes.find('\0'), bytes.size());
  const std::string_view rest = bytes.substr(std::min(first + 1, bytes.size()));
  const size_t second = std::min(rest.find('\0'), rest.size());
  const std::string_view text = rest.substr(std::min(second + 1, rest.size()));
  const MemoryFile merges(bytes.substr(0, first)), tokens(rest.substr(0, second));
  const BytePairs pairs = BytePairs::Read(merges.path(), tokens.path());
  std::string spelled, expected;
  for (const int64_t id : pairs.Encode(text)) spelled += pairs.tokens()[static_cast<size_t>(id)];
  for (const char c : text) expected += AlphabetOf(static_cast<unsigned char>(c));
  Require(spelled == expected, "tokens that do not spell the text");
}

}  // namespace

void FuzzCsv(std::string_view bytes) {
  const uint8_t a = FirstByte(&bytes), b = FirstByte(&bytes);
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    if (b == 255) return UseTensorCsv(bytes);
    ReadRows(*ParseCsv(bytes, CsvOptionsOf(a, b)));
  });
}

void FuzzIdx(std::string_view bytes) {
  const uint8_t kind = FirstByte(&bytes);
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    if (kind % 3 == 0) {
      ParseIdx(bytes, "input");
      return;
    }
    const MemoryFile file(bytes);
    if (kind % 3 == 1) {
      ReadIdx(file.path());
      return;
    }
    // As images without labels, then as the labels.
    IdxOptions options;
    options.images = file.path();
    Refusable([&] { ReadRows(*MakeIdxSource(options)); });
    options.labels = file.path();
    ReadRows(*MakeIdxSource(options));
  });
}

void FuzzPicture(std::string_view bytes) {
  static constexpr std::array<int64_t, 3> kChannels = {0, 1, 3};
  const uint8_t kind = FirstByte(&bytes);
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    if (kind == 'm') return UseMeanImage(bytes);
    const Tensor picture = DecodePicture(bytes, "input", kChannels[kind % kChannels.size()]);
    Require(picture.shape().rank() == 3 && picture.dtype() == DType::kUInt8, "no picture");
    const Tensor small = ResizePicture(picture, 3, 5);
    Require(small.shape() == Shape({picture.shape()[0], 3, 5}), "a picture of another size");
  });
}

void FuzzTexts(std::string_view bytes) {
  const uint8_t kind = FirstByte(&bytes);
  const ScopedLimits limits(SmallLimits());
  const MemoryFile file(bytes);
  Refusable([&] {
    if (kind == 'b') {
      UseBytePairs(bytes);
    } else if (kind == 'v') {
      const std::string written = Vocabulary::Read(file.path()).ToJson();
      Require(Vocabulary::Read(MemoryFile(written).path()).ToJson() == written,
              "a vocabulary differs");
    } else if (kind == 'w') {
      const std::string written = WordList::Read(file.path()).ToJson();
      Require(WordList::Read(MemoryFile(written).path()).ToJson() == written, "a list differs");
    } else if (kind == 'u') {
      const Vocabulary vocabulary = Vocabulary::Of(bytes, "input");
      std::string text;
      for (const int64_t id : vocabulary.Encode(bytes, "input")) text += vocabulary.Character(id);
      Require(text == bytes, "a text differs");
    } else {
      TextOptions options;
      options.file = file.path();
      options.sequence_length = 1 + kind % 7;
      options.holdout = 0.25;
      const int64_t streams = 1 + kind % 3;
      ReadRows(*MakeTextSource(options, TextPart::kTrain, streams));
      ReadRows(*MakeTextSource(options, TextPart::kTest, streams));
    }
  });
}

// --- LevelDB ---

namespace {

// The files that the bytes describe: each is a number of a name, a length of two bytes, the lower
// one first, and the contents.
void WriteFiles(std::string_view bytes, const ScratchDirectory& directory) {
  static constexpr std::array<const char*, 6> kNames = {
      "CURRENT", "MANIFEST-000002", "000003.log", "000005.ldb", "000004.sst", "MANIFEST-000004"};
  while (bytes.size() >= 3) {
    const uint8_t name = FirstByte(&bytes), low = FirstByte(&bytes), high = FirstByte(&bytes);
    const size_t size = std::min<size_t>(size_t{high} << 8 | low, bytes.size());
    WriteFileAtomic(directory.File(kNames[name % kNames.size()]), bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
}

}  // namespace

void FuzzLevelDb(std::string_view bytes) {
  static const ScratchDirectory directory;
  directory.Clear();
  WriteFiles(bytes, directory);
  const ScopedLimits limits(SmallLimits());
  Refusable([&] {
    const auto database = OpenLevelDb(directory.path());
    for (int64_t i = 0; i < std::min<int64_t>(database->size(), 20); ++i) database->value(i);
  });
  Refusable([&] {
    ReadRows(
        *MakeDatumSource({.format = DatumOptions::Format::kLevelDb, .file = directory.path()}));
  });
}

}  // namespace coracle
