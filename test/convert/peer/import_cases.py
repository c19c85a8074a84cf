#!/usr/bin/env python3
"""ONNX nodes before ONNX Runtime: it and the command run the same models on the same inputs.

    import_cases.py CORACLE NODE_MODULES [NAME]

CORACLE is the command, NODE_MODULES a folder with onnxruntime-node. With NAME only cases whose name has it are run.
Those that either refuses are printed. Needs numpy, onnx (Debian: python3-onnx) and node.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
RANDOM = np.random.RandomState(7)
CASES = []


def floats(*shape, lo=-2, hi=2):
    return (RANDOM.rand(*shape) * (hi - lo) + lo).astype('float32')


def ints(*shape, lo=0, hi=5, dt='int64'):
    return RANDOM.randint(lo, hi, shape).astype(dt)


def case(name, op, inputs, outputs=1, constants=(), opset=13, domain='', dynamic=False, **attrs):
    """Inputs are arrays, or None for one that is not given; those in `constants` become initializers. Outputs: how
    many, or a list of names, '' for one that nobody wants. Dynamic: feeds declare all their dims as unknown."""
    CASES.append((name, op, inputs, outputs, constants, opset, domain, dynamic, attrs))


def model_of(op, inputs, outputs, constants, opset, domain, dynamic, attrs):
    names, feeds, initializers = [], [], []
    for i, x in enumerate(inputs):
        names.append('' if x is None else 'x%d' % i)
        if x is None:
            continue
        if i in constants:
            initializers.append(numpy_helper.from_array(x, names[-1]))
        else:
            dims = ['d%d_%d' % (i, k) for k in range(x.ndim)] if dynamic else x.shape
            kind = helper.np_dtype_to_tensor_dtype(x.dtype) if hasattr(helper, 'np_dtype_to_tensor_dtype') else \
                onnx.mapping.NP_TYPE_TO_TENSOR_TYPE[x.dtype]
            feeds.append((helper.make_tensor_value_info(names[-1], kind, dims), x))
    outs = ['y%d' % i for i in range(outputs)] if isinstance(outputs, int) else outputs
    node = helper.make_node(op, names, outs, name='n', domain=domain, **attrs)
    # ONNX Runtime infers the types of outputs.
    graph = helper.make_graph([node], 'g', [f[0] for f in feeds], [onnx.ValueInfoProto(name=o) for o in outs if o],
                              initializers)
    imports = [helper.make_opsetid('', opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 3 if domain == 'ai.onnx.ml' else 1))
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 8 if opset < 19 else 10
    return model, {f[0].name: f[1] for f in feeds}, [o for o in outs if o]


def write(folder, case_):
    model, feeds, outs = model_of(*case_[1:])
    os.makedirs(folder)
    onnx.save(model, folder + '/model.onnx')
    with open(folder + '/inputs.txt', 'w') as names:
        for i, (name, x) in enumerate(feeds.items()):
            names.write(name + '\n')
            np.save('%s/in_%d.npy' % (folder, i), x)
    np.savez(folder + '/in.npz', **feeds)
    return outs


def ort_outputs(folder):
    if os.path.exists(folder + '/error.txt'):
        return open(folder + '/error.txt').read().strip().split('\n')[0]
    names = open(folder + '/outputs.txt').read().split('\n')
    return {n: np.load('%s/out_%d.npy' % (folder, i)) for i, n in enumerate(names) if n}


def our_outputs(coracle, folder):
    run = subprocess.run([coracle, 'run', folder + '/model.onnx', '--feed=' + folder + '/in.npz',
                          '--out=' + folder + '/out.npz'], capture_output=True, text=True)
    return dict(np.load(folder + '/out.npz')) if run.returncode == 0 else run.stderr.strip().split('\n')[0]


def difference(ours, theirs):
    for name, y in theirs.items():
        if name not in ours:
            return '%s is missing among %s' % (name, list(ours))
        x = ours[name]
        y = y.reshape(1) if y.ndim == 0 else y
        if x.shape != y.shape or x.dtype != y.dtype:
            return '%s: %s %s, wanted %s %s' % (name, x.dtype, x.shape, y.dtype, y.shape)
        if not np.allclose(x.astype('float64'), y.astype('float64'), 1e-3, 1e-5, equal_nan=True):
            return '%s: %s, wanted %s' % (name, x.ravel()[:8], y.ravel()[:8])
    return ''


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    chosen = [c for c in CASES if len(sys.argv) < 4 or sys.argv[3] in c[0]]
    with tempfile.TemporaryDirectory() as root:
        folders = [os.path.join(root, '%03d' % i) for i in range(len(chosen))]
        for folder, c in zip(folders, chosen):
            write(folder, c)
        subprocess.run(['node', HERE + '/ort_run.js', sys.argv[2]] + folders, check=True, capture_output=True)
        wrong = same = 0
        for folder, c in zip(folders, chosen):
            ours, theirs = our_outputs(sys.argv[1], folder), ort_outputs(folder)
            if isinstance(ours, str) or isinstance(theirs, str):
                print('%-44s %s' % (c[0], 'Coracle: ' + ours.split('model.onnx: ')[-1] if isinstance(ours, str) else
                                    'ONNX Runtime alone refuses it: ' + theirs[:150]))
                wrong += not isinstance(theirs, str)
                continue
            problem = difference(ours, theirs)
            wrong, same = wrong + (problem != ''), same + (problem == '')
            if problem:
                print('%-44s DIFFERS %s' % (c[0], problem))
    print('%d of %d cases give the same numbers' % (same, len(chosen)))
    sys.exit(wrong > 0)


# --- Attention and its companions ---
q4, k4, v4 = floats(2, 4, 3, 8), floats(2, 4, 5, 8), floats(2, 4, 5, 6)
for opset in (23, 24):
    for dyn in (False, True):
        n = 'Attention %d %s' % (opset, 'dynamic ' if dyn else '')
        kw = dict(opset=opset, dynamic=dyn)
        scale = dict(scale=0.35) if dyn else {}
        case(n + '4d', 'Attention', [q4, k4, v4], **kw, **scale)
        case(n + 'causal', 'Attention', [q4, k4, v4], is_causal=1, **kw, **scale)
        case(n + 'bool mask', 'Attention', [q4, k4, v4, ints(3, 5, hi=4) > 0], **kw, **scale)
        case(n + 'float mask', 'Attention', [q4, k4, v4, floats(2, 1, 3, 5)], **kw, **scale)
        case(n + '3d', 'Attention', [floats(2, 3, 32), floats(2, 5, 32), floats(2, 5, 24)], q_num_heads=4, kv_num_heads=4,
             **kw, **scale)
        case(n + 'softcap', 'Attention', [q4, k4, v4], softcap=0.5, **kw, **scale)
        case(n + 'past', 'Attention', [q4, k4, v4, None, floats(2, 4, 2, 8), floats(2, 4, 2, 6)], 3, is_causal=1, **kw,
             **scale)
        case(n + 'shared 3d', 'Attention', [floats(2, 3, 32), floats(2, 5, 16), floats(2, 5, 12)], q_num_heads=4,
             kv_num_heads=2, **kw, **scale)
    case('Attention %d shared' % opset, 'Attention', [q4, floats(2, 2, 5, 8), floats(2, 2, 5, 6)], opset=opset)
    for mode in range(4):
        for extra in ([], [floats(3, 5)]):
            for softcap in (0.0, 0.7):
                case('Attention %d mode %d mask %d softcap %g' % (opset, mode, len(extra), softcap), 'Attention',
                     [q4, k4, v4] + extra, ['y', '', '', 'qk'], opset=opset, qk_matmul_output_mode=mode, softcap=softcap)
case('Attention 24 filled', 'Attention', [q4, k4, v4, None, None, None, np.array([3, 5])], opset=24)
case('Attention 24 filled causal', 'Attention', [q4, k4, v4, None, None, None, np.array([4, 5])], opset=24, is_causal=1)
for inter in (0, 1):
    for dim in (0, 4):
        half = (dim or 8) // 2
        kw = dict(opset=23, interleaved=inter, rotary_embedding_dim=dim)
        n = 'RotaryEmbedding %d %d ' % (inter, dim)
        case(n + '4d', 'RotaryEmbedding', [q4, floats(9, half), floats(9, half), ints(2, 3, hi=9)], **kw)
        case(n + '4d own', 'RotaryEmbedding', [q4, floats(2, 3, half), floats(2, 3, half)], **kw)
        case(n + '3d', 'RotaryEmbedding', [floats(2, 3, 32), floats(9, half), floats(9, half), ints(2, 3, hi=9)], num_heads=4,
             **kw)
for mode in ('linear', 'circular'):
    case('TensorScatter ' + mode, 'TensorScatter', [floats(2, 3, 6, 4), floats(2, 3, 2, 4), np.array([1, 4])], opset=24,
         mode=mode)
    case('TensorScatter axis ' + mode, 'TensorScatter', [floats(2, 6, 4), floats(2, 2, 4), np.array([3, 0])], opset=24,
         mode=mode, axis=1)
case('TensorScatter wraps', 'TensorScatter', [floats(2, 3, 6, 4), floats(2, 3, 3, 4), np.array([5, 4])], opset=24,
     mode='circular')
case('TensorScatter at 0', 'TensorScatter', [floats(2, 3, 6, 4), floats(2, 3, 3, 4)], opset=24)
for act in ('none', 'silu', 'swish'):
    case('CausalConvWithState ' + act, 'CausalConvWithState', [floats(2, 3, 7), floats(3, 1, 4), floats(3), floats(2, 3, 3)], 2,
         opset=27, activation=act)
    case('CausalConvWithState zeros ' + act, 'CausalConvWithState', [floats(2, 3, 7), floats(3, 1, 4)], 2, opset=27,
         activation=act)

# --- com.microsoft and ai.onnx.ml ---
MS, ML = dict(domain='com.microsoft', opset=17), dict(domain='ai.onnx.ml', opset=17)
img, w4 = floats(2, 4, 6, 7), floats(6, 4, 3, 3)
for act, params in (('Relu', None), ('Tanh', None), ('Sigmoid', None), ('LeakyRelu', [0.2]), ('HardSigmoid', [0.3, 0.4]),
                    ('Clip', [-0.5, 0.5])):
    kw = dict(activation=act, **({'activation_params': params} if params else {}))
    case('FusedConv ' + act, 'FusedConv', [img, w4, floats(6)], pads=[1, 1, 1, 1], **kw, **MS)
case('FusedConv Z', 'FusedConv', [img, w4, floats(6), floats(2, 6, 6, 7)], pads=[1, 1, 1, 1], activation='Relu', **MS)
for ta in (0, 1):
    for tb in (0, 1):
        case('FusedMatMul %d%d' % (ta, tb), 'FusedMatMul', [floats(2, 3, 3), floats(2, 3, 3)], transA=ta, transB=tb, alpha=0.3,
             **MS)
case('Gelu ms', 'Gelu', [floats(3, 4)], **MS)
case('QuickGelu', 'QuickGelu', [floats(3, 4)], alpha=1.3, **MS)
case('BiasGelu', 'BiasGelu', [floats(3, 4), floats(4)], **MS)
case('FastGelu', 'FastGelu', [floats(3, 4)], **MS)
case('FastGelu bias', 'FastGelu', [floats(3, 4), floats(4)], **MS)
case('SkipLayerNorm', 'SkipLayerNormalization', [floats(2, 3, 4), floats(2, 3, 4), floats(4), floats(4), floats(4)],
     ['y', '', '', 's'], epsilon=1e-5, **MS)
case('SkipLayerNorm plain', 'SkipLayerNormalization', [floats(2, 3, 4), floats(2, 3, 4), floats(4)], **MS)
i32 = lambda *s, **k: ints(*s, dt='int32', **k)
tables = [floats(9, 4), floats(6, 4), floats(2, 4)]
case('EmbedLayerNorm', 'EmbedLayerNormalization', [i32(2, 3, hi=9), i32(2, 3, hi=2)] + tables + [floats(4), floats(4),
     i32(2, 3, hi=2)], 2, **MS)
case('EmbedLayerNorm no segment', 'EmbedLayerNormalization', [i32(2, 3, hi=9), None] + tables[:2] + [None, floats(4),
     floats(4)], 1, **MS)
case('EmbedLayerNorm positions', 'EmbedLayerNormalization', [i32(2, 3, hi=9), i32(2, 3, hi=2)] + tables + [floats(4), floats(4),
     None, i32(2, 3, hi=6)], ['y', 'm', 'e'], **MS)
case('MultiHeadAttention', 'MultiHeadAttention', [floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 8)], num_heads=2, **MS)
case('MultiHeadAttention bias', 'MultiHeadAttention', [floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 8), floats(24), None,
     floats(1, 2, 3, 5)], num_heads=2, scale=0.3, **MS)
case('MultiHeadAttention unidirectional', 'MultiHeadAttention', [floats(2, 4, 8), floats(2, 4, 8), floats(2, 4, 8)], num_heads=2,
     unidirectional=1, **MS)
case('RotaryEmbedding ms', 'RotaryEmbedding', [floats(2, 3, 16), ints(2, 3, hi=9), floats(9, 4), floats(9, 4)], num_heads=2, **MS)
case('QLinearAdd', 'QLinearAdd', [i32(2, 3, hi=200).astype('uint8'), np.float32(0.1), np.uint8(3), i32(2, 3, hi=200).astype(
     'uint8'), np.float32(0.2), np.uint8(100), np.float32(0.15), np.uint8(7)], constants=(1, 2, 4, 5, 6, 7), **MS)
case('QLinearMul', 'QLinearMul', [i32(2, 3, hi=200).astype('uint8'), np.float32(0.1), np.uint8(3), i32(2, 3, hi=200).astype(
     'uint8'), np.float32(0.2), np.uint8(100), np.float32(1.5), np.uint8(7)], constants=(1, 2, 4, 5, 6, 7), **MS)
case('CausalConvWithState ms', 'CausalConvWithState', [floats(2, 3, 7), floats(3, 1, 4), floats(3), floats(2, 3, 3)], 2,
     activation='silu', **MS)
case('CausalConvWithState ms zeros', 'CausalConvWithState', [floats(2, 3, 7), floats(3, 1, 4)], 2, activation='none', **MS)
case('LayerNormalization 12', 'LayerNormalization', [floats(2, 3, 4), floats(4), floats(4)], opset=12)
case('SimplifiedLayerNormalization', 'SimplifiedLayerNormalization', [floats(2, 3, 4), floats(4)], opset=12)
case('Scaler', 'Scaler', [floats(3, 2)], offset=[0.5, -1.0], scale=[2.0, 3.0], **ML)
case('Scaler ints', 'Scaler', [ints(3, 2)], offset=[0.5], scale=[2.0], **ML)
case('Binarizer', 'Binarizer', [floats(3, 2)], threshold=0.3, **ML)
for norm in ('MAX', 'L1', 'L2'):
    case('Normalizer ' + norm, 'Normalizer', [np.vstack([floats(3, 4), np.zeros((1, 4), 'float32')])], norm=norm, **ML)
case('ArrayFeatureExtractor', 'ArrayFeatureExtractor', [floats(3, 5), np.array([4, 0])], **ML)
case('ArrayFeatureExtractor row', 'ArrayFeatureExtractor', [floats(5), np.array([4, 0])], **ML)
for tr in ('NONE', 'LOGISTIC', 'SOFTMAX'):
    case('LinearRegressor ' + tr, 'LinearRegressor', [floats(3, 2)], coefficients=[0.5, 1, 2, -1.0], intercepts=[0.1, 0.2],
         targets=2, post_transform=tr, **ML)

# --- the core set, by odd attributes ---
img5 = floats(1, 2, 4, 5, 6)
for name, x, k in (('1d', floats(2, 3, 9), [3]), ('2d', floats(2, 3, 7, 8), [3, 2]), ('3d', img5, [2, 3, 2])):
    r = len(k)
    for kw in (dict(), dict(strides=[2] * r), dict(pads=[1] * r + [0] * r), dict(auto_pad='SAME_UPPER', strides=[2] * r),
               dict(auto_pad='SAME_LOWER', strides=[2] * r), dict(ceil_mode=1, strides=[2] * r), dict(dilations=[2] * r),
               dict(ceil_mode=1, strides=[2] * r, pads=[1] * (2 * r))):
        label = '%s %s' % (name, ' '.join('%s=%s' % p for p in kw.items()))
        for opset in (12, 22):
            case('MaxPool %d %s' % (opset, label), 'MaxPool', [x], kernel_shape=k, opset=opset, **kw)
            if 'dilations' in kw and opset < 19:
                continue
            for inc in (0, 1):
                case('AveragePool %d inc%d %s' % (opset, inc, label), 'AveragePool', [x], kernel_shape=k, opset=opset,
                     count_include_pad=inc, **kw)
        if 'ceil_mode' not in kw and 'dilations' not in kw:
            case('LpPool 11 ' + label, 'LpPool', [x], kernel_shape=k, p=3, opset=11, **kw)
        case('LpPool 22 ' + label, 'LpPool', [x], kernel_shape=k, p=2, opset=22, **kw)
        if 'ceil_mode' not in kw:
            kk = dict(kw)
            case('Conv ' + label, 'Conv', [x, floats(4, x.shape[1], *k), floats(4)], **kk)
            case('ConvTranspose ' + label, 'ConvTranspose', [x, floats(x.shape[1], 2, *k), floats(2)], **kk)
    case('MaxPool indices ' + name, 'MaxPool', [x], 2, kernel_shape=k, strides=[2] * r, opset=12)
case('MaxPool column major', 'MaxPool', [floats(2, 3, 7, 8)], 2, kernel_shape=[3, 2], storage_order=1, opset=12)
case('ConvTranspose output_shape', 'ConvTranspose', [floats(1, 2, 3, 3), floats(2, 2, 3, 3)], strides=[3, 2], output_shape=[10, 8])
case('ConvTranspose output_padding', 'ConvTranspose', [floats(1, 4, 3, 3), floats(4, 2, 3, 3)], strides=[3, 2], group=2,
     output_padding=[1, 1], pads=[1, 0, 0, 1])
for red in ('Sum', 'Mean', 'Max', 'Min', 'Prod', 'L1', 'L2', 'LogSum', 'LogSumExp', 'SumSquare'):
    x = floats(2, 3, 4, lo=0.1)
    for opset in (11, 13, 18, 20):
        by_input = opset >= 18 or (red == 'Sum' and opset >= 13)
        for axes in ([1], [0, -1], None):
            for keep in (0, 1):
                ins = [x] + ([np.array(axes)] if by_input and axes else [])
                kw = {} if by_input or not axes else dict(axes=axes)
                case('Reduce%s %d %s %d' % (red, opset, axes, keep), 'Reduce' + red, ins, opset=opset, keepdims=keep,
                     constants=(1,) if len(ins) > 1 else (), **kw)
    if red not in ('LogSum', 'LogSumExp', 'L2'):
        case('Reduce%s int32' % red, 'Reduce' + red, [i32(3, 4)], opset=13, **({} if red == 'Sum' else dict(axes=[1])))
rx = floats(1, 2, 4, 5)
for mode in ('nearest', 'linear', 'cubic'):
    for ct in ('half_pixel', 'pytorch_half_pixel', 'align_corners', 'asymmetric', 'half_pixel_symmetric', 'tf_crop_and_resize'):
        for what, val in (('scales', np.array([1, 1, 1.72, 0.62], 'float32')), ('sizes', np.array([1, 2, 7, 4]))):
            roi = np.array([0, 0, 0.1, 0.2, 1, 1, 0.9, 0.7], 'float32') if ct.startswith('tf') else None
            ins = [rx, roi] + ([val] if what == 'scales' else [None, val])
            # Regions have sizes; ONNX Runtime rounds what align_corners multiplies.
            if what == 'scales' and ct in ('tf_crop_and_resize', 'align_corners'):
                continue
            case('Resize 19 %s %s %s' % (mode, ct, what), 'Resize', ins, opset=19, mode=mode, constants=(1, 2, 3),
                 coordinate_transformation_mode=ct, **(dict(nearest_mode='floor') if mode == 'nearest' else {}))
for nm in ('round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil'):
    case('Resize nearest ' + nm, 'Resize', [rx, None, np.array([1, 1, 2.3, 0.7], 'float32')], opset=13, mode='nearest',
         constants=(2,), nearest_mode=nm)
for mode in ('linear', 'cubic'):
    for ex in (0, 1):
        case('Resize antialias %s %d' % (mode, ex), 'Resize', [floats(1, 1, 8, 9), None, np.array([1, 1, 0.4, 0.5], 'float32')],
             opset=18, mode=mode, antialias=1, exclude_outside=ex, constants=(2,))
case('Resize cubic exclude', 'Resize', [rx, None, np.array([1, 1, 1.5, 2], 'float32')], opset=13, mode='cubic', exclude_outside=1,
     cubic_coeff_a=-0.5, constants=(2,))
case('Resize 3d', 'Resize', [img5, None, np.array([1, 1, 2, 0.5, 1.5], 'float32')], opset=13, mode='linear', constants=(2,))
for mode in ('bilinear', 'nearest', 'bicubic'):
    for pad in ('zeros', 'border', 'reflection'):
        for al in (0, 1):
            if (mode, pad) == ('bicubic', 'border'):
                continue  # ONNX's reference moves places outside to the border first, ONNX Runtime does not
            case('GridSample 16 %s %s %d' % (mode, pad, al), 'GridSample', [rx, floats(1, 3, 4, 2, lo=-1.5, hi=1.5)], opset=16,
                 mode=mode, padding_mode=pad, align_corners=al)
            case('GridSample 20 %s %s %d' % (mode, pad, al), 'GridSample', [rx, floats(1, 3, 4, 2, lo=-1.5, hi=1.5)], opset=20,
                 mode={'bilinear': 'linear', 'bicubic': 'cubic'}.get(mode, mode), padding_mode=pad, align_corners=al)
rois = np.array([[0, 0, 3, 3], [1, 0.5, 4, 3.5]], 'float32')
for opset in (10, 16):
    for mode in ('avg', 'max'):
        for sr in (0, 2) if mode == 'avg' else (2,):
            case('RoiAlign %d %s %d' % (opset, mode, sr), 'RoiAlign', [rx, rois, np.array([0, 0])], opset=opset, mode=mode,
                 sampling_ratio=sr, output_height=2, output_width=3, spatial_scale=0.8)
for red in ('none', 'add', 'mul', 'max', 'min'):
    case('ScatterElements ' + red, 'ScatterElements', [floats(4, 5), ints(2, 5, lo=-4, hi=4) if red != 'none' else np.array(
         [[0, 1, 2, 3, 0], [1, 2, 3, -4, -1]]), floats(2, 5)], opset=18, reduction=red)
    case('ScatterND ' + red, 'ScatterND', [floats(4, 5), np.array([[1, 2], [0, 3], [-1, -1]]), floats(3)], opset=18, reduction=red)
for mode in ('constant', 'reflect', 'edge', 'wrap'):
    case('Pad ' + mode, 'Pad', [floats(3, 4), np.array([1, 2, 2, 1])], opset=19, mode=mode, constants=(1,))
    case('Pad axes ' + mode, 'Pad', [floats(3, 4), np.array([2, 1]), None, np.array([-1])], opset=19, mode=mode, constants=(1, 3))
case('Pad negative', 'Pad', [floats(3, 4), np.array([-1, 2, 0, -1]), np.float32(5)], constants=(1, 2))
for e in ('bij,bjk->bik', 'ij->ji', 'ii->i', 'ij->', 'i,j->ij', '...ij,...jk->...ik', 'bhid,bhjd->bhij', 'ij,jk,kl->il'):
    n = {'b': 2, 'h': 2, 'i': 3, 'j': 3, 'k': 4, 'd': 2, 'l': 2}
    case('Einsum ' + e, 'Einsum', [floats(*[n[c] for c in t.replace('...', 'b')]) for t in e.split('->')[0].split(',')],
         equation=e)
for d in ('forward', 'reverse', 'bidirectional'):
    D = 2 if d[0] == 'b' else 1
    for lay in (0,):  # ONNX Runtime takes no other
        x = floats(5, 3, 4) if not lay else floats(3, 5, 4)
        h0 = (lambda: floats(D, 3, 2) if not lay else floats(3, D, 2))
        n = '%s layout %d' % (d, lay)
        for extra in (dict(), dict(clip=0.4)):
            n2 = n + (' clip' if extra else '')
            # LSTM without a clip: ONNX Runtime does not apply it to what the last activation reads.
            case('LSTM ' + n2, 'LSTM', [x, floats(D, 8, 4), floats(D, 8, 2), floats(D, 16), i32(3, lo=1, hi=6), h0(), h0(),
                 floats(D, 6)], 3, opset=14, direction=d, hidden_size=2, layout=lay)
            case('GRU ' + n2, 'GRU', [x, floats(D, 6, 4), floats(D, 6, 2), floats(D, 12), i32(3, lo=1, hi=6), h0()], 2, opset=14,
                 direction=d, hidden_size=2, layout=lay, linear_before_reset=1, **extra)
            case('GRU 0 ' + n2, 'GRU', [x, floats(D, 6, 4), floats(D, 6, 2)], 2, opset=14, direction=d, hidden_size=2, layout=lay,
                 **extra)
            case('RNN ' + n2, 'RNN', [x, floats(D, 2, 4), floats(D, 2, 2), floats(D, 4)], 2, opset=14, direction=d, hidden_size=2,
                 layout=lay, **extra)
for onesided in (0, 1):
    for inv in (0, 1):
        if onesided and inv:
            continue
        case('DFT 17 %d%d' % (onesided, inv), 'DFT', [floats(2, 6, 3, 1 if not inv else 2)], opset=17, axis=1, onesided=onesided,
             inverse=inv)
        case('DFT 20 %d%d' % (onesided, inv), 'DFT', [floats(2, 6, 3, 1 if not inv else 2), None, np.array(1)], opset=20,
             onesided=onesided, inverse=inv, constants=(2,))
case('DFT length', 'DFT', [floats(2, 6, 1), np.array(4)], opset=17, axis=1, constants=(1,))
case('STFT', 'STFT', [floats(1, 16, 1), np.array(4), floats(8)], opset=17, constants=(1,))
for win in ('Hann', 'Hamming', 'Blackman'):
    for per in (0, 1):
        case('%sWindow %d' % (win, per), win + 'Window', [np.array(9)], opset=17, periodic=per, constants=(0,))
case('MelWeightMatrix', 'MelWeightMatrix', [np.array(8), np.array(64), np.array(8192), np.float32(10), np.float32(4000)],
     opset=17, constants=(0, 1, 2, 3, 4))
case('AffineGrid 2d', 'AffineGrid', [floats(2, 2, 3), np.array([2, 3, 4, 5])], opset=20, constants=(1,))
case('AffineGrid 3d', 'AffineGrid', [floats(1, 3, 4), np.array([1, 3, 2, 3, 4])], opset=20, align_corners=1, constants=(1,))
case('Col2Im', 'Col2Im', [floats(1, 12, 9), np.array([5, 5]), np.array([2, 3])], opset=18, strides=[2, 1], pads=[0, 0, 1, 0],
     constants=(1, 2))
case('CenterCropPad', 'CenterCropPad', [floats(5, 4), np.array([3, 7])], opset=18, constants=(1,))
case('DeformConv', 'DeformConv', [floats(1, 2, 5, 5), floats(2, 2, 3, 3), floats(1, 18, 3, 3), floats(2), floats(1, 9, 3, 3)],
     opset=19)
case('MaxUnpool', 'MaxUnpool', [floats(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]])], kernel_shape=[2, 2], strides=[2, 2],
     opset=11)
case('MaxRoiPool', 'MaxRoiPool', [rx, np.array([[0, 0, 0, 3, 3]], 'float32')], pooled_shape=[2, 2], opset=11)
for op, dt in (('BitwiseAnd', 'int32'), ('BitwiseOr', 'int64'), ('BitwiseXor', 'uint8')):
    case(op, op, [ints(3, 4, hi=99, dt=dt), ints(4, hi=99, dt=dt)], opset=18)
case('BitwiseNot', 'BitwiseNot', [ints(3, 4, hi=99, dt='int32')], opset=18)
for cond in ([-1, 0, 3], [4, 2, 9]):
    case('Mod int %s' % cond, 'Mod', [np.array([-7, 5, 8]), np.array([3, -3, 5])])
case('Mod fmod', 'Mod', [floats(5, lo=-9, hi=9), floats(5, lo=1)], fmod=1)
case('Div int', 'Div', [np.array([-7, 7, -8, 9]), np.array([2, -2, 3, 4])])
case('NMS', 'NonMaxSuppression', [floats(1, 6, 4, lo=0, hi=3), floats(1, 2, 6, lo=0), np.array([3]), np.array([0.4], 'float32'),
     np.array([0.3], 'float32')], opset=11, constants=(2, 3, 4))
for ax in (None, 0, 1):
    case('Unique %s' % ax, 'Unique', [ints(3, 4, hi=3).astype('float32')], 4, opset=11, **({} if ax is None else dict(axis=ax)))
case('Unique unsorted', 'Unique', [ints(9, hi=4)], 4, opset=11, sorted=0)
case('CumSum', 'CumSum', [floats(3, 4), np.array(1)], exclusive=1, reverse=1, constants=(1,))
case('OneHot', 'OneHot', [ints(3, lo=-5, hi=7), np.array(5), floats(2)], opset=11, axis=0, constants=(1, 2))
case('ReverseSequence', 'ReverseSequence', [floats(4, 3), np.array([1, 4, 2])], opset=10)
case('Trilu', 'Trilu', [floats(2, 4, 5), np.array(-1)], opset=14, upper=0, constants=(1,))
case('EyeLike', 'EyeLike', [floats(3, 4)], opset=9, k=1, dtype=6)
case('Shrink', 'Shrink', [floats(9)], opset=9, lambd=0.7, bias=0.2)
case('Compress', 'Compress', [floats(3, 4), np.array([True, False, True])], opset=11, axis=1)
case('DepthToSpace CRD', 'DepthToSpace', [floats(1, 8, 2, 3)], blocksize=2, mode='CRD')
case('SpaceToDepth', 'SpaceToDepth', [floats(1, 2, 4, 6)], blocksize=2)
case('LRN', 'LRN', [floats(1, 7, 2, 3)], size=3, alpha=0.5, bias=2.0)
case('LRN even', 'LRN', [floats(1, 7, 2, 3)], size=4, alpha=0.5, bias=2.0)
case('GatherND batch', 'GatherND', [floats(2, 3, 4), ints(2, 1, hi=3)], batch_dims=1)
case('Det', 'Det', [floats(2, 3, 3)], opset=11)
case('TopK', 'TopK', [floats(3, 5), np.array([2])], 2, largest=0, axis=0, constants=(1,))
case('GroupNormalization 21', 'GroupNormalization', [floats(2, 6, 3, 3), floats(6), floats(6)], opset=21, num_groups=3)
case('LayerNormalization stats', 'LayerNormalization', [floats(2, 3, 4), floats(3, 4), floats(3, 4)], 3, opset=17, axis=1)
case('RMSNormalization', 'RMSNormalization', [floats(2, 3, 4), floats(4)], opset=23)
case('Swish', 'Swish', [floats(3, 4)], opset=24, alpha=0.7)
case('CumProd', 'CumProd', [floats(3, 4), np.array(1)], opset=26, constants=(1,))
u8 = lambda *s: ints(*s, hi=255, dt='uint8')
case('QuantizeLinear axis', 'QuantizeLinear', [floats(3, 4, lo=-9, hi=9), floats(4, lo=0.1), u8(4)], axis=1)
case('QuantizeLinear int8', 'QuantizeLinear', [floats(3, 4, lo=-9, hi=9), np.float32(0.05), np.int8(3)])
case('QuantizeLinear int16', 'QuantizeLinear', [floats(3, 4, lo=-9, hi=9), np.float32(0.001), np.int16(3)], opset=21)
case('QuantizeLinear block', 'QuantizeLinear', [floats(3, 4), floats(3, 2, lo=0.1), u8(3, 2)], opset=21, block_size=2, axis=1)
case('DequantizeLinear axis', 'DequantizeLinear', [u8(3, 4), floats(3, lo=0.1), u8(3)], axis=0)
case('DequantizeLinear int32', 'DequantizeLinear', [i32(3, 4), np.float32(0.1)])
case('DynamicQuantizeLinear', 'DynamicQuantizeLinear', [floats(3, 4)], 3, opset=11)
case('MatMulInteger', 'MatMulInteger', [u8(3, 4), u8(4, 2), np.uint8(7), u8(2)], opset=10, constants=(2, 3))
case('QLinearMatMul', 'QLinearMatMul', [u8(3, 4), np.float32(0.1), np.uint8(7), u8(4, 2), np.float32(0.2), np.uint8(9),
     np.float32(5.5), np.uint8(11)], opset=10, constants=(1, 2, 4, 5, 6, 7))
case('ConvInteger', 'ConvInteger', [u8(1, 2, 5, 5), u8(3, 2, 3, 3), np.uint8(4)], opset=10, constants=(2,), pads=[1, 1, 1, 1])
case('QLinearConv', 'QLinearConv', [u8(1, 2, 5, 5), np.float32(0.1), np.uint8(4), u8(3, 2, 3, 3), floats(3, lo=0.1), u8(3),
     np.float32(20.0), np.uint8(9), i32(3)], opset=10, constants=(1, 2, 3, 4, 5, 6, 7, 8))
for op in ('Abs Acos Asin Atan Ceil Cos Cosh Sinh Erf Exp Floor HardSwish Mish Neg Reciprocal Relu Round Sigmoid Sign Sin Softplus '
           'Softsign Sqrt Tan Tanh Acosh Asinh Atanh Log Elu Selu Celu LeakyRelu ThresholdedRelu HardSigmoid Gelu').split():
    lo, hi = (1.1, 3) if op == 'Acosh' else (0.1, 2) if op in ('Sqrt', 'Log', 'Reciprocal') else (-0.9, 0.9)
    case(op, op, [floats(3, 4, lo=lo, hi=hi)], opset=20)
half = floats(3, 4).astype('float16')
for op in 'Relu Exp Softmax Sigmoid Sqrt'.split():
    case(op + ' half', op, [np.abs(half)])
case('MatMul half', 'MatMul', [half, half.T.copy()])
case('Cast half', 'Cast', [half], to=1)

if __name__ == '__main__':
    main()
