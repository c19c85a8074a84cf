#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/field_places.h>
#include <coracle/train/data/byte_pairs.h>
#include <coracle/train/data/source_fields.h>
#include <coracle/train/job/field_reader.h>
#include <coracle/train/job/preprocess.h>
#include <coracle/train/job/text_errors.h>
#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/stubs/strutil.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

namespace coracle::inline internal {
namespace {

namespace pb = google::protobuf;

constexpr double kMostPixels = 1 << 20;  // of a side of a picture
constexpr uint64_t kMostElements = uint64_t{1} << 28;
constexpr size_t kMaxText = size_t{256} << 20;

Fields<RawColumn> RawColumnFields() {
  using O = RawColumn;
  return Fields<O>("")
      .Message("RawColumn")
      .Inline(&O::column, FieldsOf(CsvColumn()))
      .Add("number", &O::number, "In the files of the job, from 0", kRequired, RangeFrom(0))
      .Add("word", &O::words,
           "The words or characters of a column of text, from number 2 on; the tokens of byte "
           "pairs, from number 0 on")
      .Add("merge", &O::merges, "The merges of byte pairs, in their order")
      .Rule([](O& raw, const FieldPlaces& given) {
        if (given.Has("merge") && !raw.column.byte_pairs)
          given.Fail("merge", "is of byte_pairs, which are not given", 0);
      });
}

void CheckCsv(const RawCsv& csv, const FieldPlaces& given) {
  if (csv.columns.empty()) given.FailHere("csv has no column");
  if (csv.shape.size() >= static_cast<size_t>(Shape::kMaxRank))
    given.Fail("shape", fmt::format("may have at most {} dimensions", Shape::kMaxRank - 1));
  for (size_t i = 0; i < csv.shape.size(); ++i)
    if (csv.shape[i] < 1 || csv.shape[i] > int64_t{1} << 20)
      given.Fail("shape", "must have dimensions from 1 to 2^20", static_cast<int>(i));
  for (size_t i = 0; i < csv.columns.size(); ++i) {
    const RawColumn& column = csv.columns[i];
    if (column.number >= csv.cells)
      given.Child("column", static_cast<int>(i)).Fail("number", "must be below cells");
    if (csv.header == column.column.name.empty())
      given.Child("column", static_cast<int>(i))
          .Fail("name", csv.header ? "must not be empty" : "must be empty without a header");
  }
  if (csv.label_number && (*csv.label_number < 0 || *csv.label_number >= csv.cells))
    given.Fail("label_number", "must be below cells");
  if ((csv.label_kind == CsvLabel::kClass) != !csv.classes.empty())
    given.FailHere("class names the classes of label_kind: CLASS");
}

Fields<RawCsv> RawCsvFields() {
  using O = RawCsv;
  return Fields<O>("Rows of cells.")
      .Message("RawCsv")
      .Add("header", &O::header, "The first line names the columns")
      .Add("delimiter", &O::delimiter, "Between the cells of a line", TypeOfDelimiter())
      .Add("cells", &O::cells, "Cells of a row in the files of the job", kRequired, RangeFrom(1))
      .Add("label", &O::label, "The label's name; a file without this column is complete")
      .Add("label_number", &O::label_number, "The label's number, from 0")
      .Add("label_kind", &O::label_kind, "What the cells of the label hold",
           OneOf{"LabelKind",
                 {{"INTEGER", CsvLabel::kInteger},
                  {"REAL", CsvLabel::kReal},
                  {"CLASS", CsvLabel::kClass}}})
      .Add("class", &O::classes, "The label's words")
      .Add("shape", &O::shape, "Of one row of data")
      .Nested("column", &O::columns, RawColumnFields(), "The columns that the model reads")
      .Rule(CheckCsv);
}

void CheckPicture(const RawPicture& picture, const FieldPlaces& given) {
  const auto per_channel = [&](const std::vector<float>& values) {
    return values.size() <= 1 || static_cast<int64_t>(values.size()) == picture.channels;
  };
  if (!per_channel(picture.mean)) given.Fail("mean", "must have one number, or one per channel");
  if (!per_channel(picture.scale)) given.Fail("scale", "must have one number, or one per channel");
  if (given.Has("channel_order") && picture.channels != 3)
    given.Fail("channel_order", "is of 3 channels");
  const auto elements = static_cast<uint64_t>(picture.channels) *
                        static_cast<uint64_t>(picture.height) *
                        static_cast<uint64_t>(picture.width);  // each is at most 2^20
  if (elements > kMostElements)
    given.FailHere(fmt::format("the picture is too large: {} values", elements));
  if (!picture.mean_image.empty() && picture.mean_image.size() != elements)
    given.Fail("mean_image", fmt::format("must have {} values", elements));
  if (!picture.transform) return;
  const TransformOptions& transform = *picture.transform;
  if (transform.crop_size > std::min(picture.height, picture.width))
    given.Child("transform").Fail("crop_size", "is larger than the picture");
  if (!per_channel(transform.mean_value))
    given.Child("transform").Fail("mean_value", "must have one number, or one per channel");
}

Fields<RawPicture> RawPictureFields() {
  using O = RawPicture;
  return Fields<O>("Pictures with bytes from 0 to 255.")
      .Message("RawPicture")
      .Add("column", &O::column, "The name of the column of pictures", kRequired)
      .Add("channels", &O::channels, "Of the whole picture", kRequired, ClosedRange(1, 1024))
      .Add("height", &O::height, "Of the whole picture", kRequired, ClosedRange(1, kMostPixels))
      .Add("width", &O::width, "Of the whole picture", kRequired, ClosedRange(1, kMostPixels))
      .Add("mean", &O::mean, "Subtracted from each byte: one number, or one per channel")
      .Add("scale", &O::scale, "Multiplies each byte then")
      .Nested("transform", &O::transform, FieldsOf(TransformOptions()),
              "What follows, with the middle of the picture")
      .Add("mean_image", &O::mean_image, "The mean image of the transform")
      .Add("channel_order", &O::channel_order,
           "Of 3 channels, as the model reads them; picture files are decoded in this order",
           ChannelOrders("RawPicture.ChannelOrder"))
      .Add("decode_mb", &O::decode_mb,
           "The most memory that decoding one file may take, in MiB; --decode_mb of a command sets "
           "another limit",
           LimitedRange(1, 1 << 24))
      .Rule(CheckPicture);
}

void CheckText(const RawText& text, const FieldPlaces& given) {
  std::set<std::string> seen;
  for (size_t i = 0; i < text.characters.size(); ++i) {
    const std::string& c = text.characters[i];
    if (c.empty() || Utf8CharacterBytes(c) != c.size())
      given.Fail("character", "must be one character of UTF-8", static_cast<int>(i));
    if (!seen.insert(c).second) given.Fail("character", "lists one twice", static_cast<int>(i));
  }
}

Fields<RawText> RawTextFields() {
  using O = RawText;
  return Fields<O>("Texts, of which each character becomes its number.")
      .Message("RawText")
      .Add("column", &O::column, "The name of the column of texts", kRequired)
      .Add("character", &O::characters, "The characters in the order of their numbers", kRequired)
      .Rule(CheckText);
}

Fields<RawArray> RawArrayFields() {
  using O = RawArray;
  return Fields<O>("A column of arrays, which is fed as it is.")
      .Message("RawArray")
      .Add("column", &O::column, "The name of the array in the npz file of rows", kRequired)
      .Add("dtype", &O::dtype, "Of its elements", kRequired,
           OneOf{"RawArray.DType",
                 {{"FLOAT32", DType::kFloat32},
                  {"FLOAT64", DType::kFloat64},
                  {"INT32", DType::kInt32},
                  {"INT64", DType::kInt64},
                  {"UINT8", DType::kUInt8}}})
      .Add("shape", &O::shape, "Of a row, or of one element of a sequence", RangeFrom(1))
      .Add("sequences", &O::sequences, "Each row is a sequence of such elements")
      .Rule([](O& array, const FieldPlaces& given) {
        if (array.shape.size() >= static_cast<size_t>(Shape::kMaxRank))
          given.Fail("shape", fmt::format("may have at most {} dimensions", Shape::kMaxRank - 1));
        uint64_t elements = 1;
        for (const int64_t dim : array.shape) {
          elements = static_cast<uint64_t>(dim) > kMostElements / elements
                         ? kMostElements + 1
                         : elements * static_cast<uint64_t>(dim);
          if (elements > kMostElements) given.Fail("shape", "holds too many elements");
        }
      });
}

Fields<OutputMeaning> MeaningFields() {
  using O = OutputMeaning;
  return Fields<O>("")
      .Message("OutputMeaning")
      .Add("var", &O::var, "An output of the model", kRequired)
      .Add("kind", &O::kind, "What it holds",
           OneOf{"OutputKind",
                 {{"VALUES", OutputKind::kValues, "numbers"},
                  {"NUMBER", OutputKind::kNumber, "one number per row"},
                  {"CLASSES", OutputKind::kClasses, "one score per class"},
                  {"IDS", OutputKind::kIds, "numbers of classes; negative ones are padding"},
                  {"STEPS", OutputKind::kSteps, "per step of a sequence, one score per class"}}})
      .Add("scale", &O::scale, "The number is value * scale + offset")
      .Add("offset", &O::offset, "Added then")
      .Add("class", &O::classes, "The names of the classes")
      .Rule([](O& meaning, const FieldPlaces& given) {
        for (const char* field : {"scale", "offset"})
          if (given.Has(field) && meaning.kind != OutputKind::kNumber)
            given.Fail(field, "applies to kind: NUMBER");
      });
}

Fields<BindConfig> InputFields() {
  using O = BindConfig;
  return Fields<O>("")
      .Message("InputConfig")
      .Add("column", &O::column, "A column made of the raw data", kRequired)
      .Add("var", &O::var, "An input of the model", kRequired)
      .Rule([](O& input, const FieldPlaces& given) { input.where = given.Place(""); });
}

void CheckPreprocess(const PreprocessConfig& config, const FieldPlaces& given) {
  if (config.version != PreprocessConfig::kVersion) {
    given.Fail("version", fmt::format("{} is not known: this coracle reads version {}",
                                      config.version, PreprocessConfig::kVersion));
  }
  const int sources = config.csv.has_value() + config.picture.has_value() +
                      config.text.has_value() + !config.arrays.empty();
  if (sources != 1) given.FailHere("give one of csv, picture, text and array");
  if (config.inputs.empty()) given.FailHere("no input is fed");
  if (config.outputs.empty()) given.FailHere("no output is described");
}

const Fields<PreprocessConfig>& PreprocessFields() {
  using O = PreprocessConfig;
  static const auto table =
      Fields<O>("How raw data becomes the inputs of a model, and what its outputs mean.")
          .Message("PreprocessConfig")
          .Add("version", &O::version, "Of this format", kRequired)
          .Nested("csv", &O::csv, RawCsvFields(), "Rows of cells")
          .Nested("picture", &O::picture, RawPictureFields(), "Pictures")
          .Nested("text", &O::text, RawTextFields(), "Texts")
          .Nested("input", &O::inputs, InputFields(), "Which column feeds which input")
          .Add("zeros", &O::zeros, "Inputs that are fed zeros: states at their beginning")
          .Nested("output", &O::outputs, MeaningFields(), "What the outputs mean")
          .Nested("array", &O::arrays, RawArrayFields(), "The columns of arrays")
          .Rule(CheckPreprocess);
  return table;
}

const SchemaPool& Schema() {
  static const SchemaPool pool = [] {
    SchemaWriter schema("coracle/preprocess.proto", "coracle.preprocess", "");
    schema.Add("PreprocessConfig", PreprocessFields().doc()).Add(PreprocessFields());
    return SchemaPool(schema, "PreprocessConfig");
  }();
  return pool;
}

std::string Quoted(const std::string& text) {
  return '"' + pb::strings::Utf8SafeCEscape(text) + '"';
}

template <class T>
std::string ListText(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_same_v<T, std::string>)
      text += Quoted(value);
    else
      text += fmt::format("{}", value);
  }
  return '[' + text + ']';
}

