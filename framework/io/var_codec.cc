#include <coracle/framework/base/text.h>
#include <coracle/framework/io/internal/attr_codec.h>
#include <coracle/framework/io/internal/var_codec.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/proto/framework.pb.h>
#include <coracle/proto/training.pb.h>
#include <fmt/format.h>

#include <optional>

namespace coracle::inline internal {
namespace {

using wire::Encoder;
using wire::Field;
using wire::Reader;
using wire::Source;
using wire::Tag;
using TypeProto = proto::VarType;
using TensorProto = proto::VarType::TensorDesc;
using LoDProto = proto::VarType::LoDTensorDesc;  // LoDTensorArrayDesc has the same numbers
using VarProto = proto::VarDesc;

static_assert(int{LoDProto::kTensorFieldNumber} ==
              int{TypeProto::LoDTensorArrayDesc::kTensorFieldNumber});
static_assert(int{LoDProto::kLodLevelFieldNumber} ==
              int{TypeProto::LoDTensorArrayDesc::kLodLevelFieldNumber});

// The field of VarType that describes the tensors of each kind; 0: no such field.
int TensorField(VarType type) {
  switch (static_cast<int>(type)) {
    case TypeProto::LOD_TENSOR:
      return TypeProto::kLodTensorFieldNumber;
    case TypeProto::SELECTED_ROWS:
      return TypeProto::kSelectedRowsFieldNumber;
    case TypeProto::LOD_TENSOR_ARRAY:
      return TypeProto::kTensorArrayFieldNumber;
    case TypeProto::STRING:
      return TypeProto::kStringFieldNumber;
    case TypeProto::STRINGS:
      return TypeProto::kStringsFieldNumber;
    case TypeProto::VOCAB:
      return TypeProto::kVocabFieldNumber;
    case TypeProto::SPARSE_COO:
      return TypeProto::kSparseCooFieldNumber;
    case TypeProto::SPARSE_CSR:
      return TypeProto::kSparseCsrFieldNumber;
    default:
      return 0;
  }
}

bool HasLoD(VarType type) {
  return type == VarType::kLoDTensor || type == VarType::kLoDTensorArray;
}

struct DecodedType {
  VarMeta meta;
  bool lod_level_present = false;
  bool has_odd_dim = false;  // below -1
};

void SetTensor(std::string_view message, const Source& source, DecodedType* type) {
  WireTensorDesc desc = DecodeTensorDesc(message, source);
  if (desc.dims.size() > static_cast<size_t>(Shape::kMaxRank)) {
    ThrowInvalid(
        fmt::format("has rank {}; the highest rank is {}", desc.dims.size(), Shape::kMaxRank));
  }
  for (int64_t& dim : desc.dims) {
    if (dim >= -1) continue;
    dim = -1;
    type->has_odd_dim = true;
  }
  type->meta.dtype = static_cast<DType>(desc.dtype);
  type->meta.shape = Shape(desc.dims);
}

void SetLoDTensor(std::string_view message, const Source& source, DecodedType* type) {
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == Tag(LoDProto::kTensorFieldNumber, wire::kBytes)) {
      SetTensor(field.bytes, source, type);
    } else if (field.tag == Tag(LoDProto::kLodLevelFieldNumber, wire::kVarint)) {
      type->meta.lod_level = field.Int32();
      type->lod_level_present = true;
    }
  }
}

DecodedType DecodeType(std::string_view message, const Source& source) {
  DecodedType type;
  std::optional<int32_t> kind;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == Tag(TypeProto::kTypeFieldNumber, wire::kVarint)) kind = field.Int32();
  }
  if (!kind) ThrowInvalid("has no type");
  type.meta.type = static_cast<VarType>(*kind);
  int tensor_field = TensorField(type.meta.type);
  for (Reader in(message, source); in.Next(&field);) {
    if (field.number() != tensor_field || field.type() != wire::kBytes) continue;
    if (HasLoD(type.meta.type))
      SetLoDTensor(field.bytes, source, &type);
    else
      SetTensor(field.bytes, source, &type);
  }
  return type;
}

void EncodeType(const VarMeta& meta, bool lod_level_present, Encoder& out) {
  out.Int(TypeProto::kTypeFieldNumber, static_cast<int32_t>(meta.type));
  int tensor_field = TensorField(meta.type);
  if (tensor_field == 0) return;
  out.Message(tensor_field, [&] {
    if (!HasLoD(meta.type)) return EncodeTensorDesc(meta.dtype, meta.shape, out);
    out.Message(LoDProto::kTensorFieldNumber,
                [&] { EncodeTensorDesc(meta.dtype, meta.shape, out); });
    if (meta.lod_level != 0 || lod_level_present)
      out.Int(LoDProto::kLodLevelFieldNumber, meta.lod_level);
  });
}

// Returns whether a dim is below -1.
bool SetType(std::string_view message, const Source& source, VarDesc& var) {
  DecodedType type = DecodeType(message, source);
  var.SetMeta(type.meta);
  if (type.lod_level_present && type.meta.lod_level == 0)
    FileFields::MutableWire(var).lod_level_present = true;
  std::string plain;
  Encoder out(&plain);
  EncodeType(type.meta, type.lod_level_present, out);
  if (plain != message) FileFields::MutableWire(var).type_bytes.assign(message);
  return type.has_odd_dim;
}

