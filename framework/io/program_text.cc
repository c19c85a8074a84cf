// Programs as protobuf text, and as messages.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/internal/program_codec.h>
#include <coracle/framework/io/proto.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/file_fields.h>
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <memory>

namespace coracle {
namespace {

namespace pb = google::protobuf;

constexpr int kMaxTextDepth = 32;  // the schema needs 8
constexpr size_t kMaxErrors = 20;

// The text in double quotes that follows `before`; "" if there is none.
std::string QuotedAfter(const std::string& message, const std::string& before) {
  size_t start = message.find(before + "\"");
  if (start == std::string::npos) return "";
  start += before.size() + 1;
  size_t end = message.find('"', start);
  return end == std::string::npos ? "" : message.substr(start, end - start);
}

void AddEnumerators(const pb::EnumDescriptor& type, std::vector<std::string>* names) {
  for (int i = 0; i < type.value_count(); ++i) names->push_back(type.value(i)->name());
}

// Rewrites protobuf's message in Coracle's style and adds the nearest name.
std::string Explain(const std::string& message) {
  std::string type = QuotedAfter(message, "Message type ");
  std::string field = QuotedAfter(message, "has no field named ");
  if (!type.empty() && !field.empty()) {
    std::vector<std::string> names;
    const pb::Descriptor* descriptor =
        pb::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
    for (int i = 0; descriptor && i < descriptor->field_count(); ++i)
      names.push_back(descriptor->field(i)->name());
    size_t dot = type.rfind('.');
    return fmt::format("{}: no such field in {}{}", field,
                       dot == std::string::npos ? type : type.substr(dot + 1),
                       DidYouMean(field, names));
  }
  std::string enumerator = QuotedAfter(message, "Unknown enumeration value of ");
  if (!enumerator.empty()) {
    std::vector<std::string> names;
    AddEnumerators(*proto::AttrType_descriptor(), &names);
    AddEnumerators(*proto::VarType::Type_descriptor(), &names);
    return fmt::format("{}: no such value of {}{}", enumerator, QuotedAfter(message, "for field "),
                       DidYouMean(enumerator, names));
  }
  std::string text = message;
  if (!text.empty() && text.back() == '.') text.pop_back();
  if (text.size() > 1 && !std::isupper(static_cast<unsigned char>(text[1])))
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

class Errors : public pb::io::ErrorCollector {
 public:
  explicit Errors(std::string source) : source_(std::move(source)) {}
  void AddError(int line, int column, const std::string& message) override {
    if (++count_ > kMaxErrors) return;
    // -1: the error concerns the whole text.
    std::string where = line < 0 ? source_ : fmt::format("{}:{}:{}", source_, line + 1, column + 1);
    lines_.push_back(fmt::format("{}: {}", where, Explain(message)));
  }
  void AddWarning(int, int, const std::string&) override {}

  [[noreturn]] void Throw() const {
    std::string details;
    for (size_t i = 1; i < lines_.size(); ++i) details += (i > 1 ? "\n" : "") + lines_[i];
    ThrowInvalid(lines_.empty() ? source_ + ": cannot be parsed" : lines_.front(), details);
  }

 private:
  std::string source_;
  std::vector<std::string> lines_;
  size_t count_ = 0;
};

// Removes parts that text cannot express; returns a description of each kind, with counts.
class TextPreparer {
 public:
  std::vector<std::string> Run(proto::ProgramDesc* message) {
    size_t before = message->ByteSizeLong();
    message->DiscardUnknownFields();
    size_t unknown = before - message->ByteSizeLong();
    for (auto& block : *message->mutable_blocks()) {
      for (auto& var : *block.mutable_vars()) PrepareVar(&var);
      for (auto& op : *block.mutable_ops()) PrepareOp(&op);
    }
    std::vector<std::string> dropped;
    if (unknown > 0) dropped.push_back(fmt::format("{} bytes of unknown fields", unknown));
    if (attrs_ > 0) dropped.push_back(fmt::format("{} attrs of unknown kinds", attrs_));
    if (types_ > 0) dropped.push_back(fmt::format("{} unknown types of vars (as RAW)", types_));
    return dropped;
  }

 private:
  template <class Attrs>
  void RemoveIncomplete(Attrs* attrs) {
    int kept = 0;
    for (int i = 0; i < attrs->size(); ++i) {
      if (!attrs->Get(i).IsInitialized()) continue;
      if (i != kept) attrs->SwapElements(i, kept);
      ++kept;
    }
    attrs_ += static_cast<size_t>(attrs->size() - kept);
    attrs->DeleteSubrange(kept, attrs->size() - kept);
  }
  void PrepareVar(proto::VarDesc* var) {
    RemoveIncomplete(var->mutable_attrs());
    if (var->HasExtension(proto::training)) {
      auto* training = var->MutableExtension(proto::training);
      for (auto* setting : {training->mutable_initializer(), training->mutable_regularizer(),
                            training->mutable_gradient_clip(), training->mutable_error_clip()}) {
        RemoveIncomplete(setting->mutable_attrs());
      }
      if (!training->initializer().has_kind()) training->clear_initializer();
      if (!training->regularizer().has_kind()) training->clear_regularizer();
      if (!training->gradient_clip().has_kind()) training->clear_gradient_clip();
      if (!training->error_clip().has_kind()) training->clear_error_clip();
    }
    if (var->type().IsInitialized()) return;
    ++types_;
    var->mutable_type()->Clear();
    var->mutable_type()->set_type(proto::VarType::RAW);
  }
  void PrepareOp(proto::OpDesc* op) { RemoveIncomplete(op->mutable_attrs()); }

  size_t attrs_ = 0, types_ = 0;
};

void RemoveRaw(AttrList* attrs) {
  std::erase_if(*attrs,
                [](const NamedAttr& attr) { return std::holds_alternative<RawAttr>(attr.value); });
}

// Builds a new op, since removing attrs one by one takes quadratic time.
std::unique_ptr<OpDesc> WithoutBytes(const OpDesc& op) {
  AttrList attrs = op.attrs();
  RemoveRaw(&attrs);
  auto known = std::make_unique<OpDesc>(op.type(), op.inputs(), op.outputs(), std::move(attrs));
  FileFields::IsTarget(*known) = FileFields::IsTarget(op);
  return known;
}

void RemoveBytes(VarDesc* var) {
  if (FileFields::WireOf(*var)) {
    FileFields::MutableWire(*var).type_bytes.clear();
    FileFields::MutableWire(*var).unknown_fields.clear();
  }
  if (var->training().IsDefault()) return;
  TrainingAttr& training = var->MutableTraining();
  for (auto* setting : {&training.initializer, &training.regularizer, &training.gradient_clip})
    if (*setting) RemoveRaw(&(*setting)->attrs);
}

// Removes the parts that the reader kept as bytes because it does not know their meaning.
ProgramDesc WithoutBytes(const ProgramDesc& program) {
  ProgramDesc known = program;
  FileFields::SetUnknown(known, "");
  for (int b = 0; b < known.NumBlocks(); ++b) {
    BlockDesc& block = known.Block(b);
    FileFields::SetUnknown(block, "");
    for (size_t i = 0; i < block.NumVars(); ++i) RemoveBytes(&block.var(i));
    std::vector<std::unique_ptr<OpDesc>> ops = block.ReleaseOps();
    for (std::unique_ptr<OpDesc>& op : ops) op = WithoutBytes(*op);
    block.SetOps(std::move(ops));
  }
  return known;
}

// Converts to a message and returns whether protobuf can read the program, since it is stricter
// about unknown fields.
bool TryToProto(const ProgramDesc& program, proto::ProgramDesc* message) {
  // Names that are not UTF-8 are kept, without a log line from protobuf.
  pb::LogSilencer silencer;
  return message->ParsePartialFromString(SerializeProgram(program));
}

}  // namespace

proto::ProgramDesc internal::ToProto(const ProgramDesc& program) {
  proto::ProgramDesc message;
  if (!TryToProto(program, &message)) {
    throw Error(ErrorCode::kDataLoss,
                "the program holds fields that protobuf cannot read; only the binary form keeps "
                "them");
  }
  return message;
}

ProgramDesc internal::FromProto(const proto::ProgramDesc& message) {
  pb::LogSilencer silencer;
  return ParseProgram(message.SerializePartialAsString(), "message");
}

std::string ProgramToText(const ProgramDesc& program) {
  proto::ProgramDesc message;
  std::vector<std::string> damaged;
  if (!TryToProto(program, &message)) {
    message = ToProto(WithoutBytes(program));
    damaged.push_back("fields that protobuf cannot read");
  }
  pb::LogSilencer silencer;
  std::vector<std::string> dropped = TextPreparer().Run(&message);
  dropped.insert(dropped.end(), damaged.begin(), damaged.end());
  if (!dropped.empty())
    LogMessage(MessageLevel::kWarning, "program text leaves out " + Join(dropped, ", "));
  std::string text;
  pb::TextFormat::Printer printer;
  if (!printer.PrintToString(message, &text)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the program cannot be written as text: protobuf stopped after {}; the "
                            "binary form holds it",
                            HumanBytes(text.size())));
  }
  return text;
}

ProgramDesc ParseProgramText(std::string_view text, const std::string& source) {
  if (text.size() > kMaxProgramBytes) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{}: a program of {} exceeds the limit of {}", source,
                            HumanBytes(text.size()), HumanBytes(kMaxProgramBytes)));
  }
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  pb::LogSilencer silencer;
  Errors errors(source);
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kMaxTextDepth);
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  proto::ProgramDesc message;
  if (!parser.Parse(&stream, &message)) errors.Throw();
  return DecodeProgram(message.SerializeAsString(), source, MissingValue::kZero);
}

}  // namespace coracle
