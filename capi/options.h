#pragma once
// The settings by name of coracle_options.

#include <coracle/convert/models.h>
#include <coracle/coracle_c.h>
#include <coracle/executor/executor.h>

#include <map>
#include <string>

struct coracle_options {
  coracle::CompileOptions compile;
  std::map<std::string, coracle::Shape> input_shapes;
};
