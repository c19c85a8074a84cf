#include <coracle/framework/base/crc32c.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/log/event_writer.h>
#include <coracle/train/log/plot.h>
#include <coracle/train/log/run_log.h>
#include <coracle/train/run/trainer.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

namespace coracle::event_writer_test {

// --- a reader of its own: the wire format by hand ---

struct Field {
  int number = 0, type = 0;
  uint64_t number_value = 0;  // varint, or the bits of a fixed one
  std::string bytes = "";

  double Double() const {
    double value;
    std::memcpy(&value, &number_value, 8);
    return value;
  }
  float Float() const {
    float value;
    const auto bits = static_cast<uint32_t>(number_value);
    std::memcpy(&value, &bits, 4);
    return value;
  }
};

uint64_t Fixed(const std::string& bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i)
    value |= uint64_t{static_cast<unsigned char>(bytes.at(at + i))} << (8 * i);
  return value;
}

std::vector<Field> Decode(const std::string& bytes) {
  size_t at = 0;
  auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      value |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
  };
  std::vector<Field> fields;
  while (at < bytes.size()) {
    const uint64_t key = varint();
    Field field{static_cast<int>(key >> 3), static_cast<int>(key & 7)};
    const size_t fixed = field.type == 1 ? 8 : field.type == 5 ? 4 : 0;
    if (field.type == 0) {
      field.number_value = varint();
    } else if (fixed > 0) {
      field.number_value = Fixed(bytes, at, fixed);
      at += fixed;
    } else {
      const uint64_t size = varint();
      field.bytes = bytes.substr(at, size);
      EXPECT_EQ(field.bytes.size(), size);
      at += size;
    }
    fields.push_back(field);
  }
  return fields;
}

const Field* Find(const std::vector<Field>& fields, int number) {
  for (const Field& field : fields)
    if (field.number == number) return &field;
  return nullptr;
}

// CRC-32C bit by bit, as RFC 3720 defines it.
uint32_t SlowCrc(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  return ~crc;
}
uint32_t SlowMasked(const std::string& bytes) {
  const uint32_t crc = SlowCrc(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// The contents of a file's records; every checksum is checked.
std::vector<std::string> ReadRecords(const std::string& path) {
  const std::string bytes = ReadFile(path);
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t length = Fixed(bytes, at, 8);
    EXPECT_EQ(Fixed(bytes, at + 8, 4), SlowMasked(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(records.back().size(), length);
    EXPECT_EQ(Fixed(bytes, at + 12 + length, 4), SlowMasked(records.back()));
    at += 16 + length;
  }
  return records;
}

std::vector<std::vector<Field>> ReadEvents(const std::string& path) {
  std::vector<std::vector<Field>> events;
  for (const std::string& record : ReadRecords(path)) events.push_back(Decode(record));
  return events;
}

std::string EventFile(const std::string& directory) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("events.out.tfevents.")) found = std::max(found, entry.path().string());
  }
  return found;
}

TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  // RFC 3720, B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  EXPECT_EQ(Crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(Crc32c(falling), 0x113FDB5Cu);
  EXPECT_EQ(Crc32c(""), 0u);
  for (size_t cut = 0; cut <= 32; ++cut)
    EXPECT_EQ(Crc32c(rising.substr(cut), Crc32c(rising.substr(0, cut))), 0x46DD794Eu);
}

// The record that TensorBoard's own tests of its reader hold: an event of the year 2015
// that says "brain.Event:1".
TEST(EventWriter, ARecordKnownFromElsewhere) {
  const auto bytes = [](std::initializer_list<int> values) {
    std::string text;
    for (int value : values) text += static_cast<char>(value);
    return text;
  };
  const std::string event =
      bytes({9, 0, 0, 0xc0, 0x25, 0xdd, 0x75, 0xd5, 0x41, 0x1a, 13}) + "brain.Event:1";
  EXPECT_EQ(EventRecord(event), bytes({24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22}) + event +
                                    bytes({0xec, 0xf3, 0x32, 0x8d}));
}

// The text that protoc makes of a message: with our schema, or (--decode_raw) without one.
std::string Protoc(const TempDir& dir, const std::string& options, const std::string& message) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  WriteFileAtomic(dir / "message", message);
  const std::string command = "'" CORACLE_PROTOC "' -I '" + std::string(source ? source : ".") +
                              "/proto' " + options + " < '" + (dir / "message") + "' > '" +
                              (dir / "text") + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return ReadFile(dir / "text");
}

