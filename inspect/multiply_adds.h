#pragma once
// The arithmetic of a program, from its types.

#include <coracle/framework/ir/program.h>

namespace coracle {

// The number of elements; unknown dims count as 1. Counts are doubles: a hostile program's dims may
// have any product.
double Elements(const Shape& shape, int begin, int end);
inline double Elements(const Shape& shape) { return Elements(shape, 0, shape.rank()); }

// The multiply-adds of an op's products of matrices, convolutions and recurrent nets, by the types
// of its variables; 0 for other ops. A gradient op takes as many for each gradient that it computes
// as its forward op.
double MultiplyAdds(const OpDesc& op);

}  // namespace coracle
