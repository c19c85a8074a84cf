#include <coracle/convert/caffe/text.h>
#include <coracle/convert/caffe/upgrade.h>
#include <coracle/convert/for_model.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/text_hints.h>
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cctype>
#include <unordered_set>

namespace coracle::caffe {
namespace {

namespace pb = google::protobuf;
using proto::caffe::NetStateRule;

constexpr size_t kMaxText = size_t{1} << 26;
constexpr int kMaxDepth = 32;

// The first quoted text after `marker`.
std::string QuotedAfter(const std::string& message, const std::string& marker) {
  size_t begin = message.find(marker + "\"");
  if (begin == std::string::npos) return "";
  begin += marker.size() + 1;
  const size_t end = message.find('"', begin);
  return end == std::string::npos ? "" : message.substr(begin, end - begin);
}

std::vector<std::string> FieldNames(const pb::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

std::vector<std::string> Enumerators(const pb::Descriptor& type, const std::string& field) {
  std::vector<std::string> names;
  const pb::FieldDescriptor* found = type.FindFieldByName(field);
  for (int i = 0; found && found->enum_type() && i < found->enum_type()->value_count(); ++i)
    names.push_back(found->enum_type()->value(i)->name());
  return names;
}

// The values of all enum fields of that name: protobuf does not say which message it means.
std::vector<std::string> EnumeratorsOfAny(const pb::FileDescriptor& file,
                                          const std::string& field) {
  std::vector<std::string> names;
  for (int i = 0; i < file.message_type_count(); ++i) {
    for (const std::string& name : Enumerators(*file.message_type(i), field))
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// A field that the schema does not have.
struct UnknownField {
  int line = 0, column = 0;
  std::string message = {};  // the type of the message with the field
  std::string error;
};

// Keeps the first error, in our wording, and the unknown fields.
class FirstError : public pb::io::ErrorCollector {
 public:
  FirstError(const TextPlaces& places, const pb::Descriptor& root) : places_(places), root_(root) {}

  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (error.empty()) error = Worded(line, column, message);
  }
  void AddWarning(int line, pb::io::ColumnNumber column, const std::string& message) override {
    constexpr size_t kMost = 10000;
    const std::string what = Worded(line, column, message);
    const bool brace = what.find("closing brace") != std::string::npos;
    if (error.empty() && (brace || unknown.size() == kMost)) error = what;
    if (unknown.size() == kMost) return;
    unknown.push_back({line, column, QuotedAfter(message, "Message type "), what});
  }

  std::string error;
  std::vector<UnknownField> unknown;

 private:
  std::string Worded(int line, pb::io::ColumnNumber column, const std::string& message) const {
    std::string name;
    const std::string what = Reword(message, &name);
    return places_.At(line, column, name) + ": " + what;
  }

  std::string Reword(std::string message, std::string* name) const {
    const pb::FileDescriptor& file = *root_.file();
    const std::string type = QuotedAfter(message, "Message type ");
    *name = QuotedAfter(message, "has no field named ");
    if (!name->empty()) {
      const pb::Descriptor* found = file.pool()->FindMessageTypeByName(type);
      const bool of_net = found && IsOfRootAlone(root_, *found, *name);
      const std::string hint = of_net  ? "; is a closing brace missing before it?"
                               : found ? DidYouMean(*name, FieldNames(*found))
                                       : "";
      return fmt::format("{}: no such field in Caffe's {}{}", *name, found ? found->name() : type,
                         hint);
    }
    *name = QuotedAfter(message, "Unknown enumeration value of ");
    if (!name->empty()) {
      const std::string field = QuotedAfter(message, "for field ");
      const std::vector<std::string> known = EnumeratorsOfAny(file, field);
      return fmt::format("{}: no such value of {}{}; known: {}", *name, field,
                         DidYouMean(*name, known), Join(known, ", "));
    }
    *name = QuotedAfter(message, "Non-repeated field ");
    if (!name->empty()) return *name + " is given twice";
    if (message.find("recursion limit") != std::string::npos)
      return "messages are nested too deeply";
    if (message.ends_with("got: "))
      message.replace(message.size() - 5, 5,
                      "got the end of the text; is a closing brace missing?");
    while (!message.empty() && message.back() == '.') message.pop_back();
    if (!message.empty())
      message[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(message[0])));
    return message;
  }

  const TextPlaces& places_;
  const pb::Descriptor& root_;
};

// Throws if messages are nested too deeply: protobuf does not limit that within unknown fields.
void CheckDepth(std::string_view text, const TextPlaces& places, FirstError* errors) {
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  FirstError ignored(places, *proto::caffe::NetParameter::descriptor());
  pb::io::Tokenizer tokens(&stream, &ignored);
  tokens.set_comment_style(pb::io::Tokenizer::SH_COMMENT_STYLE);
  int depth = 0;
  while (tokens.Next()) {
    const std::string& token = tokens.current().text;
    if (token == "{" || token == "<" || token == "[") ++depth;
    if (token == "}" || token == ">" || token == "]") --depth;
    if (depth <= kMaxDepth) continue;
    errors->AddError(tokens.current().line, tokens.current().column, "recursion limit");
    ThrowInvalid(errors->error);
  }
}

// A text, with the fields that the schema does not have.
struct ParsedText {
  std::shared_ptr<TextPlaces::Tree> tree;
  std::vector<UnknownField> unknown;
};

ParsedText Parse(std::string_view text, const TextPlaces& places, pb::Message* message) {
  if (text.size() > kMaxText) ThrowInvalid(places.source() + ": too long for a text of Caffe");
  const auto is_binary = [](char c) { return c >= 0 && c < ' ' && (c < '\t' || c > '\r'); };
  if (std::any_of(text.begin(), text.end(), is_binary)) {
    ThrowInvalid(places.source() +
                 ": a binary file, but a .prototxt is a text; weights are the second argument");
  }
  auto tree = std::make_shared<TextPlaces::Tree>();
  FirstError errors(places, *message->GetDescriptor());
  CheckDepth(text, places, &errors);
  pb::TextFormat::Parser parser;
  parser.AllowUnknownField(true);
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(tree.get());
  parser.SetRecursionLimit(kMaxDepth);
  pb::LogSilencer silencer;
  pb::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&input, message) || !errors.error.empty())
    ThrowInvalid(errors.error.empty() ? places.source() + ": not a text of Caffe" : errors.error);
  return {tree, std::move(errors.unknown)};
}

// Whether a field only says how pictures are read: other versions of Caffe have many of them. A
// name that is close to a known one is a mistake.
bool IsOfReading(const UnknownField& field) {
  const std::string& type = field.message;
  const bool data = type.ends_with(".TransformationParameter") ||
                    type.ends_with(".AnnotatedDataParameter") || type.ends_with(".DataParameter") ||
                    type.ends_with(".ImageDataParameter") || type.ends_with(".MemoryDataParameter");
  return data && field.error.find("did you mean") == std::string::npos;
}

// Throws for the first unknown field, unless its layer is not converted anyway, or the field
// belongs to the reading of data. `layers` are in the order of the text.
void RefuseUnknownFields(const std::vector<UnknownField>& unknown, const TextPlaces::Tree& tree,
                         const pb::FieldDescriptor& field, std::vector<Layer>& layers) {
  std::vector<std::pair<int, int>> begins;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto at = tree.GetLocation(&field, static_cast<int>(i));
    begins.push_back({at.line, at.column});
  }
  for (const UnknownField& one : unknown) {
    const auto next =
        std::upper_bound(begins.begin(), begins.end(), std::pair{one.line, one.column});
    if (one.message.ends_with(".NetParameter") || next == begins.begin()) ThrowInvalid(one.error);
    Layer& layer = layers[static_cast<size_t>(next - begins.begin()) - 1];
    if (!IsConverted(layer.def.type())) continue;
    if (layer.def.type().empty() || !IsOfReading(one)) ThrowInvalid(one.error);
    layer.unknown.push_back(one.error);
  }
}