// A decoder other than ours reads the file. The field numbers of the raw form come from
// tensorflow/core/util/event.proto and framework/summary.proto.
TEST(EventWriter, ProtocDecodesEveryRecord) {
  if (::access(CORACLE_PROTOC, X_OK) != 0) GTEST_SKIP() << "there is no " CORACLE_PROTOC;
  if (!std::getenv("CORACLE_SOURCE_DIR")) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  TempDir dir;
  EventWriter writer(dir.path(), 7);
  writer.Scalars(12, {{"train/loss", 0.25}, {"test/accuracy", -1.5}});
  writer.Histogram(13, "w", Tensor::Of<float>({4}, {1, 2, 2, 31}));
  ProgramDesc program;
  program.Root().AppendOp("relu", {{"X", {"a"}}}, {{"Out", {"b"}}});
  writer.Graph(program);
  const std::vector<std::string> records = ReadRecords(writer.path());
  ASSERT_EQ(records.size(), 5u);
  const auto decode = [&](size_t k, const std::string& options) {
    std::string text = Protoc(dir, options, records[k]);
    if (k == 4) return text;
    const size_t end = text.find('\n');  // the time
    EXPECT_EQ(text.substr(0, 2), options == "--decode_raw" ? "1:" : "wa");
    return text.substr(end + 1);
  };
  const std::string schema = "--decode=coracle.proto.LogEvent event_log.proto";
  EXPECT_EQ(decode(0, schema), "file_version: \"brain.Event:2\"\n");
  EXPECT_EQ(decode(0, "--decode_raw"), "3: \"brain.Event:2\"\n");
  EXPECT_EQ(decode(1, schema), "step: 7\nsession_log {\n  status: START\n}\n");
  EXPECT_EQ(decode(1, "--decode_raw"), "2: 7\n7 {\n  1: 1\n}\n");
  EXPECT_EQ(decode(2, schema),
            "step: 12\nsummary {\n"
            "  value {\n    tag: \"train/loss\"\n    simple_value: 0.25\n  }\n"
            "  value {\n    tag: \"test/accuracy\"\n    simple_value: -1.5\n  }\n}\n");
  EXPECT_EQ(decode(2, "--decode_raw"),
            "2: 12\n5 {\n"
            "  1 {\n    1: \"train/loss\"\n    2: 0x3e800000\n  }\n"
            "  1 {\n    1: \"test/accuracy\"\n    2: 0xbfc00000\n  }\n}\n");
  // Limits 2, 3, ..., 31: the first bucket counts 1, 2 and 2.
  std::string limits, buckets;
  for (int i = 0; i < 30; ++i) {
    limits += "      bucket_limit: " + std::to_string(i + 2) + "\n";
    buckets += "      bucket: " + std::string(i == 0 ? "3" : i == 29 ? "1" : "0") + "\n";
  }
  EXPECT_EQ(decode(3, schema),
            "step: 13\nsummary {\n  value {\n    tag: \"w\"\n    histo {\n      min: 1\n"
            "      max: 31\n      num: 4\n      sum: 36\n      sum_squares: 970\n" +
                limits + buckets + "    }\n  }\n}\n");
  const std::string graph = Find(Decode(records[4]), 4)->bytes;
  const std::string nodes = Protoc(dir, "--decode=coracle.proto.LogGraph event_log.proto", graph);
  ExpectContains(nodes, "op: \"relu\"");
  ExpectContains(nodes, "input: ");
}