// A number, a word, a text or a list; "" for an empty list.
std::string ValueText(const FieldSpec& field, const Attribute& value) {
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, int32_t>) {
          if (field.one_of) {
            for (const Enumerator& word : field.one_of->values)
              if (word.value == v) return word.name;
          }
          return fmt::format("{}", v);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return Quoted(v);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>> ||
                             std::is_same_v<T, std::vector<int64_t>> ||
                             std::is_same_v<T, std::vector<float>>) {
          return v.empty() ? "" : ListText(v);
        } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> ||
                             std::is_same_v<T, int64_t> || std::is_same_v<T, bool>) {
          return fmt::format("{}", v);
        } else {
          throw InternalError(fmt::format("field {} has no text", field.name));
        }
      },
      static_cast<const AttributeVariant&>(value));
}

// "name { FIELDS}\n", with further lines of fields.
std::string MessageText(const std::string& name, const FieldTable& table, const void* options,
                        const std::string& lines = "") {
  std::string text = name + " { " + FieldsText(table, options);
  if (!lines.empty()) text.back() = '\n';
  return text + lines + "}\n";
}

// The fields of a column of text, which are a message of their own.
std::string TextColumnText(const FieldTable& table, const CsvColumn& column) {
  if (!column.text()) return "";
  const char* name = column.words ? "words" : column.characters ? "characters" : "byte_pairs";
  TextColumnOptions options = *column.text();
  // `word` lists the vocabulary, and `merge` the merges; the files of byte pairs are only names.
  options.vocabulary = std::filesystem::path(options.vocabulary).filename().string();
  options.merges = std::filesystem::path(options.merges).filename().string();
  if (!column.byte_pairs) options.vocabulary = "";
  options.size = TextColumnOptions().size;
  options.min_count = TextColumnOptions().min_count;
  return MessageText("    " + std::string(name), *table.Find(name)->nested->table, &options);
}

