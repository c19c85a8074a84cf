#include <coracle/framework/io/internal/attr_codec.h>
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
using AttrProto = proto::OpDesc::Attr;
using ScalarProto = proto::Scalar;
using TrainingProto = proto::TrainingAttr;

// The field that holds the value of an attr of each type.
constexpr int kValueField[] = {AttrProto::kIFieldNumber,         AttrProto::kFFieldNumber,
                               AttrProto::kSFieldNumber,         AttrProto::kIntsFieldNumber,
                               AttrProto::kFloatsFieldNumber,    AttrProto::kStringsFieldNumber,
                               AttrProto::kBFieldNumber,         AttrProto::kBoolsFieldNumber,
                               AttrProto::kBlockIdxFieldNumber,  AttrProto::kLFieldNumber,
                               AttrProto::kBlocksIdxFieldNumber, AttrProto::kLongsFieldNumber,
                               AttrProto::kFloat64SFieldNumber,  AttrProto::kVarNameFieldNumber,
                               AttrProto::kVarsNameFieldNumber,  AttrProto::kFloat64FieldNumber,
                               AttrProto::kScalarFieldNumber,    AttrProto::kScalarsFieldNumber};
constexpr size_t kNumTypes = std::size(kValueField);
static_assert(kNumTypes == static_cast<size_t>(AttrType::kRaw));

// --- one value ---

template <class T>
constexpr wire::Type WireTypeOf() {
  if constexpr (std::is_same_v<T, float>)
    return wire::kFixed32;
  else if constexpr (std::is_same_v<T, double>)
    return wire::kFixed64;
  else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, BlockRef>)
    return wire::kVarint;
  else
    return wire::kBytes;
}

std::optional<Complex> DecodeComplex(std::string_view message, const Source& source) {
  std::optional<double> real, imaginary;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == wire::Tag(proto::Complex::kRFieldNumber, wire::kFixed64))
      real = field.Double();
    else if (field.tag == wire::Tag(proto::Complex::kIFieldNumber, wire::kFixed64))
      imaginary = field.Double();
    else
      return std::nullopt;
  }
  if (!real || !imaginary) return std::nullopt;
  return Complex{*real, *imaginary};
}

// Returns nullopt for a message with more or less than a type and its value.
std::optional<Scalar> DecodeScalar(std::string_view message, const Source& source) {
  uint64_t type = 0;
  std::optional<Scalar> scalar;
  uint64_t type_of_value = 0;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == wire::Tag(ScalarProto::kTypeFieldNumber, wire::kVarint)) {
      type = field.value;
      continue;
    }
    if (scalar) return std::nullopt;
    if (field.tag == wire::Tag(ScalarProto::kBFieldNumber, wire::kVarint)) {
      scalar = Scalar{field.Bool()};
      type_of_value = ScalarProto::BOOLEAN;
    } else if (field.tag == wire::Tag(ScalarProto::kIFieldNumber, wire::kVarint)) {
      scalar = Scalar{field.Int64()};
      type_of_value = ScalarProto::LONG;
    } else if (field.tag == wire::Tag(ScalarProto::kRFieldNumber, wire::kFixed64)) {
      scalar = Scalar{field.Double()};
      type_of_value = ScalarProto::FLOAT64;
    } else if (field.tag == wire::Tag(ScalarProto::kCFieldNumber, wire::kBytes)) {
      auto complex = DecodeComplex(field.bytes, source);
      if (!complex) return std::nullopt;
      scalar = Scalar{*complex};
      type_of_value = ScalarProto::COMPLEX128;
    } else {
      return std::nullopt;
    }
  }
  return type == type_of_value ? scalar : std::nullopt;
}

template <class T>
bool DecodeValue(const Field& field, const Source& source, T* value) {
  if constexpr (std::is_same_v<T, int32_t>)
    *value = field.Int32();
  else if constexpr (std::is_same_v<T, int64_t>)
    *value = field.Int64();
  else if constexpr (std::is_same_v<T, bool>)
    *value = field.Bool();
  else if constexpr (std::is_same_v<T, float>)
    *value = field.Float();
  else if constexpr (std::is_same_v<T, double>)
    *value = field.Double();
  else if constexpr (std::is_same_v<T, BlockRef>)
    value->idx = field.Int32();
  else if constexpr (std::is_same_v<T, std::string>)
    value->assign(field.bytes);
  else if constexpr (std::is_same_v<T, VarRef>)
    value->name.assign(field.bytes);
  else {
    auto scalar = DecodeScalar(field.bytes, source);
    if (!scalar) return false;
    *value = *scalar;
  }
  return true;
}

