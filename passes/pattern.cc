#include <coracle/framework/base/text.h>
#include <coracle/passes/match.h>
#include <fmt/format.h>

namespace coracle::inline internal {
namespace {

std::vector<std::string> Parts(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (const std::string& part : Split(text, separator)) {
    if (const std::string_view words = Trim(part); !words.empty()) parts.emplace_back(words);
  }
  return parts;
}

}  // namespace

Pattern::Pattern(std::string_view text) {
  for (std::string_view line : Parts(text, ')')) lines_.push_back(Parse(line));
}

// Parses "label: Slot=name, ... = type|type(Slot=name, ...".
Pattern::Line Pattern::Parse(std::string_view text) {
  const size_t colon = text.find(':'), equals = text.find(" = "), open = text.find('(', equals);
  if (colon == text.npos || equals == text.npos || open == text.npos)
    throw InternalError(fmt::format("a pattern has the line '{}'", text));
  Line line;
  line.label = text.substr(0, colon);
  line.outputs = ParseArgs(text.substr(colon + 1, equals - colon - 1), &line.more_outputs);
  for (std::string_view type : Parts(text.substr(equals + 3, open - equals - 3), '|'))
    line.types.emplace_back(type);
  line.inputs = ParseArgs(text.substr(open + 1), &line.more_inputs);
  return line;
}

std::vector<Pattern::Arg> Pattern::ParseArgs(std::string_view list, bool* more) {
  std::vector<Arg> args;
  for (std::string_view item : Parts(list, ',')) {
    const size_t equals = item.find('=');
    if (item == "...") {
      *more = true;
    } else if (equals == item.npos) {
      throw InternalError(fmt::format("a pattern has the slot '{}'", item));
    } else {
      const bool optional = item.back() == '?';
      if (optional) item.remove_suffix(1);
      args.push_back(
          {std::string(item.substr(0, equals)), std::string(item.substr(equals + 1)), optional});
    }
  }
  return args;
}

}  // namespace coracle::inline internal
