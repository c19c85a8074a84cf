#pragma once
// Numbers as a person reads them.

#include <coracle/train/run/metric.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

// Six digits; "nan" whatever its sign; exponents without a plus: "4.095e31".
std::string FormatNumber(double value);
// The same with four decimals where they tell enough: "0.6931", but "1.234e-05" and "4.095e31".
std::string FormatShort(double value);

// " loss=0.25 accuracy=0.9": each number as `format` gives it.
std::string FormatValues(const std::vector<NamedValue>& values,
                         std::string (*format)(double) = FormatNumber);

// Without quotes where the name needs none: else see Quote.
std::string QuoteIfNeeded(std::string_view name, size_t max_length = 300);

}  // namespace coracle