std::string CsvText(const RawCsv& csv) {
  std::string columns;
  const Fields<RawColumn> table = RawColumnFields();
  for (RawColumn column : csv.columns) {
    if (column.column.mean == 0) column.column.mean.reset();
    if (column.column.scale == 1) column.column.scale.reset();
    columns += MessageText("  column", table, &column, TextColumnText(table, column.column));
  }
  return MessageText("csv", RawCsvFields(), &csv, columns);
}

std::string PictureText(const RawPicture& picture) {
  std::string transform;
  if (picture.transform)
    transform = MessageText("  transform", FieldsOf(TransformOptions()), &*picture.transform);
  return MessageText("picture", RawPictureFields(), &picture, transform);
}

}  // namespace

std::string FieldsText(const FieldTable& table, const void* options) {
  std::string text;
  for (const FieldSpec& field : table.fields()) {
    if (field.nested) continue;
    const std::optional<Attribute> value = FieldTable::ValueOf(field, options);
    if (!value) continue;
    const std::string shown = ValueText(field, *value);
    const std::optional<Attribute>& absent =
        field.default_value ? field.default_value : field.unset;
    const bool usual = absent && ValueText(field, *absent) == shown;
    if (!shown.empty() && !usual) text += field.name + ": " + shown + " ";
  }
  return text;
}

