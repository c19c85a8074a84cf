#pragma once
// The amount of arithmetic of a program, computed from its types.

#include <coracle/framework/ir/program.h>

namespace coracle {

// The number of elements; unknown dims count as 1. Counts are doubles, because the dims of a
// hostile program may have any product.
double Elements(const Shape& shape, int begin, int end);
inline double Elements(const Shape& shape) { return Elements(shape, 0, shape.rank()); }

// The multiply-adds of an op's matrix products, convolutions and recurrent nets, from the types of
// its variables; 0 for other ops. A gradient op needs as many as its forward op for each gradient
// that it computes.
double MultiplyAdds(const OpDesc& op);

}  // namespace coracle
