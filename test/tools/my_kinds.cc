// A shared object with a regularizer and no op, for --op_library.

#include <coracle/framework/op/op_registry.h>
#include <coracle/regularizer/regularizer.h>

extern "C" void CoracleRegisterOps(coracle::OpRegistry&) {
  coracle::RegisterRegularizer(
      "my_decay", coracle::FieldTable("A sample."),
      [](const coracle::UpdateContext& update, const coracle::Setting&) { return update.grad; });
}