template <class T>
void EncodeValue(int number, const T& value, Encoder& out) {
  if constexpr (std::is_same_v<T, float>)
    out.Float(number, value);
  else if constexpr (std::is_same_v<T, double>)
    out.Double(number, value);
  else if constexpr (std::is_arithmetic_v<T>)
    out.Int(number, value);
  else if constexpr (std::is_same_v<T, BlockRef>)
    out.Int(number, value.idx);
  else if constexpr (std::is_same_v<T, std::string>)
    out.Bytes(number, value);
  else if constexpr (std::is_same_v<T, VarRef>)
    out.Bytes(number, value.name);
  else
    out.Message(number, [&] {
      // The alternatives of a scalar are in the order of their type numbers, which begin at 1.
      out.Int(ScalarProto::kTypeFieldNumber, static_cast<int64_t>(value.value.index()) + 1);
      if (const auto* b = std::get_if<bool>(&value.value)) {
        out.Int(ScalarProto::kBFieldNumber, *b);
      } else if (const auto* i = std::get_if<int64_t>(&value.value)) {
        out.Int(ScalarProto::kIFieldNumber, *i);
      } else if (const auto* r = std::get_if<double>(&value.value)) {
        out.Double(ScalarProto::kRFieldNumber, *r);
      } else if (const auto* c = std::get_if<Complex>(&value.value)) {
        out.Message(ScalarProto::kCFieldNumber, [&] {
          out.Double(proto::Complex::kRFieldNumber, c->real);
          out.Double(proto::Complex::kIFieldNumber, c->imag);
        });
      }
    });
}

// --- the value of an attr ---

template <class T>
struct ListOf {
  static constexpr bool kIsList = false;
};
template <class E>
struct ListOf<std::vector<E>> {
  static constexpr bool kIsList = true;
  using Element = E;
};

template <class E>
bool AppendPacked(std::string_view bytes, const Source& source, std::vector<E>* list) {
  constexpr wire::Type type = WireTypeOf<E>();
  Reader in(bytes, source);
  Field field;
  while (!in.done()) {
    field.value = type == wire::kVarint ? in.Varint() : in.Fixed(type == wire::kFixed32 ? 4 : 8);
    E element{};
    DecodeValue(field, source, &element);
    list->push_back(std::move(element));
  }
  return true;
}

template <class T>
bool DecodeField(const Field& field, const Source& source, T* value) {
  if constexpr (ListOf<T>::kIsList) {
    using E = typename ListOf<T>::Element;
    if (field.type() == WireTypeOf<E>()) {
      E element{};
      if (!DecodeValue(field, source, &element)) return false;
      value->push_back(std::move(element));
      return true;
    }
    if constexpr (WireTypeOf<E>() != wire::kBytes) {
      return field.type() == wire::kBytes && AppendPacked(field.bytes, source, value);
    }
    return false;
  } else {
    return field.type() == WireTypeOf<T>() && DecodeValue(field, source, value);
  }
}

// Reads the value of the I-th alternative from the message; returns false if it is not plain.
template <size_t I>
bool DecodeAlternative(std::string_view message, const Source& source, Attribute* out) {
  auto& value = out->emplace<I>();
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.number() == kValueField[I] && !DecodeField(field, source, &value)) return false;
  }
  return true;
}

using DecodeFn = bool (*)(std::string_view, const Source&, Attribute*);
template <size_t... I>
DecodeFn DecoderOf(size_t type, std::index_sequence<I...>) {
  static constexpr DecodeFn kDecoders[] = {DecodeAlternative<I>...};
  return kDecoders[type];
}

bool IsList(size_t type) {
  switch (static_cast<AttrType>(type)) {
    case AttrType::kInts:
    case AttrType::kFloats:
    case AttrType::kStrings:
    case AttrType::kBooleans:
    case AttrType::kBlocks:
    case AttrType::kLongs:
    case AttrType::kFloat64s:
    case AttrType::kVars:
    case AttrType::kScalars:
      return true;
    default:
      return false;
  }
}

// The result of one pass over an attr's fields.
struct AttrOutline {
  std::optional<std::string_view> name;
  std::optional<uint64_t> type;
  // One bit for the number of each other field; bit 31 for unknown fields.
  uint32_t others = 0;
};

AttrOutline Outline(std::string_view message, const Source& source) {
  AttrOutline outline;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == wire::Tag(AttrProto::kNameFieldNumber, wire::kBytes))
      outline.name = field.bytes;
    else if (field.tag == wire::Tag(AttrProto::kTypeFieldNumber, wire::kVarint))
      outline.type = field.value;
    else
      outline.others |= 1u << std::min(field.number(), 31);
  }
  if (!outline.name || !outline.type) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: an attr at byte {} has no {}", source.name,
                            message.data() - source.begin, outline.name ? "type" : "name"));
  }
  return outline;
}

