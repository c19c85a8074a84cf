#pragma once
// Files of any size for the readers: honest ones, and ones that make careless readers slow.

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

struct ReaderInput {
  std::string reader;  // "csv"
  std::string input;   // "rows", or what is hostile about it
  bool hostile = false;
  std::function<std::string(size_t bytes)> make;     // about so many bytes
  std::function<void(std::string_view bytes)> read;  // an Error is an answer
};

std::vector<ReaderInput> ReaderInputs();

}  // namespace coracle