std::string PreprocessConfig::ToText() const {
  std::string text =
      "# How raw data becomes the inputs of the model next to this file, and what its outputs "
      "mean.\n# `coracle train` wrote it, and `coracle predict` reads it.\n";
  text += fmt::format("version: {}\n", version);
  if (csv) text += CsvText(*csv);
  if (picture) text += PictureText(*picture);
  if (this->text) text += MessageText("text", RawTextFields(), &*this->text);
  for (const RawArray& array : arrays) text += MessageText("array", RawArrayFields(), &array);
  for (const BindConfig& input : inputs) text += MessageText("input", InputFields(), &input);
  if (!zeros.empty()) text += "zeros: " + ListText(zeros) + "\n";
  for (const OutputMeaning& output : outputs)
    text += MessageText("output", MeaningFields(), &output);
  return text;
}

PreprocessConfig ParsePreprocess(std::string_view text, const std::string& source) {
  if (text.size() > kMaxText) ThrowInvalid(source + ": too long for a preprocess text");
  const auto is_binary = [](char c) { return c >= 0 && c < ' ' && (c < '\t' || c > '\r'); };
  if (std::any_of(text.begin(), text.end(), is_binary))
    ThrowInvalid(source + ": a binary file, but preprocessing is described by a text");
  TextFile file;
  file.source = source;
  file.text = text;
  file.columns = TextColumns(text);
  file.message = Schema().New();
  TextErrors errors(file, Schema());
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&file.tree);
  parser.SetRecursionLimit(8);
  pb::LogSilencer silencer;
  if (!parser.ParseFromString(file.text, file.message.get())) errors.Throw();
  const JobNode root{Node(file)};
  const std::map<std::string, std::string> places = root.AllPlaces();
  PreprocessConfig config;
  ReadFields(root, PreprocessFields(), "preprocess", FieldPlaces(places), &config);
  if (!config.csv) return config;
  for (size_t i = 0; i < config.csv->columns.size(); ++i) {
    RawColumn& raw = config.csv->columns[i];
    CsvColumn& column = raw.column;
    if (!column.mean) column.mean = 0.0F;
    if (!column.scale) column.scale = 1.0F;
    if (!column.text()) continue;
    const std::string place = fmt::format("{}: csv.column[{}].word", source, i);
    if (column.byte_pairs)
      column.byte_pairs->pairs = std::make_shared<const BytePairs>(raw.words, raw.merges, place);
    else
      (column.words ? column.words : column.characters)->list =
          std::make_shared<const WordList>(raw.words, place);
  }
  return config;
}

std::string PreprocessFileOf(const std::string& model_file) {
  const std::filesystem::path path(model_file);
  if (path.filename() == "__model__") return (path.parent_path() / "preprocess.pbtxt").string();
  const std::string ending = path.extension().string();
  const bool model = ending == ".pdmodel" || ending == ".onnx" || ending == ".json";
  return (model ? std::filesystem::path(path).replace_extension() : path).string() +
         ".preprocess.pbtxt";
}

}  // namespace coracle::inline internal
