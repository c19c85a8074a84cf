#pragma once
// Numbers as a person reads them.

#include <string>

namespace coracle {

// Six digits; "nan" whatever its sign; exponents without a plus: "4.095e31".
std::string FormatNumber(double value);
// The same with four decimals where they tell enough: "0.6931", but "1.234e-05" and "4.095e31".
std::string FormatShort(double value);

}  // namespace coracle
