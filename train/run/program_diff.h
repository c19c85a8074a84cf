#pragma once
// Whether two programs compute the same.

#include <coracle/framework/ir/program.h>

#include <string>

namespace coracle {

// "" when the programs have the same variables and ops; else one line on the first difference
// ("variable 'fc_0.w_0' is float32[10, 5] there and float32[10, 6] here"). Where an op or a
// variable was made does not count.
std::string FirstDifference(const ProgramDesc& there, const ProgramDesc& here);

}  // namespace coracle
