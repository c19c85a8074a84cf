#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/field_places.h>
#include <coracle/train/data/source_fields.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {

MemberType TypeOfDelimiter() {
  return {AttrType::kString,
          [](const void* member) -> std::optional<Attribute> {
            return Attribute(std::string(1, *static_cast<const char*>(member)));
          },
          [](void* member, const Attribute& value) {
            const auto text = AttributeAs<std::string>(value);
            if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r")
              ThrowInvalid("must be one character, neither a quote nor a line end");
            *static_cast<char*>(member) = text[0];
          }};
}

OneOf ChannelOrders(const std::string& type) {
  return {type,
          {{"RGB", ChannelOrder::kRgb, "red, green, blue"},
           {"BGR", ChannelOrder::kBgr, "blue, green, red"}}};
}

namespace {

void CheckDigits(const DigitsOptions& digits, const FieldPlaces& given) {
  const int64_t most = 10'000'000 / digits.length;
  if (digits.count > most)
    given.Fail("count", fmt::format("must be at most {} of that length", most));
  const std::vector<int32_t>& classes = digits.classes;
  for (auto c = classes.begin(); c != classes.end(); ++c) {
    if (*c < 0 || *c > 9 || std::find(classes.begin(), c, *c) != c)
      given.Fail("classes", fmt::format("must be distinct digits, got {}", *c),
                 static_cast<int>(c - classes.begin()));
  }
}

void CheckTextColumn(const CsvColumn& column, const FieldPlaces& given) {
  if (!column.text())
    given.Fail("length", "is of words, characters or byte_pairs, which are not given");
  if (column.words && column.characters) given.Fail("characters", "and words do not go together");
  if (column.byte_pairs && (column.words || column.characters))
    given.Fail("byte_pairs", "do not go together with words or characters");
  for (const char* field : {"fill", "mean", "scale"})
    if (given.Has(field)) given.Fail(field, "does not apply to a text");
  if (!column.categories.empty()) given.Fail("category", "does not apply to a text", 0);
  if (given.Has("length") && given.Has("sequence"))
    given.Fail("length", "and sequence do not go together");
  if (given.Has("sequence") && given.Has("ids"))
    given.Fail("ids", "does not apply to a sequence, which names its column itself");
  for (const char* field : {"sequence", "ids"})
    if (given.Has(field) && (column.sequence + column.ids).empty())
      given.Fail(field, "must name the new column");
}

void CheckTextOptions(TextColumnOptions& text, const FieldPlaces& given) {
  if (given.Has("vocabulary") && text.vocabulary.empty())
    given.Fail("vocabulary", "must name a file");
  for (const char* field : {"size", "min_count"})
    if (given.Has("vocabulary") && given.Has(field))
      given.Fail(field, "does not apply to a given vocabulary");
}

void CheckCsvColumn(const CsvColumn& column, const FieldPlaces& given) {
  const bool sequence = given.Has("sequence"), words = !column.categories.empty();
  if (column.text() || given.Has("length")) return CheckTextColumn(column, given);
  if (sequence && column.sequence.empty()) given.Fail("sequence", "must name the new column");
  if (sequence && given.Has("ids")) given.Fail("sequence", "and ids do not go together");
  for (const char* field : {"fill", "mean", "scale"})
    if (sequence && given.Has(field)) given.Fail(field, "does not apply to sequences");
  if (given.Has("ids") && !words) given.Fail("ids", "needs the words: category: \"...\"");
  if (given.Has("ids") && column.ids.empty()) given.Fail("ids", "must name the new column");
  for (const char* field : {"fill", "mean", "scale"})
    if (words && given.Has(field))
      given.Fail(field, "does not apply to words, which category lists");
}

void CheckCsv(const CsvOptions& csv, const FieldPlaces& given) {
  const bool classes = csv.label_kind == CsvLabel::kClass;
  if (classes && csv.classes.empty())
    given.Fail("label_kind", "CLASS needs the names of the classes: class: \"...\"");
  if (!classes && !csv.classes.empty())
    given.Fail("class", "names classes, which only label_kind: CLASS has", 0);
  for (const char* field : {"label_mean", "label_scale", "standardize_label"})
    if (given.Has(field) && csv.label_kind != CsvLabel::kReal)
      given.Fail(field, "is of real labels: label_kind: REAL");
  for (const char* field : {"label_mean", "label_scale"})
    if (given.Has(field) && csv.standardize_label)
      given.Fail(field, "is what standardize_label computes");
  const auto refuse = [&](const char* field) {
    if (given.Has(field) && csv.standardize) given.Fail(field, "is what standardize computes");
  };
  refuse("mean");
  refuse("scale");
  if (csv.shape.size() >= static_cast<size_t>(Shape::kMaxRank))
    given.Fail("shape", fmt::format("may have at most {} dimensions", Shape::kMaxRank - 1));
  for (size_t i = 0; i < csv.shape.size(); ++i)
    if (csv.shape[i] < 1) given.Fail("shape", "must have positive dimensions", static_cast<int>(i));
}

Fields<TextColumnOptions> CommonTextFields(const char* doc, const char* message) {
  using O = TextColumnOptions;
  return Fields<O>(doc)
      .Message(message)
      .Add("vocabulary", &O::vocabulary,
           "A file with one word a line, or one that a run saved; default: made from the training "
           "rows",
           FieldExample{"vocabulary: \"vocab.txt\""})
      .Add("size", &O::size,
           "The most numbers, with those of padding and of unknown words; the most frequent words "
           "have one",
           RangeFrom(3), kNoDefault, FieldExample{"size: 20000"})
      .Add("min_count", &O::min_count, "Words that appear less often count as unknown",
           RangeFrom(1))
      .Add("lower", &O::lower, "Makes letters A to Z small")
      .Rule(CheckTextOptions);
}

Fields<TextColumnOptions> WordsFields() {
  return CommonTextFields(
             "A text is cut into words. Number 0 is padding, 1 is any unknown word, and the words "
             "of the vocabulary count from 2.",
             "WordsConfig")
      .Add("split_punctuation", &TextColumnOptions::split_punctuation,
           "Each ASCII punctuation mark is a word of its own; otherwise only blanks divide words");
}

Fields<TextColumnOptions> BytePairFields() {
  using O = TextColumnOptions;
  return Fields<O>(
             "A text becomes numbers of a vocabulary by merges of byte pairs, exactly as GPT-2's "
             "tools encode it.")
      .Message("BytePairsConfig")
      .Add("merges", &O::merges,
           "A file with the two tokens of a merge on each line, the first merge first: merges.txt",
           kRequired, FieldExample{"merges: \"merges.txt\""})
      .Add("vocabulary", &O::vocabulary,
           "A file with a JSON object that gives each token its number: vocab.json", kRequired,
           FieldExample{"vocabulary: \"vocab.json\""})
      .Add("padding", &O::padding, "The number that fills texts up to `length`", RangeFrom(0),
           FieldExample{"padding: 50256"})
      .Add("lower", &O::lower, "Makes letters A to Z small")
      .Rule([](O& pairs, const FieldPlaces& given) {
        for (const auto& [field, file] :
             {std::pair{"merges", &pairs.merges}, {"vocabulary", &pairs.vocabulary}})
          if (file->empty()) given.Fail(field, "must name a file");
      });
}

Fields<CsvColumn> CsvColumnFields() {
  using O = CsvColumn;
  return Fields<O>("A column of data that is not as the others.")
      .Message("CsvColumnConfig")
      .Add("name", &O::name, "By name or number", kRequired, FieldExample{"name: \"age\""})
      .Add("fill", &O::fill, "These in place of the file's")
      .Add("mean", &O::mean, "Subtracted from each element")
      .Add("scale", &O::scale, "Multiplies each element")
      .Add("category", &O::categories,
           "The column holds one of these words: it becomes one value for each, 1 for the word and "
           "else 0",
           FieldExample{"category: [\"red\", \"green\"]"})
      .Add("ids", &O::ids,
           "The number of the word instead, as a column of its own: int64 [1], with this name",
           FieldExample{"category: [\"red\", \"green\"] ids: \"color\""})
      .Add("sequence", &O::sequence,
           "The cell holds integers (or words) with blanks between them, any number: sequences of "
           "int64 [1], as a column of their own, with this name",
           FieldExample{"sequence: \"words\""})
      .Nested(
          "words", &O::words, WordsFields(),
          "The cell is a text: numbers of its words, as `length` numbers, int64 [length], named by "
          "`ids` or else as the column. Without `length`, as sequences, named by `sequence` or "
          "else as the column",
          FieldExample{"words { size: 20000 } length: 64"})
      .Nested("characters", &O::characters,
              CommonTextFields("A text is cut into its characters (UTF-8), numbered like words.",
                               "CharactersConfig"),
              "The same for the characters of a text", FieldExample{"characters { } length: 64"})
      .Add("length", &O::length,
           "Texts are padded with 0 (byte_pairs: with `padding`), or cut off, at their end",
           LimitedRange(1, 1 << 24), kNoDefault, FieldExample{"words { } length: 64"})
      .Nested("byte_pairs", &O::byte_pairs, BytePairFields(),
              "The same for byte pairs, whose numbers are those of their vocabulary",
              FieldExample{"byte_pairs { merges: \"merges.txt\" vocabulary: \"vocab.json\" } "
                           "length: 64"})
      .Rule(CheckCsvColumn);
}

void CheckPictures(const PictureOptions& pictures, const FieldPlaces& given) {
  if (given.Has("directory") && given.Has("list"))
    given.Fail("list", "and directory do not go together");
  if (pictures.channels == 2) given.Fail("channels", "must be 1 or 3, got 2");
  if (given.Has("channel_order") && pictures.channels != 3)
    given.Fail("channel_order", "is of 3 channels");
  const auto refuse = [&](const char* field) {
    if (given.Has(field) && pictures.standardize)
      given.Fail(field, "is what standardize computes", 0);
  };
  refuse("mean");
  refuse("scale");
}

Fields<NpzColumn> NpzColumnFields() {
  return Fields<NpzColumn>("")
      .Message("NpzColumnConfig")
      .Add("key", &NpzColumn::key, "The name of the array in the file", kRequired,
           FieldExample{"key: \"x_train\""})
      .Add("name", &NpzColumn::name, "default: the key", FieldExample{"name: \"image\""});
}

Fields<DatumOptions> DatabaseFields(const char* doc, const char* message,
                                    DatumOptions::Format format, const char* file_doc,
                                    const char* example) {
  return Fields<DatumOptions>(doc)
      .Message(message)
      .Add("file", &DatumOptions::file, file_doc, kRequired, FieldExample{example})
      .Add("channel_order", &DatumOptions::channel_order,
           "Of images with 3 channels. The values stay as they are; the model remembers the order, "
           "and `coracle predict` decodes pictures in it. Default: BGR, as convert_imageset writes "
           "them, with a warning; databases of convert_cifar_data are RGB",
           ChannelOrders(std::string(message) + ".ChannelOrder"),
           FieldExample{"channel_order: RGB"})
      .Rule([format](DatumOptions& options, const FieldPlaces&) { options.format = format; });
}

}  // namespace