// --- settings ---

Setting DecodeSetting(std::string_view message, const Source& source) {
  Setting setting;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == wire::Tag(proto::Setting::kKindFieldNumber, wire::kBytes))
      setting.kind = field.String();
    else if (field.tag == wire::Tag(proto::Setting::kAttrsFieldNumber, wire::kBytes))
      setting.attrs.push_back(DecodeAttr(field.bytes, source, MissingValue::kZero));
  }
  return setting;
}

void EncodeSetting(int number, const Setting& setting, Encoder& out) {
  out.Message(number, [&] {
    out.Bytes(proto::Setting::kKindFieldNumber, setting.kind);
    for (const NamedAttr& attr : setting.attrs)
      EncodeAttr(proto::Setting::kAttrsFieldNumber, attr, out);
  });
}

}  // namespace

NamedAttr DecodeAttr(std::string_view message, const Source& source, MissingValue missing) {
  AttrOutline outline = Outline(message, source);
  NamedAttr attr;
  attr.name.assign(*outline.name);
  uint64_t type = *outline.type;
  if (type < kNumTypes) {
    bool has_value = outline.others != 0 || IsList(type) || missing == MissingValue::kZero;
    bool plain = (outline.others & ~(1u << kValueField[type])) == 0;
    if (has_value && plain &&
        DecoderOf(type, std::make_index_sequence<kNumTypes>())(message, source, &attr.value)) {
      return attr;
    }
  }
  attr.value = RawAttr{std::string(message)};
  return attr;
}

void EncodeAttr(int field_number, const NamedAttr& attr, Encoder& out) {
  if (const auto* raw = std::get_if<RawAttr>(&attr.value))
    return out.Bytes(field_number, raw->bytes);
  out.Message(field_number, [&] {
    out.Bytes(AttrProto::kNameFieldNumber, attr.name);
    out.Int(AttrProto::kTypeFieldNumber, static_cast<int64_t>(attr.value.index()));
    int number = kValueField[attr.value.index()];
    std::visit(
        [&](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (ListOf<T>::kIsList) {
            using E = typename ListOf<T>::Element;
            for (const E& element : value) EncodeValue<E>(number, element, out);
          } else if constexpr (!std::is_same_v<T, RawAttr>) {
            EncodeValue(number, value, out);
          }
        },
        attr.value);
  });
}

TrainingAttr DecodeTraining(std::string_view message, const Source& source) {
  TrainingAttr training;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    switch (field.tag) {
      case wire::Tag(TrainingProto::kTrainableFieldNumber, wire::kVarint):
        training.trainable = field.Bool();
        break;
      case wire::Tag(TrainingProto::kLearningRateFieldNumber, wire::kFixed64):
        training.learning_rate = field.Double();
        break;
      case wire::Tag(TrainingProto::kInitializerFieldNumber, wire::kBytes):
        training.initializer = DecodeSetting(field.bytes, source);
        break;
      case wire::Tag(TrainingProto::kRegularizerFieldNumber, wire::kBytes):
        training.regularizer = DecodeSetting(field.bytes, source);
        break;
      case wire::Tag(TrainingProto::kGradientClipFieldNumber, wire::kBytes):
        training.gradient_clip = DecodeSetting(field.bytes, source);
        break;
      case wire::Tag(TrainingProto::kErrorClipFieldNumber, wire::kBytes):
        training.error_clip = LoadErrorClip(DecodeSetting(field.bytes, source));
        break;
      case wire::Tag(TrainingProto::kCreationSiteFieldNumber, wire::kBytes):
        training.creation_site = field.String();
        break;
      default:
        break;
    }
  }
  return training;
}

void EncodeTraining(int field_number, const TrainingAttr& training, Encoder& out) {
  out.Message(field_number, [&] {
    if (!training.trainable) out.Int(TrainingProto::kTrainableFieldNumber, 0);
    if (training.learning_rate != 1.0)
      out.Double(TrainingProto::kLearningRateFieldNumber, training.learning_rate);
    auto setting = [&](int number, const std::optional<Setting>& value) {
      if (value) EncodeSetting(number, *value, out);
    };
    setting(TrainingProto::kInitializerFieldNumber, training.initializer);
    setting(TrainingProto::kRegularizerFieldNumber, training.regularizer);
    setting(TrainingProto::kGradientClipFieldNumber, training.gradient_clip);
    if (training.error_clip)
      setting(TrainingProto::kErrorClipFieldNumber, SaveErrorClip(*training.error_clip));
    if (!training.creation_site.empty())
      out.Bytes(TrainingProto::kCreationSiteFieldNumber, training.creation_site);
  });
}

}  // namespace coracle::inline internal
