#pragma once
// The passes of the pipeline, one file each: pipeline.cc has their order and reasons. Internal to
// passes/.

#include <coracle/passes/pass.h>

namespace coracle {

// Removes the ops of the root block whose outputs are neither read nor visible.
void EliminateDeadCode(ProgramDesc& program, const PassContext& context);

// Removes ops that pass on their input (assign, dropout in a test, scale by 1, cast to the same
// type, concat of one, ...): what reads their output reads the input. Of reshapes in a row, the
// last one stays.
void RemoveIdentities(ProgramDesc& program, const PassContext& context);

// Where convolutions of bfloat16 run on the float32 kernels (BFloat16ProductsPay), the casts of
// their filters, and back of the filters' gradients, only lose digits and time: the convolutions
// read the float32 filters and write float32 gradients.
void WidenFilters(ProgramDesc& program, const PassContext& context);

// Runs the ops that depend on frozen parameters and constants alone. Their results become frozen
// parameters, unless these would take more memory, by more than 1 MiB in all, than those that
// nobody reads any more.
void FoldConstants(ProgramDesc& program, const PassContext& context);

// Ops of equal type, attrs and inputs are done once. Copies that were computed again
// (recomputed_from) and their originals stay.
void JoinCommonSubexpressions(ProgramDesc& program, const PassContext& context);

// What a loop of the root block computes in each round, but does not change, is computed before it,
// if the loop has a round at all. Loops that are differentiated stay.
void HoistInvariants(ProgramDesc& program, const PassContext& context);

// Folds a batch_norm with fixed statistics into the convolution or mul before it (and a bias
// between them): its scale is multiplied into the filter, and the rest becomes a bias. Requires
// that all parameters are frozen.
void FoldBatchNorm(ProgramDesc& program, const PassContext& context);

// conv2d + elementwise_add of a per-channel bias becomes one conv2d with Bias, and so
// do their gradients.
void FuseConvBias(ProgramDesc& program, const PassContext& context);

// A convolution, what is added to it in its own shape, and the activation of the sum become one op.
void FuseConvEpilogue(ProgramDesc& program, const PassContext& context);

// In training, batch_norm + relu becomes fused_batch_norm_act, batch_norm + elementwise_add + relu
// becomes fused_bn_add_activation, and so do their gradients.
void FuseBatchNormActivation(ProgramDesc& program, const PassContext& context);

// mul or matmul with a matrix of parameters, elementwise_add of a bias along the last axis, and an
// activation if one follows become one fc, which keeps their sum (Sum) where a gradient reads it.
// The gradients of the product and the addition, and that of the activation before them (of its
// result as for relu, or of the sum as for gelu and swish), become one fc_gradients.
void FuseFc(ProgramDesc& program, const PassContext& context);

// softmax_with_cross_entropy, the mean of its loss and the gradients of both become one op that
// computes loss and gradient together. Elsewhere a Softmax that nobody reads is not stored.
void FuseSoftmaxCrossEntropy(ProgramDesc& program, const PassContext& context);

// softmax(Q K^T scale + mask) V becomes one scaled_dot_product_attention, with dropout of the
// weights and with the gradients of all of it: the matrix of scores never exists as a whole. So do
// transpositions and slices that make Q, K and V of [B, S, H, D] or [B, S, 3, H, D].
void FuseAttention(ProgramDesc& program, const PassContext& context);

// elementwise_add + layer_norm, and the dropout of a term of the sum before them, become one
// fused_residual_layer_norm, and so do their gradients, with the sum that adds the gradient that
// comes from elsewhere.
void FuseLayerNorm(ProgramDesc& program, const PassContext& context);

// Runs ops on images and volumes with channels last: they and the elementwise ops between them get
// data_format NHWC, and transpose2 ops convert at the borders. The layout of visible variables does
// not change.
void UseNhwcLayout(ProgramDesc& program, const PassContext& context);

// Transposes in a row become one, or none; a product transposes its Y itself. A transpose before
// ops that any order of axes suits (elementwise ops, concat, split, reductions, pad, slice, shape,
// softmax) moves behind them where that leaves fewer or smaller ones.
void MoveTransposes(ProgramDesc& program, const PassContext& context);

// In the root block, connected elementwise ops on tensors of one shape become one op
// fused_elementwise at the place of the last of them, unless an op between them reads or writes
// what they write, or writes what they read. Updates (the role Optimize) and ops whose results are
// known before a run stay.
void FuseElementwise(ProgramDesc& program, const PassContext& context);

// In a program without gradients, runs of convolutions, poolings, elementwise ops and transpose2 on
// more than one image become fused_images, which run all of them on some images before the next.
// Runs are cut behind ops whose results others need, and end where filters begin to be larger than
// what is read and written of an image: these are read anew for each chunk of images.
void FuseImages(ProgramDesc& program, const PassContext& context);

// In the root block, moves updates to directly behind the last op that they must follow: the one
// that completes the gradient, or the last one that reads the parameter's old value. An update is
// an op of the role Optimize that reads and writes a persistable variable and reads a temporary.
// The ops of that role, or of a learning-rate schedule, that it depends on (decay, a clip of this
// gradient alone) go with it. Nothing moves before an op with side effects, and what would stay
// behind all backward ops anyhow does not move at all.
void UpdateEarly(ProgramDesc& program, const PassContext& context);

// In every block, joins ops of the role Optimize that differ only in their tensors (see
// OpDef::MultiTensor) into one op at the place of the last of them, unless an op between them reads
// or writes what they write, or writes what they read.
void MergeUpdates(ProgramDesc& program, const PassContext& context);

// In every block, lets an exchange (an op with the attr `overlap`, such as c_allreduce_sum) go on
// while later ops run: where its Out is its X, and the next op that uses it is a c_sync_comm_stream
// or c_wait_comm of its ring.
void OverlapExchanges(ProgramDesc& program, const PassContext& context);

}  // namespace coracle