Fields<CsvColumn> FieldsOf(const CsvColumn&) { return CsvColumnFields(); }

Fields<DigitsOptions> FieldsOf(const DigitsOptions&) {
  using O = DigitsOptions;
  return Fields<O>(
             "Digits drawn by coracle itself: columns image float32 [1, 28, 28] in [0, 1], label "
             "int64 [1]. Those of `train` and of `test` differ, whatever the seeds.")
      .Message("DigitsConfig")
      .Add("count", &O::count, "Images to draw", ClosedRange(1, 10'000'000))
      .Add("seed", &O::seed, "Which images")
      .Add("classes", &O::classes,
           "The digits that are drawn; a label is an index in this list. Default: 0 to 9",
           FieldExample{"classes: [3, 8]"})
      .Add("length", &O::length,
           "Digits side by side in one image [1, 28, 28 * length], with labels [length]",
           ClosedRange(1, 64))
      .Rule(CheckDigits);
}

Fields<IdxOptions> FieldsOf(const IdxOptions&) {
  using O = IdxOptions;
  return Fields<O>(
             "The format of MNIST, plain or gzip: columns image and label. image = (value - mean) "
             "* scale.")
      .Message("IdxConfig")
      .Add("images", &O::images, "File of the images", kRequired,
           FieldExample{"images: \"train-images-idx3-ubyte.gz\""})
      .Add("labels", &O::labels, "File of the labels", kRequired,
           FieldExample{"labels: \"train-labels-idx1-ubyte.gz\""})
      .Add("mean", &O::mean, "Subtracted from each element")
      .Add("scale", &O::scale, "Multiplies each element then; default: 1/255 for bytes");
}

