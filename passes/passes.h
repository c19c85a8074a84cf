#pragma once
// The passes of the pipeline, each in its own file; pipeline.cc has their order and reasons.
// Internal to passes/.

#include <coracle/passes/pass.h>

namespace coracle::inline internal {

// Removes the ops of the root block whose outputs are neither read nor visible.
void EliminateDeadCode(ProgramDesc& program, const PassContext& context);

// Removes ops that return their input (assign, dropout in a test, scale by 1, cast to the same
// type, concat of one input, ...): readers of their output read the input instead. Keeps only the
// last of consecutive reshapes.
void RemoveIdentities(ProgramDesc& program, const PassContext& context);

// If convolutions of bfloat16 run on the float32 kernels (see BFloat16ProductsPay), casts of their
// filters to bfloat16, and of the filters' gradients back, only cost digits and time. Removes these
// casts: the convolutions read float32 filters and write float32 gradients.
void WidenFilters(ProgramDesc& program, const PassContext& context);

// Rewrites quantized values in other forms as affine_quantize and affine_dequantize of float32, if
// their parameters are frozen or of a dynamic_scale: Paddle's fake_quantize and quantize_linear
// ops, oneDNN's quantize, and sums of integers that are multiplied by their scales later.
void UnifyQuantization(ProgramDesc& program, const PassContext& context);

// Runs the ops that depend only on frozen parameters and constants, and makes their results frozen
// parameters. Skips results that would increase the memory of the parameters by more than 1 MiB in
// total, after parameters that are no longer read are released, except float32 weights that are
// stored in 16 bits.
void FoldConstants(ProgramDesc& program, const PassContext& context);

// The same, but also dequantizes weights, whatever they grow to: FoldConstants leaves the
// affine_dequantize of frozen integers of 8 bits to the passes that use the integers.
void FoldDequantized(ProgramDesc& program, const PassContext& context);

// Moves affine_dequantize after ops that only move or select elements, and affine_quantize before
// them, if that lets quantizations meet each other or products, and removes pairs that give the
// same integers back. Only for frozen scales.
void MoveQuantization(ProgramDesc& program, const PassContext& context);

// Replaces convolutions, products, sums, concatenations, average pools and functions of single
// values between affine_dequantize and affine_quantize by ops on integers (quantized_conv2d, ...),
// if scales are frozen and integer products pay on this machine. Results may differ by one step of
// the scale where a value lies between two integers.
void FuseQuantized(ProgramDesc& program, const PassContext& context);

// Replaces products of real numbers and dequantized weights by quantized_linear, which reads the
// integers of 4 or 8 bits, and lookups in dequantized tables by lookups of integers. Only for
// frozen weights and scales.
void FuseWeightOnly(ProgramDesc& program, const PassContext& context);

// Computes ops of equal type, attrs and inputs only once. Skips recomputed ops (recomputed_from)
// and their originals.
void JoinCommonSubexpressions(ProgramDesc& program, const PassContext& context);

// Moves ops of a loop of the root block that compute the same in each round before the loop, where
// they run only if the loop has a round. Skips loops that are differentiated.
void HoistInvariants(ProgramDesc& program, const PassContext& context);

// Moves a squeeze of the result of an op on images after elementwise ops, batch_norm and concat,
// which then work on images, too, and removes it together with an unsqueeze that undoes it. So the
// ops between 1-D convolutions look to later passes like those between 2-D ones. Only for frozen
// parameters (PassContext::frozen).
void MoveSqueezes(ProgramDesc& program, const PassContext& context);

// Lets ops that move or select float16 elements (concat, max pooling, reshape, ...) compute in
// float32 if only casts to float32 read their results, and relu before a cast to float16. Values do
// not change, except that a zero may have another sign.
void WidenHalves(ProgramDesc& program, const PassContext& context);

// Folds a batch_norm with fixed statistics into the convolution or mul before it (and a bias
// between them): multiplies its scale into the filter and turns the rest into a bias. Needs
// frozen parameters.
void FoldBatchNorm(ProgramDesc& program, const PassContext& context);

// Replaces hard_swish, swish and gelu that are written out as several ops by the one op. Needs
// frozen constants.
void FindActivations(ProgramDesc& program, const PassContext& context);

// Folds frozen factors and shifts of channels, before and after convolutions and products with
// frozen weights, into the weights and the bias. A shift before a convolution with padding stays.
void FoldScales(ProgramDesc& program, const PassContext& context);

// Fuses conv2d + elementwise_add of a per-channel bias into one conv2d with Bias, and also
// their gradients.
void FuseConvBias(ProgramDesc& program, const PassContext& context);

// Fuses a convolution, the addition of a tensor of its shape, and the activation of the sum.
void FuseConvEpilogue(ProgramDesc& program, const PassContext& context);

// In training, fuses batch_norm + relu into fused_batch_norm_act, batch_norm + elementwise_add +
// relu into fused_bn_add_activation, and also their gradients.
void FuseBatchNormActivation(ProgramDesc& program, const PassContext& context);

// Fuses a mul or matmul with a parameter matrix, the elementwise_add of a bias along the last axis,
// and an optional activation into one fc. The fc also returns the sum (Sum) if a gradient reads it.
// Fuses the gradients of product, addition and activation into one fc_gradients; the activation's
// gradient may read its result (relu) or the sum (gelu, swish).
void FuseFc(ProgramDesc& program, const PassContext& context);

// Fuses softmax_with_cross_entropy, the mean of its loss and the gradients of both into one op that
// computes loss and gradient together. In other places, drops the output Softmax if no op reads it.
void FuseSoftmaxCrossEntropy(ProgramDesc& program, const PassContext& context);

// Fuses softmax(Q K^T scale + mask) V, with dropout of the weights and the gradients of all of it,
// into one scaled_dot_product_attention, which never stores the whole matrix of scores. Also fuses
// the transpositions and slices that make Q, K and V from [B, S, H, D] or [B, S, 3, H, D].
void FuseAttention(ProgramDesc& program, const PassContext& context);

// Fuses elementwise_add + layer_norm, and a dropout of a term of the sum, into one
// fused_residual_layer_norm, and also their gradients, with the op that adds the gradient of other
// readers of the sum.
void FuseLayerNorm(ProgramDesc& program, const PassContext& context);

// Lets convolutions and products with frozen weights compute in bfloat16, if PassContext::precision
// says so and the machine has fast instructions for it. Convolutions read and write bfloat16, and
// so do ops on images and elementwise ops between them; products convert their rows themselves and
// write float32. All other ops, sub-blocks and visible variables stay as they are.
void UseBfloat16(ProgramDesc& program, const PassContext& context);

// Runs ops on images and volumes with channels last: these ops and the elementwise ops between
// them get data_format NHWC, and transpose2 ops convert at the borders. Visible variables keep
// their layout.
void UseNhwcLayout(ProgramDesc& program, const PassContext& context);

// Merges or removes consecutive transposes, and lets a product transpose its own Y. Moves a
// transpose after ops that work in any order of axes (elementwise ops, concat, split, reductions,
// pad, slice, shape, softmax) if that leaves fewer or smaller transposes.
void MoveTransposes(ProgramDesc& program, const PassContext& context);

// In the root block, fuses connected elementwise ops on tensors of one shape into one op
// fused_elementwise at the position of the last of them, unless an op between them reads or writes
// what they write, or writes what they read. Skips updates (the role Optimize) and ops whose
// results are known before a run.
void FuseElementwise(ProgramDesc& program, const PassContext& context);

// In a program without gradients, fuses sequences of convolutions, poolings, elementwise ops and
// transpose2 on more than one image into fused_images, which runs all of them on some images, then
// on the next ones. Ends a group after an op whose result other ops need, and where the filters
// become larger than the data of one image, because each chunk of images reads the filters again.
void FuseImages(ProgramDesc& program, const PassContext& context);

// In the root block, moves each update directly after the last op that it must follow: the op that
// completes the gradient, or the last op that reads the old value of the parameter. An update is an
// op of the role Optimize that reads and writes a persistable variable and reads a temporary. The
// ops of that role or of a learning-rate schedule that the update depends on (decay, a clip of only
// this gradient) move with it. No op moves to before an op with side effects, and an op that must
// follow the last backward op does not move.
void UpdateEarly(ProgramDesc& program, const PassContext& context);

// In every block, joins ops of the role Optimize that differ only in their tensors (see
// OpDef::MultiTensor) into one op at the position of the last of them, unless an op between them
// reads or writes what they write, or writes what they read.
void MergeUpdates(ProgramDesc& program, const PassContext& context);

// In every block, lets an exchange (an op with the attr `overlap`, such as c_allreduce_sum)
// continue while later ops run, if its Out is its X and the next op that uses it is a
// c_sync_comm_stream or c_wait_comm of the same ring.
void OverlapExchanges(ProgramDesc& program, const PassContext& context);

}  // namespace coracle::inline internal