std::string PlaceOf(const TextPlaces::Tree& tree, const TextPlaces& places,
                    const pb::FieldDescriptor& field, int index) {
  const auto location = tree.GetLocation(&field, field.is_repeated() ? std::max(index, 0) : -1);
  return location.line < 0 ? "" : places.At(location.line, location.column);
}

using Stages = std::unordered_set<std::string>;  // of a state, which may have thousands

bool Holds(const NetStateRule& rule, const proto::caffe::NetState& state, const Stages& stages) {
  if (rule.has_phase() && rule.phase() != state.phase()) return false;
  if (rule.has_min_level() && state.level() < rule.min_level()) return false;
  if (rule.has_max_level() && state.level() > rule.max_level()) return false;
  const auto has = [&](const std::string& stage) { return stages.count(stage) > 0; };
  return std::all_of(rule.stage().begin(), rule.stage().end(), has) &&
         std::none_of(rule.not_stage().begin(), rule.not_stage().end(), has);
}

bool IsIncluded(const Layer& layer, const proto::caffe::NetState& state, const Stages& stages) {
  const auto holds = [&](const NetStateRule& rule) { return Holds(rule, state, stages); };
  if (layer.def.include_size() > 0 && layer.def.exclude_size() > 0)
    layer.Fail({"exclude"}, "include and exclude exclude each other");
  if (layer.def.include_size() > 0)
    return std::any_of(layer.def.include().begin(), layer.def.include().end(), holds);
  return std::none_of(layer.def.exclude().begin(), layer.def.exclude().end(), holds);
}

}  // namespace

TextPlaces::TextPlaces(std::string_view text, std::string source)
    : text_(text), columns_(text), source_(std::move(source)) {}

std::string TextPlaces::At(int line, int column, const std::string& name) const {
  if (line < 0) return source_;
  if (static_cast<size_t>(line) >= columns_.lines())
    return fmt::format("{}:{}:{}", source_, line + 1, std::max(column, 0) + 1);
  const size_t begin = columns_.LineBegin(static_cast<size_t>(line));
  size_t byte = columns_.OffsetOf(line, column);
  // protobuf reports a wrong name only after reading past it.
  const size_t named = name.empty() ? std::string::npos : text_.rfind(name, byte);
  if (named != std::string::npos && named >= begin) byte = named;
  return fmt::format("{}:{}:{}", source_, line + 1, byte - begin + 1);
}

