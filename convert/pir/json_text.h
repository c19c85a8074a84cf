#pragma once
// The JSON text of ops, types and attributes of Paddle 3.

#include <coracle/convert/pir/model_json.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace coracle::pir {

using Json = nlohmann::ordered_json;

Type TensorType(DType dtype, const Shape& shape);
Type ListType(std::vector<Type> items);

// The type of a value. Throws kUnimplemented for an element type that the format lacks.
Json TypeJson(const Type& type);

// An attribute with the value of this kind (DialectAttr). Throws kUnimplemented for a value that
// the kind cannot hold.
Json AttrJson(const std::string& name, char kind, const Attribute& value);

// An op to write; names have their dialect's number: "1.conv2d".
struct WrittenOp {
  std::string name;
  std::vector<int64_t> operands;  // 0: absent
  std::vector<Result> results;
  std::vector<Json> attrs;
  std::vector<bool> stop_gradients;  // one for each result
  std::string layer;                 // struct_name
};
Json OpJson(const WrittenOp& op);

// A parameter.
Json ParameterJson(const std::string& name, const Result& result, bool stop_gradient,
                   bool trainable);

}  // namespace coracle::pir