TEST(EventWriter, VersionStartAndScalars) {
  TempDir dir;
  EventWriter writer(dir.path(), 7);
  EXPECT_EQ(writer.path().substr(0, dir.path().size() + 21), dir / "events.out.tfevents.");
  writer.Scalars(12, {{"train/loss", 0.25}, {"nan", NAN}});
  const auto events = ReadEvents(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(Find(events[0], 3)->bytes, "brain.Event:2");
  EXPECT_GT(Find(events[0], 1)->Double(), 1.7e9);  // seconds since 1970
  EXPECT_EQ(Find(events[1], 2)->number_value, 7u);
  EXPECT_EQ(Find(Decode(Find(events[1], 7)->bytes), 1)->number_value, 1u);  // SessionLog.START
  EXPECT_EQ(Find(events[2], 2)->number_value, 12u);
  const auto values = Decode(Find(events[2], 5)->bytes);
  ASSERT_EQ(values.size(), 2u);
  const auto loss = Decode(values[0].bytes);
  EXPECT_EQ(Find(loss, 1)->bytes, "train/loss");
  EXPECT_EQ(Find(loss, 2)->Float(), 0.25f);
  EXPECT_TRUE(std::isnan(Find(Decode(values[1].bytes), 2)->Float()));
}

TEST(EventWriter, Histograms) {
  TempDir dir;
  EventWriter writer(dir.path(), 0);
  std::vector<float> numbers;
  for (int i = 0; i < 1000; ++i) numbers.push_back(static_cast<float>(i % 10));
  numbers.push_back(INFINITY);
  writer.Histogram(3, "w", Tensor::Of<float>({1001}, numbers));
  writer.Histogram(3, "constant", Tensor::Full<float>({5}, 2));
  writer.Histogram(3, "empty", Tensor(DType::kFloat32, {0}));
  const auto events = ReadEvents(writer.path());
  ASSERT_EQ(events.size(), 5u);
  auto histogram = [&](size_t k) {
    return Decode(Find(Decode(Decode(Find(events[k], 5)->bytes)[0].bytes), 5)->bytes);
  };
  const auto h = histogram(2);
  EXPECT_EQ(Find(h, 1), nullptr);  // min 0 is the default of proto3
  EXPECT_EQ(Find(h, 2)->Double(), 9);
  EXPECT_EQ(Find(h, 3)->Double(), 1000);  // without the infinity
  EXPECT_EQ(Find(h, 4)->Double(), 4500);
  EXPECT_EQ(Find(h, 5)->Double(), 28500);
  const std::string &limits = Find(h, 6)->bytes, &buckets = Find(h, 7)->bytes;
  ASSERT_EQ(limits.size(), 30u * 8);
  ASSERT_EQ(buckets.size(), 30u * 8);
  auto at = [](const std::string& packed, size_t i) {
    return Field{0, 1, Fixed(packed, 8 * i, 8), ""}.Double();
  };
  // Bucket i counts what lies in (limit[i - 1], limit[i]], the first one also its lower end.
  for (size_t i = 0; i < 30; ++i) {
    double expected = 0;
    const double low = i == 0 ? -1 : at(limits, i - 1), high = at(limits, i);
    for (size_t k = 0; k < 1000; ++k)
      expected += double{numbers[k]} > low && double{numbers[k]} <= high;
    EXPECT_EQ(at(buckets, i), expected) << i;
  }
  EXPECT_EQ(at(limits, 29), 9);
  EXPECT_EQ(at(Find(histogram(3), 7)->bytes, 0), 5);
  EXPECT_EQ(Find(histogram(4), 3), nullptr);  // num 0 is proto3's default
}

// A whole run: what its event file holds is what its log.jsonl holds, and the program's ops are
// the graph's nodes.
TEST(EventWriter, ARunLogsTheSameEverywhere) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  job.epochs = 2;
  job.log.tensorboard = true;
  job.log.histogram_interval = 8;
  const TrainResult result = RunJob(job);
  std::map<std::string, std::vector<std::pair<int64_t, double>>> scalars;
  std::map<std::string, int> histograms;
  std::set<std::string> names;
  size_t ops = 0, sources = 0;
  for (const auto& event : ReadEvents(EventFile(dir.path()))) {
    const Field* step = Find(event, 2);
    if (const Field* summary = Find(event, 5)) {
      for (const Field& value : Decode(summary->bytes)) {
        const auto fields = Decode(value.bytes);
        const std::string& tag = Find(fields, 1)->bytes;
        if (Find(fields, 5)) ++histograms[tag];
        if (const Field* number = Find(fields, 2))
          scalars[tag].emplace_back(step ? step->number_value : 0, number->Float());
      }
    }
    const Field* graph = Find(event, 4);
    if (!graph) continue;
    for (const Field& node : Decode(graph->bytes)) {
      if (node.number != 1) continue;
      const auto fields = Decode(node.bytes);
      EXPECT_TRUE(names.insert(Find(fields, 1)->bytes).second);  // before those that read it
      for (char c : Find(fields, 1)->bytes)
        EXPECT_TRUE(std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ||
                    c == '/');
      const std::string& op = Find(fields, 2)->bytes;
      ++(op == "Placeholder" || op == "Variable" ? sources : ops);
      for (const Field& field : fields)
        EXPECT_TRUE(field.number != 3 || names.count(field.bytes)) << field.bytes;
    }
  }
  EXPECT_EQ(ops, result.main.Root().NumOps());
  EXPECT_GE(sources, 7u);  // image, label, four parameters, the learning rate
  for (const char* tag : {"parameters/fc_0.w_0", "gradients/fc_1.b_0"})
    EXPECT_EQ(histograms[tag], 2);
  EXPECT_EQ(histograms.size(), 8u);

  const std::vector<LogSeries> series = ReadRunLog(dir / "log.jsonl");
  ASSERT_EQ(series.size(), 5u);  // train and test loss and accuracy, the learning rate
  for (const LogSeries& s : series) {
    const auto& logged = scalars.at(s.name);
    ASSERT_EQ(logged.size(), s.points.size()) << s.name;
    for (size_t i = 0; i < logged.size(); ++i) {
      EXPECT_EQ(logged[i].first, s.points[i].first);
      EXPECT_EQ(logged[i].second, double(float(s.points[i].second)));
    }
  }
  EXPECT_EQ(scalars.at("train/loss").size(), 4u);  // steps 5, 10, 15 and the last, 16
  EXPECT_EQ(scalars.at("test/accuracy").back().second, double(float(result.metrics[0].value)));
  EXPECT_EQ(scalars.at("learning_rate")[0].second, double(0.05f));
}

