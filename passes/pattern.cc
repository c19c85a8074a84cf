#include <coracle/passes/match.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

std::string_view TrimView(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \n") + 1 - begin);
}

std::vector<std::string_view> Parts(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (const auto part = TrimView(text.substr(0, end)); !part.empty()) parts.push_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace

Pattern::Pattern(std::string_view text) {
  for (std::string_view line : Parts(text, ')')) lines_.push_back(Parse(line));
}

// "label: Slot=name, ... = type|type(Slot=name, ..."
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

}  // namespace coracle
