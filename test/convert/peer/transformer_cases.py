#!/usr/bin/env python3
"""Nodes of transformers before ONNX Runtime, as import_cases.py.

    transformer_cases.py CORACLE NODE_MODULES [NAME]
"""
import numpy as np

import import_cases
from import_cases import case, floats, ints, main

import_cases.CASES.clear()
MS = dict(opset=17, domain='com.microsoft')


def i32(*values):
    return np.array(values, 'int32')


# --- MultiHeadAttention: batch 2, 2 heads of 4, 5 queries and keys (ONNX Runtime 1.20 reads a mask wrongly if there are
# fewer queries than keys) ---
Q, K, V = floats(2, 5, 8), floats(2, 5, 8), floats(2, 5, 8)
BIAS = floats(24)
KEYS = np.array([[1, 0, 1, 1, 0], [0, 1, 1, 0, 0]], 'int32')
for label, mask in (('ends', i32(4, 2)), ('keys', KEYS), ('all hidden', KEYS * i32(1, 0).reshape(2, 1)),
                    ('queries', ints(2, 5, 5, hi=2, dt='int32'))):
    for dynamic in (False, True):
        case('MHA mask %s %d' % (label, dynamic), 'MultiHeadAttention', [Q, K, V, BIAS, mask], dynamic=dynamic,
             num_heads=2, **MS)
    case('MHA mask causal ' + label, 'MultiHeadAttention', [Q, K, V, None, mask], unidirectional=1, num_heads=2, **MS)
    case('MHA mask value ' + label, 'MultiHeadAttention', [Q, K, V, None, mask], mask_filter_value=-3.0, num_heads=2, **MS)
past = [floats(2, 2, 4, 4), floats(2, 2, 4, 4)]
Q = floats(2, 3, 8)
new = [Q, floats(2, 3, 8), floats(2, 3, 8)]
for causal in (0, 1):
    for dynamic in (False, True):
        case('MHA past %d %d' % (causal, dynamic), 'MultiHeadAttention', new + [BIAS, None, floats(1, 2, 3, 7)] + past, 3,
             dynamic=dynamic, unidirectional=causal, num_heads=2, **MS)
case('MHA past mask', 'MultiHeadAttention', new + [BIAS, ints(2, 7, hi=2, dt='int32'), None] + past, 3, num_heads=2, **MS)
case('MHA cross', 'MultiHeadAttention', [Q] + past, num_heads=2, **MS)

# --- Attention ---
W, B3, X = floats(6, 24), floats(24), floats(2, 3, 6)
for label, mask in (('none', None), ('ends', i32(2, 3)), ('starts', i32(2, 3, 0, 1)),
                    ('keys', np.array([[1, 0, 1], [0, 1, 1]], 'int32')), ('queries', ints(2, 3, 3, hi=2, dt='int32'))):
    for causal in (0, 1):
        case('Attention %s %d' % (label, causal), 'Attention', [X, W, B3, mask], num_heads=2, unidirectional=causal,
             constants=(1, 2), **MS)
case('Attention past', 'Attention', [X, W, B3, None, floats(2, 2, 2, 4, 4)], 2, num_heads=2, unidirectional=1,
     constants=(1, 2), **MS)
case('Attention past mask', 'Attention', [X, W, B3, ints(2, 7, hi=2, dt='int32'), floats(2, 2, 2, 4, 4)], 2, num_heads=2,
     unidirectional=1, constants=(1, 2), dynamic=True, **MS)
case('Attention bias', 'Attention', [X, W, B3, None, None, floats(2, 2, 3, 3)], num_heads=2, constants=(1, 2), **MS)
case('Attention widths', 'Attention', [X, floats(6, 22), floats(22)], num_heads=2, qkv_hidden_sizes=[8, 8, 6],
     constants=(1, 2), **MS)

# Without VNNI, products of larger weights saturate in ONNX Runtime.
case('QAttention', 'QAttention', [ints(2, 3, 6, hi=256, dt='uint8'), ints(6, 24, lo=-60, hi=60, dt='int8'), B3,
     np.float32(0.02), np.float32(0.01), i32(3, 2), np.uint8(100), np.int8(3), floats(2, 2, 2, 4, 4)], 2, num_heads=2,
     constants=(1, 2, 3, 4, 6, 7), **MS)

# --- GroupQueryAttention: 4 heads of 16 that share 2 ---
COS, SIN = floats(16, 8), floats(16, 8)


