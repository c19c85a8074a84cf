#include <coracle/framework/io/extensions.h>
#include <coracle/framework/io/internal/wire.h>

namespace coracle::inline internal {
namespace {

constexpr int kFirstExtension = 1000;

}  // namespace

std::string WithoutExtensions(std::string_view fields) {
  const wire::Source source{"unknown fields", fields.data()};
  std::string kept;
  wire::Field field;
  for (wire::Reader in(fields, source); in.Next(&field);) {
    if (field.number() < kFirstExtension) kept.append(field.whole);
  }
  return kept;
}

}  // namespace coracle::inline internal
