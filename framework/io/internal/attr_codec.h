#pragma once
// Attrs and settings on the wire. Private to framework/io.

#include <coracle/framework/io/internal/wire.h>
#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/var.h>

namespace coracle::inline internal {

// How to read an attr that names a type but has no value. A file keeps it as it is; in text it
// means the zero of its type.
enum class MissingValue { kKeepRaw, kZero };

// Decodes an OpDesc.Attr message. A message with more than a name, a known type and a value of that
// type becomes a RawAttr. Throws kDataLoss if name or type is missing.
NamedAttr DecodeAttr(std::string_view message, const wire::Source& source, MissingValue missing);
void EncodeAttr(int field_number, const NamedAttr& attr, wire::Encoder& out);

// TrainingAttr of proto/training.proto.
TrainingAttr DecodeTraining(std::string_view message, const wire::Source& source);
void EncodeTraining(int field_number, const TrainingAttr& training, wire::Encoder& out);

}  // namespace coracle::inline internal