Fields<CsvOptions> FieldsOf(const CsvOptions&) {
  using O = CsvOptions;
  return Fields<O>("Columns data (all but the label's, (value - mean) * scale) and label.")
      .Message("CsvConfig")
      .Add("file", &O::file, "Lines of cells, below data_dir", kRequired,
           FieldExample{"file: \"train.csv\""})
      .Add("header", &O::header, "The first line names the columns")
      .Add("delimiter", &O::delimiter, "Between the cells of a line", TypeOfDelimiter())
      .Add("label", &O::label, "By name or number (from 0); default: the last column")
      .Add("label_kind", &O::label_kind, "What the cells of the label hold",
           OneOf{"CsvConfig.LabelKind",
                 {{"INTEGER", CsvLabel::kInteger},
                  {"REAL", CsvLabel::kReal},
                  {"CLASS", CsvLabel::kClass, "one of `class`, which gives its number"}}},
           FieldExample{"label_kind: REAL"})
      .Add("class", &O::classes, "The words of the classes, in order of their numbers",
           FieldExample{"label_kind: CLASS class: [\"cat\", \"dog\"]"})
      .Add("skip", &O::skip, "Columns to leave out, by name or number")
      .Add("fill", &O::fill, "Value of empty cells; without it they are errors")
      .Add("mean", &O::mean, "Subtracted from all cells")
      .Add("scale", &O::scale, "Multiplies all cells then")
      .Add("standardize", &O::standardize,
           "Computes mean and scale of each number column that has none of its own, such that the "
           "training rows have mean 0 and deviation 1. Tests use these numbers, too",
           FieldExample{"standardize: true"})
      .Add("label_mean", &O::label_mean, "Subtracted from real labels",
           FieldExample{"label_kind: REAL label_mean: 20"})
      .Add("label_scale", &O::label_scale, "Multiplies real labels then",
           FieldExample{"label_kind: REAL label_scale: 0.1"})
      .Add("standardize_label", &O::standardize_label,
           "Computes label_mean and label_scale in the same way; the loss is of the scaled labels, "
           "MAE and RMSE are in the label's own unit",
           FieldExample{"label_kind: REAL standardize_label: true"})
      .Add("shape", &O::shape, "Of one row of data", FieldExample{"shape: [1, 28, 28]"})
      .Nested("column", &O::columns, CsvColumnFields(), "Settings of single columns")
      .Rule(CheckCsv);
}

