#pragma once
// Writes programs of Paddle 3 as their JSON text, for tests of the reader.

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

// A tensor type: "f32", {2, 3}.
struct PirType {
  std::string element = "f32";
  std::vector<int64_t> dims = {};
  bool list = false;  // of `items`
  std::vector<PirType> items = {};
};

inline std::string PirList(const std::vector<std::string>& parts) {
  return "[" + fmt::format("{}", fmt::join(parts, ",")) + "]";
}

inline std::string TypeJson(const PirType& type) {
  if (type.list) {
    std::vector<std::string> items;
    for (const PirType& item : type.items) items.push_back(TypeJson(item));
    return "{\"#\":\"0.t_vec\",\"D\":" + PirList(items) + "}";
  }
  return fmt::format("{{\"#\":\"0.t_dtensor\",\"D\":[{{\"#\":\"0.t_{}\"}},[{}],\"NCHW\",[],0]}}",
                     type.element, fmt::join(type.dims, ","));
}

// Attributes.
inline std::string PirAttr(const std::string& name, const std::string& kind,
                           const std::string& data) {
  return fmt::format("{{\"N\":\"{}\",\"AT\":{{\"#\":\"{}\",\"D\":{}}}}}", name, kind, data);
}
inline std::string PirInt(const std::string& name, int64_t value) {
  return PirAttr(name, "0.a_i32", std::to_string(value));
}
inline std::string PirBool(const std::string& name, bool value) {
  return PirAttr(name, "0.a_bool", value ? "true" : "false");
}
inline std::string PirFloat(const std::string& name, double value) {
  return PirAttr(name, "0.a_f32", fmt::format("{}", value));
}
inline std::string PirString(const std::string& name, const std::string& value) {
  return PirAttr(name, "0.a_str", "\"" + value + "\"");
}
inline std::string PirDType(const std::string& name, const std::string& value) {
  return PirAttr(name, "1.a_dtype", "\"" + value + "\"");
}
inline std::string PirInts(const std::string& name, const std::vector<int64_t>& values) {
  std::vector<std::string> items;
  for (int64_t value : values)
    items.push_back(fmt::format("{{\"#\":\"0.a_i64\",\"D\":{}}}", value));
  return PirAttr(name, "0.a_array", PirList(items));
}

class PirText {
 public:
  // Each returns the id of the (first) result.
  int64_t Parameter(const std::string& name, const PirType& type) {
    const int64_t id = next_++;
    ops_.push_back(
        fmt::format("{{\"#\":\"p\",\"A\":[0,1,1,\"{}\"],\"DA\":[],\"O\":{{\"%\":{},\"TT\":{}}},"
                    "\"OA\":[1,0,1],\"QA\":[]}}",
                    name, id, TypeJson(type)));
    return id;
  }
  int64_t Data(const std::string& name, const PirType& type) {
    return Op("1.data", {}, {type}, {PirString("name", name)});
  }
  int64_t Op(const std::string& name, const std::vector<int64_t>& operands,
             const std::vector<PirType>& results, const std::vector<std::string>& attrs = {},
             const std::string& more = "") {
    std::vector<std::string> inputs, outputs;
    for (int64_t id : operands) inputs.push_back(fmt::format("{{\"%\":{}}}", id));
    const int64_t first = next_;
    for (const PirType& type : results)
      outputs.push_back(fmt::format("{{\"%\":{},\"TT\":{}}}", next_++, TypeJson(type)));
    ops_.push_back(fmt::format("{{\"#\":\"{}\",\"A\":{},\"I\":{},\"O\":{},\"OA\":[]{}}}", name,
                               PirList(attrs), PirList(inputs), PirList(outputs), more));
    return first;
  }
  int64_t Ints(const std::vector<int64_t>& values) {
    return Op("1.full_int_array", {}, {{"i64", {static_cast<int64_t>(values.size())}}},
              {PirInts("value", values), PirDType("dtype", "int64")});
  }
  int64_t Full(const std::string& element, const std::string& dtype, double value,
               const std::vector<int64_t>& dims = {1}) {
    return Op("1.full", {}, {{element, dims}},
              {PirAttr("shape", "1.a_intarray", fmt::format("[{}]", fmt::join(dims, ","))),
               PirAttr("value", "0.a_f64", fmt::format("{}", value)), PirDType("dtype", dtype)});
  }
  int64_t Combine(const std::vector<int64_t>& ids, const std::vector<PirType>& items) {
    return Op("0.combine", ids, {{.list = true, .items = items}});
  }
  void Fetch(int64_t id, const PirType& type, const std::string& name = "fetch_name_0",
             int64_t column = 0) {
    Op("1.fetch", {id}, {type}, {PirString("name", name), PirInt("col", column)});
  }

  // The ops so far as the region of an op with a block; `arguments`: "{\"%\":-1,\"TT\":...}".
  std::string Region(const std::vector<std::string>& arguments = {}) const {
    return fmt::format(
        "{{\"#\":\"region\",\"blocks\":[{{\"#\":\"block\",\"args\":{},\"ops\":{}}}]}}",
        PirList(arguments), PirList(ops_));
  }
  // Another text whose ids continue here.
  PirText Inner() const {
    PirText inner;
    inner.next_ = next_;
    return inner;
  }
  void Skip(const PirText& inner) { next_ = inner.next_; }

  std::string Text() const {
    return "{\"base_code\":{\"magic\":\"pir\",\"trainable\":true,\"version\":1},\"program\":{"
           "\"regions\":" +
           PirList({Region()}) + "}}";
  }

 private:
  int64_t next_ = 1;
  std::vector<std::string> ops_;
};

}  // namespace coracle
