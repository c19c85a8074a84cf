// Ops on strings, shifts of bits, and rounding to formats of few bits.
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace coracle::onnx {
namespace {

using proto::onnx::TensorProto;
using Strings = std::vector<std::string>;

std::string UpperCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

void ExportConcat(OpContext& op) {
  op.RequireOpset(20, "StringConcat");
  op.Out("Out", op.Node("StringConcat", {op.In("X"), op.In("Y")}));
}

void ExportNormalize(OpContext& op) {
  NodeAttrs attrs = {{"case_change_action", UpperCase(op.Attr<std::string>("case_change"))},
                     {"is_case_sensitive", op.Attr<bool>("is_case_sensitive")}};
  const auto stopwords = op.Attr<Strings>("stopwords");
  if (!stopwords.empty()) attrs.emplace_back("stopwords", stopwords);
  op.Out("Out", op.Node("StringNormalizer", {op.In("X")}, attrs));
}

void ExportSplit(OpContext& op) {
  op.RequireOpset(20, "StringSplit");
  NodeAttrs attrs = {{"delimiter", op.Attr<std::string>("delimiter")}};
  if (op.Attr<int64_t>("maxsplit") >= 0)
    attrs.emplace_back("maxsplit", op.Attr<int64_t>("maxsplit"));
  const Values results = op.Nodes("StringSplit", {op.In("X")}, 2, attrs);
  op.Out("Out", results[0]);
  op.Out("Count", results[1]);
}

void ExportMatch(OpContext& op) {
  op.RequireOpset(20, "RegexFullMatch");
  op.Out("Out",
         op.Node("RegexFullMatch", {op.In("X")}, {{"pattern", op.Attr<std::string>("pattern")}}));
}

void ExportVectorizer(OpContext& op) {
  NodeAttrs attrs = {{"mode", op.Attr<std::string>("mode")}};
  for (const char* name : {"min_gram_length", "max_gram_length", "max_skip_count"})
    attrs.emplace_back(name, op.Attr<int64_t>(name));
  for (const char* name : {"ngram_counts", "ngram_indexes"})
    attrs.emplace_back(name, op.Attr<Ints>(name));
  if (op.InType("X") == DType::kString)
    attrs.emplace_back("pool_strings", op.Attr<Strings>("pool_strings"));
  else
    attrs.emplace_back("pool_int64s", op.Attr<Ints>("pool_int64s"));
  const auto weights = op.Attr<std::vector<float>>("weights");
  if (!weights.empty()) attrs.emplace_back("weights", weights);
  op.Out("Out", op.Node("TfIdfVectorizer", {op.In("X")}, attrs));
}

// ONNX shifts only unsigned numbers.
void ExportShift(OpContext& op) {
  const DType dtype = op.InType("X");
  op.Require(dtype == DType::kUInt8 || dtype == DType::kUInt64,
             fmt::format("ONNX has no shift of {}", ToString(dtype)));
  const bool left = op.op().type() == "bitwise_left_shift";
  op.Out("Out",
         op.Node("BitShift", {op.In("X"), op.In("Y")}, {{"direction", left ? "LEFT" : "RIGHT"}}));
}

// To the type and back.
void ExportRound(OpContext& op) {
  const std::string name = UpperCase(op.Attr<std::string>("format"));
  TensorProto::DataType type{};
  op.Require(TensorProto::DataType_Parse(name, &type), "the format has no counterpart");
  const bool powers = type == TensorProto::FLOAT8E8M0;
  op.RequireOpset(powers ? 24 : type == TensorProto::FLOAT4E2M1 ? 23 : 19, "a cast to " + name);
  NodeAttrs attrs = {{"to", static_cast<int64_t>(type)}};
  if (type != TensorProto::FLOAT4E2M1) attrs.emplace_back("saturate", op.Attr<bool>("saturate"));
  if (powers) attrs.emplace_back("round_mode", op.Attr<std::string>("round_mode"));
  const Value small = op.Node("Cast", {op.In("X")}, attrs);
  op.Out("Out", op.Node("Cast", {small}, {{"to", ToDataType(op.InType("X"))}}));
}

constexpr ExportRow kRows[] = {
    {"bitwise_left_shift", ExportShift, "BitShift"},
    {"bitwise_right_shift", ExportShift, "BitShift"},
    {"regex_full_match", ExportMatch, "RegexFullMatch"},
    {"round_to_format", ExportRound, "Cast"},
    {"string_concat", ExportConcat, "StringConcat"},
    {"string_normalize", ExportNormalize, "StringNormalizer"},
    {"string_split", ExportSplit, "StringSplit"},
    {"tfidf_vectorizer", ExportVectorizer, "TfIdfVectorizer"},
};

}  // namespace

ExportRows TextRows() { return kRows; }

}  // namespace coracle::onnx
