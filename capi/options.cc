#include <coracle/capi/border.h>
#include <coracle/capi/options.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string>
#include <string_view>

namespace coracle::capi {
namespace {

[[noreturn]] void ThrowValue(const std::string& name, const std::string& value,
                             const char* wanted) {
  ThrowInvalid(fmt::format("the option {} must be {}, got {}", name, wanted, Quote(value)));
}

bool Flag(const std::string& name, const std::string& value) {
  if (value != "0" && value != "1") ThrowValue(name, value, "0 or 1");
  return value == "1";
}

uint64_t Whole(const std::string& name, const std::string& value) {
  int64_t number = 0;
  if (!ParseInt64(value, &number) || number < 0)
    ThrowValue(name, value, "a whole number from 0 on");
  return static_cast<uint64_t>(number);
}

double Seconds(const std::string& name, const std::string& value) {
  double number = 0;
  if (!ParseDouble(value, &number) || !std::isfinite(number) || number < 0)
    ThrowValue(name, value, "a number of seconds from 0 on");
  return number;
}

KernelMode Kernels(const std::string& name, const std::string& value) {
  if (value == "auto") return KernelMode::kAuto;
  if (value == "reference") return KernelMode::kReference;
  ThrowValue(name, value, "auto or reference");
}

Shape ShapeOf(const std::string& name, const std::string& value) {
  Shape shape;
  for (const std::string& dim : Split(value, ',')) {
    int64_t number = 0;
    if (!ParseInt64(dim, &number) || number < -1) ThrowValue(name, value, "dims such as 1,3,-1,-1");
    shape.Append(number);
  }
  return shape;
}

using Setter = std::function<void(CompileOptions&, const std::string&, const std::string&)>;

const std::map<std::string, Setter>& Setters() {
  using Options = CompileOptions;
  using Text = const std::string&;
  static const std::map<std::string, Setter> setters = {
      {"memory_limit", [](Options& o, Text n, Text v) { o.memory_limit = Whole(n, v); }},
      {"time_limit", [](Options& o, Text n, Text v) { o.time_limit = Seconds(n, v); }},
      {"kernels", [](Options& o, Text n, Text v) { o.kernels = Kernels(n, v); }},
      {"optimize", [](Options& o, Text n, Text v) { o.optimize = Flag(n, v); }},
      {"tune", [](Options& o, Text n, Text v) { o.tune = Flag(n, v); }},
      {"flush_subnormals", [](Options& o, Text n, Text v) { o.flush_subnormals = Flag(n, v); }},
      {"seed", [](Options& o, Text n, Text v) { o.seed = Whole(n, v); }},
  };
  return setters;
}

void Set(coracle_options& options, const std::string& name, const std::string& value) {
  constexpr std::string_view kShape = "shape:";
  if (name.starts_with(kShape)) {
    options.input_shapes[name.substr(kShape.size())] = ShapeOf(name, value);
    return;
  }
  const auto found = Setters().find(name);
  if (found == Setters().end()) {
    std::vector<std::string> names = {"shape:NAME"};
    for (const auto& [known, setter] : Setters()) names.push_back(known);
    throw Error(ErrorCode::kNotFound, fmt::format("there is no option {}", Quote(name)),
                "the options are " + Join(names, ", "));
  }
  found->second(options.compile, name, value);
}

}  // namespace
}  // namespace coracle::capi

using namespace coracle::capi;  // NOLINT(google-build-using-namespace): the functions are in C

extern "C" {

int32_t coracle_options_new(coracle_options** options) {
  return Guard([&] {
    RequireArgument(options, "options");
    *options = nullptr;
    *options = new coracle_options;
    // Sessions are made for other shapes on purpose.
    (*options)->compile.shape_warnings = false;
  });
}

void coracle_options_free(coracle_options* options) { delete options; }

int32_t coracle_options_set(coracle_options* options, const char* name, const char* value) {
  return Guard([&] {
    RequireArgument(options, "options");
    RequireArgument(name, "name");
    RequireArgument(value, "value");
    Set(*options, name, value);
  });
}

}  // extern "C"