// Caffe computes the first speed that it shows from a member that was never set.
TEST(RunLog, TheFirstSpeedIsANumberToo) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  job.max_iter = 10;
  RunJob(job);
  const std::string log = ReadFile(dir / "log.jsonl"), key = "\"samples_per_second\":";
  int speeds = 0;
  for (size_t at = log.find(key); at != std::string::npos; at = log.find(key, at + 1)) {
    const double speed = std::strtod(log.c_str() + at + key.size(), nullptr);
    EXPECT_TRUE(std::isfinite(speed) && speed > 0) << speed;
    ++speeds;
  }
  EXPECT_EQ(speeds, 2);  // steps 5 and 10
}

// Records that a killed run wrote after its last snapshot do not count.
TEST(RunLog, AResumedRunGoesOnInTheSameFile) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  job.max_iter = 10;
  RunJob(job);
  const std::string path = dir / "log.jsonl";
  const std::string torn = ReadFile(path) +
                           "{\"type\":\"step\",\"step\":15,\"values\":{\"loss\":99},"
                           "\"learning_rates\":{}}\n{\"type\":\"step\",\"st";
  WriteFileAtomic(path, torn);
  EXPECT_EQ(ReadRunLog(path)[0].points.back().second, 99);  // the last line is not finished
  job.max_iter = 20;
  TrainOptions resume;
  resume.resume = true;
  RunJob(job, resume);
  EXPECT_EQ(ReadFile(path).substr(0, torn.size()), torn);
  for (const LogSeries& series : ReadRunLog(path)) {
    if (series.name != "train/loss") continue;
    ASSERT_EQ(series.points.size(), 4u);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(series.points[i].first, 5 * static_cast<int64_t>(i + 1));
  }
  // A fresh run starts a new file.
  job.max_iter = 5;
  TrainOptions overwrite;
  overwrite.overwrite = true;
  RunJob(job, overwrite);
  EXPECT_EQ(ReadRunLog(path)[0].points.size(), 1u);
  WriteFileAtomic(path, "{\"type\":\"start\",\"step\":0}\nnot a record\n{}\n");
  EXPECT_EQ(ErrorOf([&] { ReadRunLog(path); }),
            "not a run's log: " + path + ":2: no JSON from byte 2 on");
  const std::pair<std::string, std::string> bad[] = {
      {"{}", ": lacks the key 'type'"},
      {"3", ": must be an object, got 3"},
      {"{\"type\":\"step\",\"step\":-1}", ": step must lie in [0, 9223372036854775807], got -1"},
      {"{\"type\":\"step\",\"step\":\"x\"}", ": step must be a whole number, got 'x'"},
      {"{\"type\":\"step\",\"step\":1,\"values\":[]}", ": values must be an object, got a list"},
      {"{\"type\":\"step\",\"step\":1,\"values\":{\"l\":{}}}",
       ": values.l must be a number, got an object"},
      {"{\"type\":\"step\",\"step\":1e999}", ": a number in it is out of range"},
      {std::string(1'000'000, '['), ": lists and objects are nested more than 32 deep"},
  };
  for (const auto& [line, message] : bad) {
    WriteFileAtomic(path, line + "\n");
    ExpectContains(ErrorOf([&] { ReadRunLog(path); }), "not a run's log: " + path + ":1");
    ExpectContains(ErrorOf([&] { ReadRunLog(path); }), message);
  }
}
}  // namespace coracle::event_writer_test
