#pragma once
// Reads a program of Paddle 3 (PIR) from JSON into plain structs. Every kind and every number is
// checked here; ids of values are not.
//
// Format: the description in Paddle's serializer of PIR (magic "pir").

#include <coracle/framework/ir/op.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle::pir {

// The type of a value.
struct Type {
  enum class Kind { kNone, kTensor, kList, kArray, kOther };
  Kind kind = Kind::kNone;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<Type> items;  // of a list
  std::string name;         // as in the file: "0.t_dtensor"
};

// An attribute. Data types are the numbers of DType.
struct Attr {
  std::string name;
  Attribute value;
};

// The result of an op, or an argument of a block.
struct Result {
  int64_t id = 0;
  Type type;
};

struct Block;

struct Op {
  std::string name;               // "pd_op.conv2d", "builtin.parameter"
  std::vector<int64_t> operands;  // ids of values; 0: absent
  std::vector<Result> results;
  std::vector<Attr> attrs;           // without places of devices and struct_name
  std::vector<bool> stop_gradients;  // of the results; may be shorter
  bool trainable = true;             // of a parameter
  std::vector<Block> blocks;         // the first block of each region
  std::string layer;                 // struct_name: "/ResNet/Conv2D/", or ""

  const Attribute* Find(std::string_view name) const;
  std::string ShortName() const;  // without the dialect and the final _ of ops that work in place
};

struct Block {
  std::vector<Result> arguments;
  std::vector<Op> ops;
};

// The block of the whole program. Throws kDataLoss for text that is not such a program, and
// kUnimplemented for kinds of attributes and types that are unknown.
Block ParseModelJson(std::string_view text, const std::string& source);

}  // namespace coracle::pir
