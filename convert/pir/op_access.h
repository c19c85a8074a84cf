#pragma once
// Operands and attributes of an op for the functions that read ops without a row.

#include <coracle/convert/pir/op_reader.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <variant>
#include <vector>

namespace coracle::pir {

template <class T>
T Get(const ProgramBuilder& builder, const Op& op, const char* name, const T& otherwise) {
  const Attribute* value = op.Find(name);
  if (!value) return otherwise;
  return std::get<T>(ConvertTo(builder, op, name, *value, AttrTypeOf<T>()));
}

inline std::vector<int64_t> GetInts(const ProgramBuilder& builder, const Op& op, const char* name) {
  return Get<std::vector<int64_t>>(builder, op, name, {});
}

// Refuses attributes other than these, so that none is lost.
inline void AllowAttrs(const ProgramBuilder& builder, const Op& op,
                       std::initializer_list<std::string_view> known) {
  for (const Attr& attr : op.attrs) {
    if (std::find(known.begin(), known.end(), attr.name) != known.end()) continue;
    builder.Refuse(op, fmt::format("the attribute {} = {} is unknown", Quote(attr.name),
                                   ToString(attr.value)));
  }
}

inline ValuePtr Needed(const ProgramBuilder& builder, const Op& op, size_t i) {
  ValuePtr value = builder.Operand(op, i);
  if (!value) builder.Refuse(op, fmt::format("operand {} is absent", i));
  return value;
}

inline const Result& OnlyResult(const ProgramBuilder& builder, const Op& op) {
  if (op.results.size() != 1)
    builder.Refuse(op, fmt::format("it has {} results, not one", op.results.size()));
  return op.results[0];
}

}  // namespace coracle::pir
