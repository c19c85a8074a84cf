#pragma once
// Declarations and checks shared by the recurrent ops over sequences. The constraint ids are the
// same in all of them: C1 the input, C2 parameters, C3 initial states, C4 dtypes, C5 LoD.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>

#include <cstdint>

namespace coracle::inline internal {

struct RecurrentShapes {
  DType dtype = DType::kFloat32;
  int64_t rows = -1;    // of all sequences
  int64_t hidden = -1;  // D
  int64_t width = -1;   // of the recurrent state: D, or the columns of a projection
};

// The slots that differ between the types.
struct RecurrentSlots {
  const char* input = "Input";
  const char* weight = "Weight";  // of the recurrence
  const char* bias = "Bias";
};

// Checks C2 to C4 for the rows of the input and, with a slot ProjWeight, a projection. The caller
// checks the columns of the input.
RecurrentShapes CheckLstm(const InferContext& ctx, const RecurrentSlots& slots);
RecurrentShapes CheckGru(const InferContext& ctx, const RecurrentSlots& slots);
// C2: checks the shape of a parameter.
void RequireParameter(const InferContext& ctx, const char* slot, const Shape& want);
// C4: checks the dtype of an input.
void RequireDType(const InferContext& ctx, const char* slot, DType want);

// The multiply-adds of lstm and gru: only the recurrent product, because the product of the input
// is a separate op.
double RecurrentMultiplyAdds(const OpShapes& op);

// Declares slots and attrs.
void DeclareLstmStates(OpDef& def);
void DeclareLstmAttrs(OpDef& def);
void DeclareGruAttrs(OpDef& def);
// Declares C1 to C5.
void DeclareRecurrentConstraints(OpDef& def, const std::string& input,
                                 const std::string& parameters);
// Declares an attr with the name of an activation.
void DeclareActivation(OpDef& def, const char* attr, const char* otherwise, const char* doc);

}  // namespace coracle::inline internal
