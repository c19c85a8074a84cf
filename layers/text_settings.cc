#include <coracle/clip/clip.h>
#include <coracle/clip/internal/text_clip.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/initializer/initializer.h>
#include <coracle/layers/internal/text_settings.h>
#include <coracle/regularizer/regularizer.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle::inline internal {
namespace {

using google::protobuf::FieldDescriptor;

class SettingReader {
 public:
  SettingReader(const SchemaPool& schema, const std::vector<Index>& indices)
      : schema_(schema), indices_(indices) {}

  ParamAttr ReadParam(const Node& node) {
    ParamAttr param;
    param.name = String(node, "name");
    param.learning_rate = node.Double("learning_rate");
    param.trainable = node.Bool("trainable");
    if (node.Has("initializer")) param.initializer = ReadInitializer(node.Child("initializer"));
    if (node.Has("regularizer")) param.regularizer = ReadRegularizer(node.Child("regularizer"));
    if (node.Has("gradient_clip"))
      param.gradient_clip = ReadGradientClip(node.Child("gradient_clip"));
    return param;
  }

  const FieldDescriptor& KindOf(const Node& node) const {
    const FieldDescriptor* kind = node.Kind();
    if (!kind) {
      node.Fail(fmt::format("{}: a kind is required: {}", DisplayName(node.type()),
                            Join(FieldNames(node.type()), ", ")));
    }
    return *kind;
  }

  // Reads a message with a choice of kinds as a Setting, with the given fields and the defaults.
  Setting ReadKind(const Node& node) {
    const FieldDescriptor& kind = KindOf(node);
    Node child = node.Child(kind);
    Setting setting{kind.name(), {}};
    const FieldDescriptor* attr = child.type().FindFieldByName("attr");
    // A kind without a field table.
    if (attr && attr->message_type()) setting.attrs = NamedValues(child);
    for (int i = 0; i < child.type().field_count(); ++i) {
      const FieldDescriptor& field = *child.type().field(i);
      if (field.message_type()) continue;
      if (child.Count(field) > 0 || field.has_default_value())
        setting.attrs.push_back({field.name(), child.Value(field)});
      else if (schema_.IsRequired(field))
        child.Fail(fmt::format("{}: {} is required", kind.name(), field.name()));
    }
    return setting;
  }

  Setting ReadRegularizer(const Node& node) {
    const Node child = node.Child(KindOf(node));
    Setting setting = ReadKind(node);
    if (setting.kind != "multiplied") {
      Located(child, [&] { CheckRegularizer(setting); });
    } else if (const double by = setting.Get<double>("by", 1); !std::isfinite(by)) {
      child.Fail(fmt::format("multiplied: by must be finite, got {}", by));
    }
    return setting;
  }

  Setting ReadGradientClip(const Node& node) {
    const Node child = node.Child(KindOf(node));
    Setting setting = KindOf(node).name() == "custom" ? ReadCustom(child) : ReadKind(node);
    Located(child, [&] { CheckTextGradientClip(setting); });
    return setting;
  }

  Setting ReadInitializer(const Node& node) {
    const FieldDescriptor& kind = KindOf(node);
    if (kind.name() != "array") return ReadKind(node);
    Node array = node.Child(kind);
    if (array.Has("npy") == array.Has("values")) array.Fail("array: give values or npy");
    if (array.Has("npy")) return ReadArray(array);
    auto same = [](std::string text, const std::string&) { return text; };
    auto values =
        std::get<std::vector<float>>(array.Attr(array.Field("values"), AttrType::kFloats, same));
    return ArrayInitializer(Tensor::Of<float>({static_cast<int64_t>(values.size())}, values));
  }

  Setting ReadArray(const Node& array) {
    const std::string where = array.Where("npy");
    try {
      return ArrayInitializer(ReadNpy(array.file().directory + "/" + String(array, "npy")));
    } catch (const LocatedError&) {
      throw;
    } catch (const Error& error) {
      throw LocatedError(error.WithPrefix(where));
    }
  }

  ErrorClipPtr ReadErrorClip(const Node& node) {
    const FieldDescriptor& kind = KindOf(node);
    Node child = node.Child(kind);
    return Located(child, [&] {
      return LoadErrorClip(kind.name() == "custom" ? ReadCustom(child) : ReadKind(node));
    });
  }

  Setting ReadCustom(const Node& node) {
    if (!node.Has("kind")) node.Fail("custom: kind is required");
    return {node.String("kind"), NamedValues(node)};
  }

  AttrList NamedValues(const Node& node) {
    AttrList values;
    for (int i = 0; i < node.Count("attr"); ++i) {
      Node value = node.Child("attr", i);
      if (!value.Has("name")) value.Fail("attr: name is required");
      const FieldDescriptor& kind = KindOf(value);
      const std::string name = value.String("name");
      for (const NamedAttr& other : values)
        if (other.name == name) value.Fail(name + " is given twice");
      values.push_back({name, value.Value(kind)});
    }
    return values;
  }

  std::string String(const Node& node, const char* name) const {
    return ExpandIndices(node.String(name), indices_, node.Where(name));
  }

  const SchemaPool& schema_;
  const std::vector<Index>& indices_;
};

}  // namespace

ParamAttr ReadParam(const Node& node, const SchemaPool& schema, const std::vector<Index>& indices) {
  return SettingReader(schema, indices).ReadParam(node);
}

ErrorClipPtr ReadErrorClip(const Node& node, const SchemaPool& schema) {
  const std::vector<Index> none;
  return SettingReader(schema, none).ReadErrorClip(node);
}

}  // namespace coracle::inline internal