Fields<NpzOptions> FieldsOf(const NpzOptions&) {
  using O = NpzOptions;
  return Fields<O>("")
      .Message("NpzConfig")
      .Add("file", &O::file, "Arrays of one length, below data_dir", kRequired,
           FieldExample{"file: \"train.npz\""})
      .Nested("column", &O::columns, NpzColumnFields(),
              "The arrays to read; default: every one, by its key");
}

Fields<TextOptions> FieldsOf(const TextOptions&) {
  using O = TextOptions;
  return Fields<O>(
             "A text for a model that predicts each character from those before it: columns text "
             "int64 [sequence_length] and next int64 [sequence_length, 1], as numbers of a "
             "vocabulary of the text's characters. It is read as batch_size contiguous streams: "
             "the row that follows row k of a batch is row k of the next batch. Under `train` all "
             "but the last `holdout` of the text, under `test` that.")
      .Message("TextConfig")
      .Add("file", &O::file, "UTF-8", kRequired, FieldExample{"file: \"shakespeare.txt\""})
      .Add("sequence_length", &O::sequence_length, "Characters of a row", RangeFrom(1))
      .Add("holdout", &O::holdout, "The share of the text, at its end, that is held out",
           ClosedRange(0, 1))
      .Add("vocabulary", &O::vocabulary,
           "A saved vocabulary.json; default: made from the training text",
           FieldExample{"vocabulary: \"vocabulary.json\""});
}

