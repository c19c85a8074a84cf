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

if __name__ == '__main__':
    main()
