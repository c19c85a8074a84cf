#pragma once
// Attrs and settings on the wire. Private to framework/io.

#include <coracle/framework/io/internal/wire.h>
#include <coracle/framework/ir/attribute.h>
#include <coracle/framework/ir/var.h>

namespace coracle {

// What to make of an attr that names a type and has no value. A file keeps it as it is; in text it
// means the type's zero.
enum class MissingValue { kKeepRaw, kZero };

// An OpDesc.Attr message. One that is more than a name, a known type and that type's value becomes
// a RawAttr. Throws kDataLoss when it has no name or no type.
NamedAttr DecodeAttr(std::string_view message, const wire::Source& source, MissingValue missing);
void EncodeAttr(int field_number, const NamedAttr& attr, wire::Encoder& out);

// TrainingAttr of proto/training.proto.
TrainingAttr DecodeTraining(std::string_view message, const wire::Source& source);
void EncodeTraining(int field_number, const TrainingAttr& training, wire::Encoder& out);

}  // namespace coracle