Fields<DatumOptions> LmdbFields() {
  return DatabaseFields(
      "A database of images as Caffe's tools write it, an LMDB of Datum messages: columns data "
      "float32 [C, H, W], bytes as 0 to 255, and label int64 [1].",
      "LmdbConfig", DatumOptions::Format::kLmdb, "A directory with data.mdb, below data_dir",
      "file: \"mnist_train_lmdb\"");
}

Fields<DatumOptions> LevelDbFields() {
  return DatabaseFields("The same as a LevelDB, which is only read.", "LevelDbConfig",
                        DatumOptions::Format::kLevelDb, "Its directory, below data_dir",
                        "file: \"mnist_train_leveldb\"");
}

Fields<PictureOptions> FieldsOf(const PictureOptions&) {
  using O = PictureOptions;
  return Fields<O>(
             "Pictures in files (PNG, JPEG, PNM): columns image float32 [channels, height, width] "
             "and label int64 [1]. They are resized, and decoded while the job runs.")
      .Message("PicturesConfig")
      .Add("directory", &O::directory, "A folder for each class, with its pictures, below data_dir",
           FieldExample{"directory: \"train\" height: 28 width: 28"})
      .Add("list", &O::list,
           "Instead: a file with a line for each picture, its path (relative to the file) and its "
           "label",
           FieldExample{"list: \"train.txt\" height: 28 width: 28"})
      .Add("channels", &O::channels, "1: grey (0.299 R + 0.587 G + 0.114 B), 3: red, green, blue",
           ClosedRange(1, 3), FieldExample{"channels: 1"})
      .Add("height", &O::height, "Of the resized pictures", LimitedRange(1, 65500), kNoDefault,
           FieldExample{"height: 28"})
      .Add("width", &O::width, "Of the resized pictures", LimitedRange(1, 65500), kNoDefault,
           FieldExample{"width: 28"})
      .Add("class", &O::classes,
           "The folders, or the labels of the list, in the order of their numbers. Default: the "
           "folders by name, or numbers in the list",
           FieldExample{"class: [\"cat\", \"dog\"]"})
      .Add("mean", &O::mean, "Subtracted from the bytes: one number, or one for each channel",
           FieldExample{"mean: 127.5"})
      .Add("scale", &O::scale,
           "Multiplies then: one number, or one for each channel; default: 1/255",
           FieldExample{"scale: 0.0078125"})
      .Add("standardize", &O::standardize,
           "Computes mean and scale of each channel, such that the training pictures have mean 0 "
           "and deviation 1. Tests use these numbers, too",
           FieldExample{"standardize: true"})
      .Add("bad_files", &O::bad_files, "What happens to a file that cannot be read",
           OneOf{"PicturesConfig.BadFiles",
                 {{"ERROR", BadFiles::kError, "the run ends with an error that names it"},
                  {"SKIP", BadFiles::kSkip,
                   "it is left out, with a warning; all files are read before the first step"}}})
      .Add("cache_mb", &O::cache_mb, "Decoded pictures kept in memory, in MiB",
           LimitedRange(0, 1 << 24))
      .Add("decode_mb", &O::decode_mb,
           "The most memory that decoding one file may take, in MiB; only interlaced PNG and "
           "progressive JPEG files need more than their resized picture",
           LimitedRange(1, 1 << 24))
      .Add("channel_order", &O::channel_order,
           "Of 3 channels: BGR is for a model that was trained so, such as one of Caffe",
           ChannelOrders("PicturesConfig.ChannelOrder"), FieldExample{"channel_order: BGR"})
      .Rule(CheckPictures);
}