def group(name, length, totals, held, rotates=0, **attrs):
    q, k, v = floats(2, length, 64), floats(2, length, 32), floats(2, length, 32)
    past = [floats(2, 2, held, 16), floats(2, 2, held, 16)] if held else [None, None]
    rows = [COS, SIN] if rotates else []
    inputs = [q, k, v] + past + [np.array(totals, 'int32') - 1, np.array([max(totals)], 'int32')] + rows
    if rotates:
        attrs['do_rotary'] = 1
    case('GQA ' + name, 'GroupQueryAttention', inputs, 3, num_heads=4, kv_num_heads=2, **attrs, **MS)


group('prompt', 3, [3, 3], 0)
group('step', 1, [6, 6], 5)
group('step buffer', 1, [6, 3], 12)
group('step buffer dynamic', 1, [6, 3], 12, dynamic=True)
group('prompt buffer', 3, [3, 3], 12)
group('rotary prompt', 3, [3, 3], 0, 1)
group('rotary step', 1, [6, 3], 12, 1)
group('rotary step interleaved', 1, [6, 3], 12, 1, rotary_interleaved=1)
group('softcap', 3, [3, 3], 0, softcap=0.7)
group('smooth', 3, [3, 3], 0, smooth_softmax=1)
case('GQA packed', 'GroupQueryAttention', [floats(2, 3, 128), None, None, None, None, i32(2, 2), i32(3), COS, SIN], 3,
     num_heads=4, kv_num_heads=2, do_rotary=1, **MS)

# --- rotary embedding, norms, activations, products ---
case('Rotary offset', 'RotaryEmbedding', [floats(2, 3, 32), np.array([5]), COS, SIN], **MS)
case('Rotary part', 'RotaryEmbedding', [floats(2, 3, 48), ints(2, 3, hi=9), COS, SIN], num_heads=2, rotary_embedding_dim=16,
     **MS)
case('SkipSimplified', 'SkipSimplifiedLayerNormalization', [floats(2, 3, 4), floats(2, 3, 4), floats(4), floats(4)],
     ['y', '', '', 's'], epsilon=1e-5, **MS)
case('SkipSimplified no bias', 'SkipSimplifiedLayerNormalization', [floats(2, 3, 4), floats(2, 3, 4), floats(4)],
     epsilon=1e-5, dynamic=True, **MS)
case('Simplified factor', 'SimplifiedLayerNormalization', [floats(2, 3, 4), floats(4)], 2, opset=17)
for act, kw in (('Relu', {}), ('Tanh', {}), ('LeakyRelu', dict(activation_alpha=0.2)),
                ('HardSigmoid', dict(activation_alpha=0.3, activation_beta=0.6)), ('Elu', dict(activation_alpha=0.5)),
                ('Softplus', {}), ('Selu', dict(activation_alpha=1.2, activation_gamma=1.1)), ('ThresholdedRelu', dict(
                    activation_alpha=0.5))):
    case('FusedGemm ' + act, 'FusedGemm', [floats(3, 4), floats(5, 4), floats(5)], transB=1, alpha=0.5, activation=act, **kw,
         **MS)

A8, B8 = ints(2, 3, 8, hi=256, dt='uint8'), ints(8, 5, hi=256, dt='uint8')
case('MatMulIntegerToFloat', 'MatMulIntegerToFloat', [A8, B8, floats(1), floats(5), np.array([99], 'uint8'),
     ints(5, hi=256, dt='uint8'), floats(5)], constants=(1, 3, 5, 6), **MS)
case('DynamicQuantizeMatMul', 'DynamicQuantizeMatMul', [floats(2, 3, 8), B8, floats(1), np.array([130], 'uint8'), floats(5)],
     constants=(1, 2, 3, 4), **MS)

# --- weights in bits ---
for k in (32, 40):
    blocks = -(-k // 16)
    for zeros in (None, 'packed', 'floats'):
        z = dict(packed=ints(6 * ((blocks + 1) // 2), hi=256, dt='uint8'), floats=floats(6 * blocks)).get(zeros)
        case('MatMulNBits %d %s' % (k, zeros), 'MatMulNBits', [floats(2, 3, k), ints(6, blocks, 8, hi=256, dt='uint8'),
             floats(6 * blocks)] + ([] if zeros is None else [z]), constants=(1, 2, 3), K=k, N=6, bits=4, block_size=16, **MS)

if __name__ == '__main__':
    main()
