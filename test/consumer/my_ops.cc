// The same op as a library for `coracle --op_library=...`.
#include "double_op.h"

extern "C" void CoracleRegisterOps(coracle::OpRegistry& ops) { RegisterDouble(ops); }