std::string Layer::Where(std::initializer_list<const char*> path) const {
  const pb::Descriptor* type = def.GetDescriptor();
  const TextPlaces::Tree* at = tree;
  std::string place = where;
  for (const char* name : path) {
    const pb::FieldDescriptor* field = type ? type->FindFieldByName(name) : nullptr;
    if (!field || !at) break;
    const std::string found = PlaceOf(*at, *places, *field, 0);
    if (found.empty()) break;
    place = found;
    type = field->message_type();
    if (type) at = at->GetTreeForNested(field, field->is_repeated() ? 0 : -1);
  }
  return place;
}

void Layer::Fail(std::initializer_list<const char*> path, const std::string& what) const {
  ThrowInvalid(fmt::format("{}: layer {} ({}): {}", Where(path), Quote(def.name()),
                           PrintableLine(def.type()), what));
}

Net ParseNet(std::string_view text, const std::string& source) {
  return ForModel(source, [&] {
    auto places = std::make_shared<TextPlaces>(text, source);
    proto::caffe::NetParameter message;
    const auto [tree, unknown] = Parse(text, *places, &message);
    std::vector<Layer> at;  // positions of the layers, old ones first as in UpgradeLayers
    const bool old = message.layers_size() > 0;
    const auto* field = message.GetDescriptor()->FindFieldByName(old ? "layers" : "layer");
    const int count = old ? message.layers_size() : message.layer_size();
    for (int i = 0; i < count; ++i) {
      Layer layer;
      layer.places = places;
      layer.where = PlaceOf(*tree, *places, *field, i);
      if (layer.where.empty()) layer.where = source;
      if (!old) layer.tree = tree->GetTreeForNested(field, i);
      layer.def.set_type(old ? "" : message.layer(i).type());
      at.push_back(std::move(layer));
    }
    RefuseUnknownFields(unknown, *tree, *field, at);
    Net net = UpgradeLayers(std::move(message), std::move(at), source);
    net.tree = tree;
    return net;
  });
}

Net UpgradeNet(proto::caffe::NetParameter message, const std::string& source,
               const std::string& where) {
  Layer here;
  here.where = where;
  const int count = std::max(message.layers_size(), message.layer_size());
  std::vector<Layer> at(static_cast<size_t>(count), here);
  return UpgradeLayers(std::move(message), std::move(at), source);
}

std::string SolverText::Where(const char* field, int index) const {
  const auto* found = def.GetDescriptor()->FindFieldByName(field);
  const std::string place = found ? PlaceOf(*tree, *places, *found, index) : "";
  return place.empty() ? places->source() : place;
}

void SolverText::Fail(const char* field, const std::string& what, int index) const {
  ThrowInvalid(fmt::format("{}: {} {}", Where(field, index), field, what));
}

SolverText ParseSolver(std::string_view text, const std::string& source) {
  return ForModel(source, [&] {
    SolverText solver;
    solver.places = std::make_shared<TextPlaces>(text, source);
    ParsedText parsed = Parse(text, *solver.places, &solver.def);
    if (!parsed.unknown.empty()) ThrowInvalid(parsed.unknown[0].error);
    solver.tree = parsed.tree;
    if (solver.def.has_solver_type()) {
      if (solver.def.has_type())
        solver.Fail("solver_type", "is the old form of type, which is given too");
      solver.def.set_type(SolverTypeName(solver.def.solver_type()));
      solver.def.clear_solver_type();
    }
    return solver;
  });
}

bool LooksLikeSolver(std::string_view text) {
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(std::min(text.size(), kMaxText)));
  const TextPlaces places("", "");
  const auto& net = *proto::caffe::NetParameter::descriptor();
  const auto& solver = *proto::caffe::SolverParameter::descriptor();
  FirstError ignored(places, net);
  pb::io::Tokenizer tokens(&stream, &ignored);
  tokens.set_comment_style(pb::io::Tokenizer::SH_COMMENT_STYLE);
  int depth = 0;
  std::string before;
  while (tokens.Next()) {
    const std::string token = tokens.current().text;
    if (token == "{" || token == "<") ++depth;
    if (token == "}" || token == ">") --depth;
    if (depth == 0 && tokens.current().type == pb::io::Tokenizer::TYPE_IDENTIFIER &&
        before != ":") {
      const bool in_net = net.FindFieldByName(token), in_solver = solver.FindFieldByName(token);
      if (in_net != in_solver) return in_solver;
    }
    before = token;
  }
  return false;
}

std::vector<Layer> LayersOf(const Net& net, const proto::caffe::NetState& state) {
  const Stages stages(state.stage().begin(), state.stage().end());
  std::vector<Layer> layers;
  for (const Layer& layer : net.layers)
    if (IsIncluded(layer, state, stages)) layers.push_back(layer);
  return layers;
}

}  // namespace coracle::caffe
