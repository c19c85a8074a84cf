#pragma once
// Completes a drawn op: attrs and inputs that fit its inputs. The rows of the table in
// op_hint_table.cc name these functions.

#include <coracle/test/fuzz/op_hints.h>

namespace coracle {

void Permutation(OpDraft& d);
void Reshaping(OpDraft& d);
void Bounds(OpDraft& d);
void Splitting(OpDraft& d);
void Unstacking(OpDraft& d);
void Unbinding(OpDraft& d);
void OneOutputEach(OpDraft& d);
void OneOutputForEachInput(OpDraft& d);
void Expanding(OpDraft& d);
void Tiling(OpDraft& d);
void Values(OpDraft& d);
void SetFromAttrs(OpDraft& d);
void Casting(OpDraft& d);
void Recurrent(OpDraft& d);
void Buckets(OpDraft& d);
void QuantizedMaxAbs(OpDraft& d);
void QuantizedLog(OpDraft& d);
void QuantizedPair(OpDraft& d);
void QuantizedPieces(OpDraft& d);
void QuantizedTable(OpDraft& d);
void QuantizedImage(OpDraft& d);
void QuantizedFilter(OpDraft& d);
void QuantizedMatrices(OpDraft& d);
void QuantizedWeight(OpDraft& d);
void PackedIntegers(OpDraft& d);
void RepeatedLayers(OpDraft& d);
void Functors(OpDraft& d);
void CudnnLstm(OpDraft& d);

}  // namespace coracle
