#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/job/data_fields.h>
#include <coracle/train/job/field_reader.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_fields.h>
#include <coracle/train/job/job_node.h>
#include <coracle/train/job/job_schema.h>
#include <coracle/train/job/optimizer_text.h>
#include <coracle/train/job/text_block.h>
#include <coracle/train/job/text_errors.h>
#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>

namespace coracle {
namespace {

namespace fs = std::filesystem;
namespace pb = google::protobuf;

constexpr uint64_t kMaxText = uint64_t{16} << 20;

std::string DefaultName(const std::string& source) {
  std::string stem = fs::path(source).stem().string();
  return stem.empty() || source == "-" ? "job" : stem;
}

}  // namespace

JobConfig ParseJobText(std::string_view text, const std::string& source,
                       const std::string& directory) {
  if (text.size() > kMaxText) ThrowInvalid(source + ": too long for a job text");
  const auto is_binary = [](char c) { return c >= 0 && c < ' ' && (c < '\t' || c > '\r'); };
  if (std::any_of(text.begin(), text.end(), is_binary))
    ThrowInvalid(source + ": a binary file, but a job is a text");
  const std::shared_ptr<const SchemaPool> schema = CurrentJobSchema();
  TextFile file;
  file.source = source;
  file.text = text;
  file.columns = TextColumns(text);
  file.message = schema->New();
  TextErrors errors(file, *schema);
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&file.tree);
  parser.SetRecursionLimit(32);
  pb::LogSilencer silencer;
  const BlockedText blocked = SplitBlock(text, "model_text");
  if (!parser.ParseFromString(blocked.text, file.message.get())) errors.Throw();
  const JobNode root{Node(file)};
  JobConfig config;
  config.name = DefaultName(source);
  config.source = source;
  config.directory = directory;
  config.text = text;
  config.places = root.AllPlaces();
  ReadFields(root, JobFields(), "job", FieldPlaces(config.places), &config);
  InheritTrainData(root, &config);
  ReadOptimizers(root, &config.training);
  // Errors about the model give the lines of the job.
  if (blocked.first_line > 0)
    config.model_text.insert(0, static_cast<size_t>(blocked.first_line - 1), '\n');
  if (!config.data_dir.empty())
    config.data_dir = (fs::path(directory) / config.data_dir).lexically_normal().string();
  if (!root.Has("output_dir")) config.output_dir = DefaultOutputDirectory(config);
  return config;
}

bool LooksLikeJob(std::string_view text) {
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(std::min(text.size(), kMaxText)));
  const std::shared_ptr<const SchemaPool> schema = CurrentJobSchema();
  const TextFile file;
  TextErrors ignored(file, *schema);
  pb::io::Tokenizer tokens(&stream, &ignored);
  tokens.set_comment_style(pb::io::Tokenizer::SH_COMMENT_STYLE);
  int depth = 0;
  while (tokens.Next() && tokens.current().type != pb::io::Tokenizer::TYPE_END) {
    const std::string& token = tokens.current().text;
    if (token == "{" || token == "<") ++depth;
    if (token == "}" || token == ">") --depth;
    if (depth != 0 || tokens.current().type != pb::io::Tokenizer::TYPE_IDENTIFIER) continue;
    if (token == "name" || tokens.previous().text == ":") continue;  // both have names; a value
    return schema->root()->FindFieldByName(token) != nullptr;
  }
  return false;
}

JobConfig ReadJob(const std::string& path) {
  std::string directory = fs::path(path).parent_path().string();
  return ParseJobText(ReadFileOrStdin(path, kMaxText), path == "-" ? "standard input" : path,
                      directory.empty() || path == "-" ? "." : directory);
}

}  // namespace coracle
