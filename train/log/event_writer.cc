#include <coracle/framework/base/crc32c.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/proto/event_log.pb.h>
#include <coracle/train/log/event_writer.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

namespace coracle::inline internal {
namespace {

constexpr size_t kBuckets = 30;

double Now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

proto::LogEvent EventOf(int64_t step) {
  proto::LogEvent event;
  event.set_wall_time(Now());
  event.set_step(step);
  return event;
}

// Readers read the files of a directory in the order of their names.
std::string FileName(const std::string& directory) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::string name;
  for (int k = 0; name.empty() || FileExists(name); ++k) {
    name = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", directory,
                       static_cast<int64_t>(Now()), host[0] ? host.data() : "host", ::getpid(), k);
  }
  return name;
}

std::string LittleEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 255);
  return text;
}

void FillHistogram(const Tensor& values, proto::LogHistogram* histogram) {
  const Tensor doubles = PartsOf(values).Cast(DType::kFloat64);
  double min = INFINITY, max = -INFINITY, sum = 0, squares = 0, count = 0;
  for (double v : doubles.span<double>()) {
    if (!std::isfinite(v)) continue;
    min = std::min(min, v);
    max = std::max(max, v);
    sum += v;
    squares += v * v;
    ++count;
  }
  if (count == 0) min = max = 0;
  std::array<double, kBuckets> buckets{};
  const double width = (max - min) / kBuckets;
  for (double v : doubles.span<double>()) {
    if (!std::isfinite(v)) continue;
    const double place = width > 0 ? std::ceil((v - min) / width) - 1 : 0;
    ++buckets[static_cast<size_t>(std::clamp<double>(place, 0, kBuckets - 1))];
  }
  histogram->set_min(min);
  histogram->set_max(max);
  histogram->set_num(count);
  histogram->set_sum(sum);
  histogram->set_sum_squares(squares);
  for (size_t i = 0; i < kBuckets; ++i) {
    histogram->add_bucket_limit(i + 1 == kBuckets ? max : min + width * static_cast<double>(i + 1));
    histogram->add_bucket(buckets[i]);
  }
}

// Makes the nodes of a graph. Names may contain [A-Za-z0-9_./].
class GraphMaker {
 public:
  explicit GraphMaker(proto::LogGraph* graph) : graph_(graph) {
    graph->mutable_versions()->set_producer(22);
  }

  void Add(const BlockDesc& root) {
    for (size_t i = 0; i < root.NumOps(); ++i) AddOp(root, root.op(i));
  }

 private:
  std::string NodeName(std::string group, const std::string& name) {
    for (char c : name) {
      const bool kept = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
      group += kept ? c : '.';
    }
    std::string free = group;
    for (int k = 1; !taken_.insert(free).second; ++k) free = fmt::format("{}_{}", group, k);
    return free;
  }

  static const char* GroupOf(const OpDesc& op) {
    if (IsUpdate(op)) return "update/";
    return IsBackward(op) ? "backward/" : "forward/";
  }

  const std::string& Source(const BlockDesc& root, const std::string& var) {
    std::string& node = source_[var];
    if (!node.empty()) return node;
    const VarDesc* desc = root.FindVar(var);
    const bool kept = desc && desc->persistable();
    auto* made = graph_->add_node();
    node = NodeName(kept ? "variables/" : "inputs/", var);
    made->set_name(node);
    made->set_op(kept ? "Variable" : "Placeholder");
    return node;
  }

  void AddOp(const BlockDesc& root, const OpDesc& op) {
    std::vector<std::string> inputs;
    op.ForEachInput([&](const std::string& name) { inputs.push_back(Source(root, name)); });
    std::string first = op.type();
    for (const Slot& slot : op.outputs()) {
      if (slot.args.empty() || IsEmptyName(slot.args[0])) continue;
      first = slot.args[0];
      break;
    }
    auto* node = graph_->add_node();
    node->set_name(NodeName(GroupOf(op), first));
    node->set_op(op.type());
    for (const std::string& input : inputs) node->add_input(input);
    op.ForEachOutput([&](const std::string& name) { source_[name] = node->name(); });
  }

  proto::LogGraph* graph_;
  std::set<std::string> taken_;
  std::map<std::string, std::string> source_;  // variable -> node that writes it
};

}  // namespace

uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::string EventRecord(std::string_view event) {
  const std::string length = LittleEndian(event.size(), 8);
  return length + LittleEndian(MaskedCrc32c(length), 4) + std::string(event) +
         LittleEndian(MaskedCrc32c(event), 4);
}

EventWriter::EventWriter(const std::string& directory, int64_t first_step)
    : file_(FileName(directory), false) {
  proto::LogEvent version = EventOf(0);
  version.set_file_version("brain.Event:2");
  Write(version.SerializeAsString());
  proto::LogEvent start = EventOf(first_step);
  start.mutable_session_log()->set_status(proto::LogSession::START);
  Write(start.SerializeAsString());
}

void EventWriter::Write(const std::string& event) { file_.Append(EventRecord(event)); }

void EventWriter::Scalars(int64_t step, const std::vector<NamedValue>& values) {
  proto::LogEvent event = EventOf(step);
  for (const NamedValue& value : values) {
    auto* made = event.mutable_summary()->add_value();
    made->set_tag(value.name);
    made->set_simple_value(static_cast<float>(value.value));
  }
  Write(event.SerializeAsString());
}

void EventWriter::Histogram(int64_t step, const std::string& tag, const Tensor& values) {
  proto::LogEvent event = EventOf(step);
  auto* value = event.mutable_summary()->add_value();
  value->set_tag(tag);
  FillHistogram(values, value->mutable_histo());
  Write(event.SerializeAsString());
}

void EventWriter::Graph(const ProgramDesc& program) {
  proto::LogGraph graph;
  GraphMaker(&graph).Add(program.Root());
  proto::LogEvent event = EventOf(0);
  event.set_graph_def(graph.SerializeAsString());
  Write(event.SerializeAsString());
}

}  // namespace coracle::inline internal
