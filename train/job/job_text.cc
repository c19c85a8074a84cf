#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/proto/job.pb.h>
#include <coracle/train/job/declared.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_node.h>
#include <coracle/train/job/job_parts.h>
#include <coracle/train/job/job_schema.h>
#include <coracle/train/job/optimizer_text.h>
#include <coracle/train/job/text_block.h>
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
using Node = JobNode;

constexpr uint64_t kMaxText = uint64_t{16} << 20;

void ReadCarry(const proto::JobConfig& job, const Node& at, JobConfig* config) {
  for (int i = 0; i < job.carry_size(); ++i) {
    const Node node = at.Child("carry", i);
    config->carry.push_back({job.carry(i).from(), job.carry(i).to(), node.where()});
  }
  if (!job.has_shuffle()) {
    config->shuffle = job.carry_size() == 0;
  } else if (job.shuffle() && job.carry_size() > 0) {
    at.Fail("shuffle", "must be false where states are carried: rows follow one another");
  }
}

MetricConfig ToMetric(const proto::MetricConfig& metric, const Node& at) {
  const bool scores =
      metric.kind() == proto::MetricConfig::ACCURACY || metric.kind() == proto::MetricConfig::AUC;
  const std::string& kind = proto::MetricConfig::Kind_Name(metric.kind());
  if (scores && !metric.has_label()) at.Fail("kind", kind + " needs label");
  if (!scores && metric.has_label()) at.Fail("label", "is not of the kind " + kind);
  if (metric.has_k() && metric.kind() != proto::MetricConfig::ACCURACY)
    at.Fail("k", "is not of the kind " + kind);
  return {metric.var(), metric.has_name() ? metric.name() : metric.var(),
          static_cast<MetricKind>(metric.kind()), metric.label(), metric.k()};
}

void ReadNames(const proto::JobConfig& job, const Node& at, JobConfig* config) {
  for (int i = 0; i < job.bind_size(); ++i) {
    const Node node = at.Child("bind", i);
    config->bind.push_back({job.bind(i).column(), job.bind(i).var(), node.where()});
  }
  for (int i = 0; i < job.metric_size(); ++i) {
    const auto& metric = job.metric(i);
    config->metrics.push_back(ToMetric(metric, at.Child("metric", i)));
  }
  config->deploy_inputs.assign(job.deploy().input().begin(), job.deploy().input().end());
  config->deploy_outputs.assign(job.deploy().output().begin(), job.deploy().output().end());
  config->deploy_stages.assign(job.deploy().stage().begin(), job.deploy().stage().end());
  if (config->deploy_inputs.empty() != config->deploy_outputs.empty())
    at.Fail("deploy", "needs both input and output");
}

RecomputeOptions ToRecompute(const proto::RecomputeConfig& recompute, const Node& at) {
  RecomputeOptions options;
  options.checkpoints.assign(recompute.checkpoint().begin(), recompute.checkpoint().end());
  if (recompute.has_memory_mb() == (recompute.checkpoint_size() > 0))
    at.FailHere("recompute needs either checkpoint or memory_mb");
  if (!recompute.has_memory_mb()) return options;
  options.memory_budget = static_cast<uint64_t>(recompute.memory_mb()) << 20;
  return options;
}

std::string DefaultName(const std::string& source) {
  std::string stem = fs::path(source).stem().string();
  return stem.empty() || source == "-" ? "job" : stem;
}

JobConfig FromProto(const proto::JobConfig& job, const Node& at, const std::string& source,
                    const std::string& directory) {
  CheckDeclared(at);
  if (job.has_model() && job.has_model_text())
    at.Fail("model_text", "and model cannot both be given");
  JobConfig config;
  config.source = source;
  config.directory = directory;
  config.name = job.has_name() ? job.name() : DefaultName(source);
  config.model = job.model();
  config.model_text = job.model_text();
  if (job.has_train()) config.train = ToData(job.train(), at.Child("train"), "train");
  if (job.has_test()) config.test = ToData(job.test(), at.Child("test"), "test");
  ReadNames(job, at, &config);
  if (!job.data_dir().empty())
    config.data_dir = (fs::path(directory) / job.data_dir()).lexically_normal().string();
  config.loss = job.loss();
  config.loss_name = job.loss_name();
  config.training = ToTraining(job, at);
  if (job.has_mixed_precision()) {
    const auto& precision = job.mixed_precision();
    config.mixed_precision = ToPrecision(precision, at.Child("mixed_precision"));
  }
  if (job.has_recompute()) {
    config.recompute = ToRecompute(job.recompute(), at.Child("recompute"));
  }
  const auto& distribute = job.distribute();
  config.distribute = {distribute.bucket_mb(), distribute.sync_batch_norm(),
                       distribute.shard_state(), distribute.local_sgd_steps()};
  config.batch_size = job.batch_size();
  config.test_batch_size = job.test_batch_size();
  config.max_iter = job.max_iter();
  config.epochs = job.epochs();
  config.test_interval = job.test_interval();
  config.display = job.display();
  config.snapshot_interval = job.snapshot_interval();
  config.keep_snapshots = job.keep_snapshots();
  config.snapshot_dir = job.snapshot_dir();
  config.output_dir = job.output_dir();
  config.random_seed = job.random_seed();
  config.shuffle = job.shuffle();
  ReadCarry(job, at, &config);
  ReadSolver(job, at, &config);
  config.drop_last = job.drop_last();
  config.prefetch = job.prefetch();
  return config;
}

}  // namespace

JobConfig ParseJobText(std::string_view text, const std::string& source,
                       const std::string& directory) {
  if (text.size() > kMaxText) ThrowInvalid(source + ": too long for a job text");
  const auto is_binary = [](char c) { return c >= 0 && c < ' ' && (c < '\t' || c > '\r'); };
  if (std::any_of(text.begin(), text.end(), is_binary))
    ThrowInvalid(source + ": a binary file, but a job is a text");
  const std::shared_ptr<const SchemaPool> schema = CurrentJobSchema();
  const std::unique_ptr<pb::Message> message = schema->New();
  Places places(text, source);
  ErrorList errors(places, *schema);
  pb::TextFormat::ParseInfoTree tree;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  parser.SetRecursionLimit(32);
  pb::LogSilencer silencer;
  const BlockedText blocked = SplitBlock(text, "model_text");
  if (!parser.ParseFromString(blocked.text, message.get())) errors.Throw();
  const Node root(*message, &tree, places);
  proto::JobConfig job;  // what job.proto declares; `root` reads the rest
  if (!job.ParseFromString(message->SerializeAsString()))
    throw InternalError("a job that was read does not match job.proto");
  JobConfig config = FromProto(job, root, source, directory);
  // Errors about the model give the lines of the job.
  if (blocked.first_line > 0)
    config.model_text.insert(0, static_cast<size_t>(blocked.first_line - 1), '\n');
  config.places = root.AllPlaces();
  if (!job.has_output_dir()) config.output_dir = DefaultOutputDirectory(config);
  config.text = text;
  return config;
}

bool LooksLikeJob(std::string_view text) {
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(std::min(text.size(), kMaxText)));
  Places places(text, "");
  const std::shared_ptr<const SchemaPool> schema = CurrentJobSchema();
  ErrorList ignored(places, *schema);
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
