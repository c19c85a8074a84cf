#include <coracle/framework/op/op_context.h>
#include <fmt/format.h>

namespace coracle {

void GotValues::Add(const std::string& text) {
  if (!text_.empty()) text_ += name_.empty() ? " vs " : ", ";
  if (!name_.empty()) text_ += std::string(name_) + " ";
  text_ += text;
  name_ = {};
}

void GotValues::Add(float value) { Add(fmt::format("{}", value)); }
void GotValues::Add(double value) { Add(fmt::format("{}", value)); }

}  // namespace coracle