Fields<TransformOptions> FieldsOf(const TransformOptions&) {
  using O = TransformOptions;
  return Fields<O>(
             "Of the first column of images [C, H, W]: (value - mean) * scale, and a part of the "
             "image.")
      .Message("TransformConfig")
      .Add("scale", &O::scale, "Multiplies each element")
      .Add("mean_value", &O::mean_value, "Subtracted: one number for all channels, or one for each",
           FieldExample{"mean_value: [104, 117, 123]"})
      .Add("mean_file", &O::mean_file, "Subtracted: a mean image, Caffe's .binaryproto or an .npy",
           FieldExample{"mean_file: \"mean.binaryproto\""})
      .Add("crop_size", &O::crop_size,
           "Height and width of the part: a random one in training, the middle in tests. 0: all",
           RangeFrom(0))
      .Add("mirror", &O::mirror, "In training, left and right change places in half of the rows")
      .Add("flip", &O::flip, "In training, half of the rows are upside down")
      .Add("pad", &O::pad,
           "In training, crops may begin up to this many pixels outside the image, which `fill` "
           "surrounds; without crop_size they have the image's size",
           ClosedRange(0, 65500), FieldExample{"pad: 4"})
      .Add("rotate", &O::rotate, "In training, images turn by up to this many degrees to each side",
           ClosedRange(0, 180), FieldExample{"rotate: 15"})
      .Add("zoom", &O::zoom, "In training, magnifies by a factor in [1 - zoom, 1 + zoom]",
           ClosedRange(0, 0.99), FieldExample{"zoom: 0.1"})
      .Add("shift", &O::shift,
           "In training, images move by up to this share of their height and width",
           ClosedRange(0, 1), FieldExample{"shift: 0.1"})
      .Add("fill", &O::fill, "Value around the image, before mean and scale", FiniteRange())
      .Add("brightness", &O::brightness,
           "In training, multiplies by a factor in [1 - brightness, 1 + brightness]",
           ClosedRange(0, 1), FieldExample{"brightness: 0.2"})
      .Add("contrast", &O::contrast,
           "In training, multiplies the distance from the image's mean grey by such a factor",
           ClosedRange(0, 1), FieldExample{"contrast: 0.2"})
      .Add("saturation", &O::saturation,
           "In training, multiplies the distance from the pixel's grey by such a factor; for 3 "
           "channels",
           ClosedRange(0, 1), FieldExample{"saturation: 0.2"})
      .Add("noise", &O::noise,
           "In training, the deviation of normal noise, added after mean and scale",
           NotNegativeRange(), FieldExample{"noise: 0.05"})
      .Add("erase", &O::erase,
           "In training, a square of this side at a random place becomes 0 after mean and scale",
           ClosedRange(0, 65500), FieldExample{"erase: 8"})
      .Rule([](TransformOptions& transform, const FieldPlaces& given) {
        if (given.Has("mean_file") && !transform.mean_value.empty())
          given.Fail("mean_file", "and mean_value do not go together");
      });
}

Fields<MixupOptions> FieldsOf(const MixupOptions&) {
  using O = MixupOptions;
  return Fields<O>(
             "In training, each row becomes share * row + (1 - share) * another row, and its soft "
             "label mixes their labels in the same way. Rows of tests stay as they are. Adds the "
             "column soft_label, float32 [classes], which the loss must read in place of label.")
      .Message("MixupConfig")
      .Add("alpha", &O::alpha,
           "The share is drawn from Beta(alpha, alpha): small values mix little, 1 mixes evenly",
           LimitedRange(0.001, 1000), FieldExample{"alpha: 0.4"})
      .Add("classes", &O::classes,
           "Elements of soft_label; default: one more than the largest label of the training rows",
           LimitedRange(1, 1 << 20), kNoDefault, FieldExample{"classes: 10"});
}

}  // namespace coracle::inline internal