// Whether the bytes read from the file still describe the variable.
bool StillHolds(const std::string& type_bytes, const VarMeta& meta) {
  Source source{"program", type_bytes.data()};
  return DecodeType(type_bytes, source).meta == meta;
}

bool DecodeVarFields(std::string_view message, const Source& source, VarDesc& var) {
  bool has_type = false, has_odd_dim = false;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    switch (field.tag) {
      case Tag(VarProto::kNameFieldNumber, wire::kBytes):
        break;
      case Tag(VarProto::kTypeFieldNumber, wire::kBytes):
        has_odd_dim = SetType(field.bytes, source, var);
        has_type = true;
        break;
      case Tag(VarProto::kPersistableFieldNumber, wire::kVarint):
        FileFields::Persistable(var) = field.Bool();
        break;
      case Tag(VarProto::kNeedCheckFeedFieldNumber, wire::kVarint):
        FileFields::NeedCheckFeed(var) = field.Bool();
        break;
      case Tag(VarProto::kIsParameterFieldNumber, wire::kVarint):
        FileFields::IsParameter(var) = field.Bool();
        break;
      case Tag(VarProto::kStopGradientFieldNumber, wire::kVarint):
        FileFields::StopGradient(var) = field.Bool();
        break;
      case Tag(proto::kTrainingFieldNumber, wire::kBytes):
        var.MutableTraining() = DecodeTraining(field.bytes, source);
        break;
      default:
        FileFields::MutableWire(var).unknown_fields.append(field.whole);
    }
  }
  if (!has_type) ThrowInvalid("has no type");
  return has_odd_dim;
}

void EncodeFlag(int number, const std::optional<bool>& flag, Encoder& out) {
  if (flag) out.Int(number, *flag);
}

}  // namespace

WireTensorDesc DecodeTensorDesc(std::string_view message, const Source& source) {
  WireTensorDesc desc;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == Tag(TensorProto::kDataTypeFieldNumber, wire::kVarint)) {
      desc.dtype = field.Int32();
    } else if (field.tag == Tag(TensorProto::kDimsFieldNumber, wire::kVarint)) {
      desc.dims.push_back(field.Int64());
    } else if (field.tag == Tag(TensorProto::kDimsFieldNumber, wire::kBytes)) {
      for (Reader packed(field.bytes, source); !packed.done();)
        desc.dims.push_back(static_cast<int64_t>(packed.Varint()));
    }
  }
  if (desc.dtype < 0) ThrowInvalid("has no data type");
  return desc;
}

void EncodeTensorDesc(DType dtype, const Shape& shape, Encoder& out) {
  out.Int(TensorProto::kDataTypeFieldNumber, static_cast<int32_t>(dtype));
  for (int64_t dim : shape) out.Int(TensorProto::kDimsFieldNumber, dim);
}

std::string_view DecodeVarName(std::string_view message, const Source& source) {
  std::optional<std::string_view> name;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == Tag(VarProto::kNameFieldNumber, wire::kBytes)) name = field.bytes;
  }
  if (!name) {
    throw Error(ErrorCode::kDataLoss, fmt::format("{}: a var at byte {} has no name", source.name,
                                                  message.data() - source.begin));
  }
  return *name;
}

bool DecodeVar(std::string_view message, const Source& source, VarDesc& var) {
  try {
    return DecodeVarFields(message, source, var);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kDataLoss) throw;
    throw e.WithPrefix(fmt::format("{}: var {}", source.name, Quote(var.name())));
  }
}

void EncodeVar(int field_number, const VarDesc& var, bool say_parameter, Encoder& out) {
  std::optional<bool> is_parameter = FileFields::IsParameter(var);
  if (!is_parameter && say_parameter && (var.persistable() || var.is_parameter()))
    is_parameter = var.is_parameter();
  const FileFields::Wire* wire = FileFields::WireOf(var);
  out.Message(field_number, [&] {
    out.Bytes(VarProto::kNameFieldNumber, var.name());
    if (wire && !wire->type_bytes.empty() && StillHolds(wire->type_bytes, var.meta()))
      out.Bytes(VarProto::kTypeFieldNumber, wire->type_bytes);
    else
      out.Message(VarProto::kTypeFieldNumber,
                  [&] { EncodeType(var.meta(), wire && wire->lod_level_present, out); });
    EncodeFlag(VarProto::kPersistableFieldNumber, FileFields::Persistable(var), out);
    EncodeFlag(VarProto::kNeedCheckFeedFieldNumber, FileFields::NeedCheckFeed(var), out);
    EncodeFlag(VarProto::kIsParameterFieldNumber, is_parameter, out);
    EncodeFlag(VarProto::kStopGradientFieldNumber, FileFields::StopGradient(var), out);
    if (wire) out.Verbatim(wire->unknown_fields);
    if (!var.training().IsDefault())
      EncodeTraining(proto::kTrainingFieldNumber, var.training(), out);
  });
}

}  // namespace coracle::inline internal
