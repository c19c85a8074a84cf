#include <coracle/framework/base/crc32c.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/snapshot/manifest.h>
#include <coracle/train/run/snapshot/manifest_json.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle::inline internal {
namespace {

constexpr int kVersion = 2;
constexpr const char* kFormat = "coracle snapshot";

std::string Hex(uint32_t crc) { return fmt::format("{:08x}", crc); }

Json ToJson(const EvaluationRecord& evaluation) {
  Json values = Json::array();
  for (const NamedValue& value : evaluation.values)
    values.push_back({{"name", Utf8(value.name)}, {"value", JsonNumber(value.value)}});
  return {{"set", Utf8(evaluation.set)}, {"step", evaluation.step}, {"values", values}};
}

Json Variables(const ProgramDesc& main) {
  Json list = Json::array();
  for (const std::string& name : PersistableNames(main)) {
    const VarDesc& var = *main.Root().FindVar(name);
    list.push_back({{"name", Utf8(name)},
                    {"dtype", ToString(var.dtype())},
                    {"shape", var.shape().ToVector()}});
  }
  return list;
}

uint64_t HexOf(const JsonReader& json) {
  const std::string text = json.Text();
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != text.npos)
    json.Fail("must be 16 hexadecimal digits, got " + Quote(text));
  return std::stoull(text, nullptr, 16);
}

TrainSnapshot FromJson(const JsonReader& json) {
  TrainSnapshot s;
  const JsonReader data = json.At("data"), random = json.At("random"), best = json.At("best");
  const JsonReader machine = json.At("machine");
  s.job = json.At("job").Text();
  s.step = json.At("step").Integer(0);
  s.epoch = json.At("epoch").Integer(0);
  s.data = data.At("source").Text();
  if (data.Has("fingerprint")) s.data_fingerprint = HexOf(data.At("fingerprint"));
  s.rows = data.At("rows").Integer(0);
  s.position = data.At("position").Integer(0);
  s.batch_size = data.At("batch_size").Integer(0);
  s.shuffle = data.At("shuffle").Bool();
  s.drop_last = data.At("drop_last").Bool();
  s.seed = random.At("seed").Unsigned();
  s.random_step = random.At("step").Unsigned();
  s.threads = static_cast<int>(machine.At("threads").Integer(0, INT32_MAX));
  s.instructions = machine.At("instructions").Text();
  s.ranks = machine.Has("ranks") ? static_cast<int>(machine.At("ranks").Integer(1, INT32_MAX)) : 1;
  for (const JsonReader& evaluation : json.At("evaluations").Items()) {
    EvaluationRecord& record = s.evaluations.emplace_back();
    record.set = evaluation.At("set").Text();
    record.step = evaluation.At("step").Integer(0);
    for (const JsonReader& value : evaluation.At("values").Items())
      record.values.push_back({value.At("name").Text(), value.At("value").Number()});
  }
  s.best.metric = best.At("metric").Text();
  s.best.value = best.At("value").Number();
  s.best.step = best.At("step").Integer(0);
  s.best.worse = best.At("worse").Integer(0);
  double counted = s.best.metric.empty() ? NAN : s.best.value;
  if (best.Has("counted")) counted = best.At("counted").Number();  // older versions have none
  if (!std::isnan(counted)) s.best.counted = counted;
  s.best.counted_metric =
      best.Has("counted_metric") ? best.At("counted_metric").Text() : s.best.metric;
  if (!json.Has("non_finite")) return s;  // older versions do not have it
  const JsonReader non_finite = json.At("non_finite");
  s.non_finite.steps = non_finite.At("steps").Integer(0);
  s.non_finite.first = non_finite.At("first").Integer(0);
  s.non_finite.in_a_row = non_finite.At("in_a_row").Integer(0);
  return s;
}

// The files of a snapshot are next to its manifest: a name must not lead to another directory.
FileRecord RecordOf(const std::string& name, const JsonReader& record) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos ||
      name.find('\0') != name.npos)
    record.Fail("is not the name of a file next to it");
  const std::string crc = record.At("crc32c").Text();
  if (crc.size() != 8 || crc.find_first_not_of("0123456789abcdef") != crc.npos)
    record.At("crc32c").Fail("must be 8 hexadecimal digits, got " + Quote(crc));
  return {record.At("bytes").Unsigned(), static_cast<uint32_t>(std::stoul(crc, nullptr, 16))};
}

// Adds the manifest's checksum, which covers everything else in it.
std::string Seal(Json manifest) {
  manifest.erase("checksum");
  manifest["checksum"] = Hex(Crc32c(manifest.dump()));
  return manifest.dump(2) + "\n";
}

}  // namespace

Json StateJson(const TrainSnapshot& s) {
  Json evaluations = Json::array();
  for (const EvaluationRecord& evaluation : s.evaluations)
    evaluations.push_back(ToJson(evaluation));
  Json data = {{"source", Utf8(s.data)},     {"rows", s.rows},       {"position", s.position},
               {"batch_size", s.batch_size}, {"shuffle", s.shuffle}, {"drop_last", s.drop_last}};
  if (s.data_fingerprint != 0) data["fingerprint"] = fmt::format("{:016x}", s.data_fingerprint);
  return {
      {"format", kFormat},
      {"version", kVersion},
      {"job", Utf8(s.job)},
      {"step", s.step},
      {"epoch", s.epoch},
      {"data", data},
      {"random", {{"seed", s.seed}, {"step", s.random_step}}},
      {"machine", {{"threads", s.threads}, {"instructions", s.instructions}, {"ranks", s.ranks}}},
      {"evaluations", evaluations},
      {"best",
       {{"metric", Utf8(s.best.metric)},
        {"value", JsonNumber(s.best.value)},
        {"step", s.best.step},
        {"counted", JsonNumber(s.best.counted.value_or(NAN))},
        {"worse", s.best.worse},
        {"counted_metric", Utf8(s.best.counted_metric)}}},
      {"non_finite",
       {{"steps", s.non_finite.steps},
        {"first", s.non_finite.first},
        {"in_a_row", s.non_finite.in_a_row}}}};
}

void ThrowDamaged(const std::string& file, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, fmt::format("damaged snapshot: {}: {}", file, what));
}

std::string WriteManifest(const Manifest& manifest, const ProgramDesc& main) {
  Json json = StateJson(manifest.state);
  json["variables"] = Variables(main);
  for (const auto& [name, record] : manifest.files)
    json["files"][name] = {{"bytes", record.bytes}, {"crc32c", Hex(record.crc)}};
  return Seal(json);
}

Manifest ParseManifest(const std::string& text, const std::string& file) {
  try {
    const JsonReader json(text, file);
    if (!json.Has("format") || json.At("format").json() != kFormat)
      json.Fail("not the manifest of a snapshot");
    if (const Json& version = json.At("version").json(); version != kVersion) {
      throw Error(ErrorCode::kUnimplemented,
                  fmt::format("{}: a snapshot of version {}; this coracle reads version {}", file,
                              version.dump().substr(0, 40), kVersion));
    }
    if (Seal(json.json()) != text) json.Fail("its checksum does not agree with its contents");
    Manifest manifest{FromJson(json), {}};
    for (const auto& [name, record] : json.At("files").Members())
      manifest.files[name] = RecordOf(name, record);
    return manifest;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kDataLoss) throw;
    throw e.WithPrefix("damaged snapshot");
  }
}

}  // namespace coracle::inline internal
