#pragma once
// Op types of real models for which no importer is possible or planned, with the reason.

#include <string>

namespace coracle::onnx {

// What a node of the op type does that a program cannot, and how to mend the model; nullptr for
// other types.
const char* WhyRefused(const std::string& domain, const std::string& op_type);

}  // namespace coracle::onnx
