#!/usr/bin/env python3
"""Programs of one op before ONNX Runtime: the command exports them and runs them, ONNX Runtime runs the models.

    op_cases.py CORACLE NODE_MODULES [OPSET...]

CORACLE is the command, NODE_MODULES a folder with onnxruntime-node. All cases are one program; those that the
exporter refuses are printed and left out. Needs numpy, onnx (Debian: python3-onnx), protoc and node.
"""
import importlib
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = {'bool': 0, 'int32': 2, 'int64': 3, 'float32': 5, 'float64': 6}
RANDOM = np.random.RandomState(3)
CASES = []


def case(op_type, inputs, outputs, dynamic=False, **attrs):
    """Outputs: slot -> number of variables, or '' where nobody fetches it. Dynamic: inputs of rank 2 or more
    declare their first dim, or 'all' their dims, as unknown."""
    CASES.append((op_type, inputs, outputs, attrs, dynamic))


def floats(*shape, lo=-2, hi=2):
    return (RANDOM.rand(*shape) * (hi - lo) + lo).astype('float32')


def ints(*shape, hi=5, lo=0, dt='int64'):
    return RANDOM.randint(lo, hi, shape).astype(dt)


def framework():
    """The module that protoc makes of Coracle's schema."""
    with tempfile.TemporaryDirectory() as out:
        proto = os.path.join(HERE, '..', '..', '..', 'proto')
        subprocess.check_call(['protoc', '-I' + proto, '--python_out=' + out, 'framework.proto'])
        sys.path.insert(0, out)
        return importlib.import_module('framework_pb2')


def set_attr(op, name, value):
    """A tuple (kind, value) names the field; other values tell it."""
    kinds = {'long': (9, 'l'), 'longs': (11, 'longs'), 'strings': (5, 'strings'), 'ints': (3, 'ints')}
    if isinstance(value, tuple):
        (number, field), value = kinds[value[0]], value[1]
    elif isinstance(value, list):
        number, field = (4, 'floats') if isinstance(value[0], float) else (3, 'ints')
    else:
        number, field = {bool: (6, 'b'), int: (0, 'i'), float: (1, 'f'), str: (2, 's')}[type(value)]
    attr = op.attrs.add(name=name, type=number)
    if isinstance(value, list):
        getattr(attr, field).extend(value)
    else:
        setattr(attr, field, value)


def program_of(pb, cases, path):
    """Writes the program; returns what it is fed and what it fetches."""
    program = pb.ProgramDesc()
    block = program.blocks.add(idx=0, parent_idx=-1)
    feeds, fetches = {}, []

    def variable(name, dtype, dims=()):
        tensor = block.vars.add(name=name)
        tensor.type.type = 7
        tensor.type.lod_tensor.tensor.data_type = dtype
        tensor.type.lod_tensor.tensor.dims.extend(dims)

    holder = block.vars.add(name='fetch')
    holder.type.type = 10
    for number, (op_type, inputs, outputs, attrs, dynamic) in cases:
        op = block.ops.add(type=op_type)
        for slot, arrays in inputs.items():
            names = op.inputs.add(parameter=slot).arguments
            for k, array in enumerate(arrays if isinstance(arrays, list) else [arrays]):
                names.append('c%d_%s_%d' % (number, slot, k))
                feeds[names[-1]] = array
                dims = list(array.shape)
                if dynamic and array.ndim > 1:
                    dims = [-1] * len(dims) if dynamic == 'all' else [-1] + dims[1:]
                variable(names[-1], DTYPES[str(array.dtype)], dims)
        for slot, count in outputs.items():
            names = op.outputs.add(parameter=slot).arguments
            for k in range(count or 1):
                names.append('o%d_%s_%d' % (number, slot, k))
                variable(names[-1], 5)
            fetches += list(names) if count else []
        for name, value in attrs.items():
            set_attr(op, name, value)
    for column, name in enumerate(fetches):
        op = block.ops.add(type='fetch')
        op.inputs.add(parameter='X').arguments.append(name)
        op.outputs.add(parameter='Out').arguments.append('fetch')
        set_attr(op, 'col', column)
    with open(path, 'wb') as file:
        file.write(program.SerializeToString())
    return feeds, fetches


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def export(coracle, pb, folder, opset):
    """Exports all cases that are not refused."""
    left = list(enumerate(CASES))
    while True:
        feeds, fetches = program_of(pb, left, folder + '/p.pdmodel')
        code, text = run(coracle, 'convert', folder + '/p.pdmodel', folder + '/model.onnx', '--opset=%d' % opset)
        if code == 0:
            return left, feeds, fetches
        place = re.search(r'block 0 op (\d+)', text)
        if not place:
            sys.exit(text)
        print('refused', text.split('\n')[0])
        del left[int(place.group(1))]


def difference(want, got):
    """Of finite numbers relative to the largest; what is neither must be equal."""
    if want.dtype != got.dtype or want.shape != got.shape:
        return np.inf
    a, b = want.astype('float64'), got.astype('float64')
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    distance = np.where(same, 0, np.abs(np.where(same, 0, a) - np.where(same, 0, b)))
    finite = np.abs(a[np.isfinite(a)])
    return distance.max(initial=0) / (1e-6 + finite.max(initial=0))


def check(coracle, modules, pb, folder, opset):
    left, feeds, _ = export(coracle, pb, folder, opset)
    np.savez(folder + '/in.npz', **feeds)
    for i, array in enumerate(feeds.values()):
        np.save('%s/in_%d.npy' % (folder, i), np.ascontiguousarray(array))
    with open(folder + '/inputs.txt', 'w') as file:
        file.write('\n'.join(feeds) + '\n')
    for command in ([sys.executable, HERE + '/check_model.py', folder + '/model.onnx'] if opset <= 17 else ['true'],
                    [coracle, 'run', folder + '/p.pdmodel', '--feed=' + folder + '/in.npz',
                     '--out=' + folder + '/want.npz', '--disabled_passes=all'],
                    ['node', HERE + '/ort_run.js', modules, folder]):
        code, text = run(*command)
        if code:
            sys.exit(text)
    if os.path.exists(folder + '/error.txt'):
        sys.exit(open(folder + '/error.txt').read())
    want, worst, wrong = np.load(folder + '/want.npz'), 0, 0
    outputs = open(folder + '/outputs.txt').read().split()
    for i, name in enumerate(outputs):
        distance = difference(want[name], np.load('%s/out_%d.npy' % (folder, i)))
        if distance <= 1e-4:
            worst = max(worst, distance)
            continue
        wrong += 1
        op_type, _, _, attrs, _ = CASES[int(name.split('_')[0][1:])]
        print('wrong', op_type, attrs, name, distance)
    print('opset %d: %d of %d cases, %d outputs, %d wrong, largest difference of the others %.1e'
          % (opset, len(left), len(CASES), len(outputs), wrong, worst))
    return wrong


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    pb, wrong = framework(), 0
    for opset in map(int, sys.argv[3:] or ['17']):
        with tempfile.TemporaryDirectory() as folder:
            wrong += check(sys.argv[1], sys.argv[2], pb, folder, opset)
    sys.exit(wrong > 0)


x = floats(2, 3, 4)
acts = '''abs ceil cos cosh elu erf exp expm1 floor gelu hard_shrink hard_sigmoid hard_swish leaky_relu logsigmoid
    mish relu relu6 round selu sigmoid sign silu sin sinh soft_relu softplus softshrink softsign square stanh
    swish tan tanh tanh_shrink thresholded_relu trunc brelu atan'''.split()
edge = np.array([[-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, -0.0001, 0.0001, 30.0, -30.0, 0.49999997]], 'float32')
for a in acts:
    case(a, {'X': x}, {'Out': 1})
    if a != 'tan':
        case(a, {'X': edge}, {'Out': 1})
for a in 'elu exp expm1 leaky_relu relu sigmoid softplus softsign tanh'.split():
    case(a, {'X': np.array([[-200, -1000, -np.inf]], 'float32')}, {'Out': 1})
for a in 'log log10 log1p log2 reciprocal rsqrt sqrt'.split():
    case(a, {'X': floats(2, 5, lo=0.01, hi=3)}, {'Out': 1})
case('log1p', {'X': np.array([1e-06, -1e-06, 0.5, -0.5, 10, 100000000.0], 'float32')}, {'Out': 1})
for a in 'acos asin'.split():
    case(a, {'X': floats(2, 5, lo=-1, hi=1)}, {'Out': 1})
case('gelu', {'X': x}, {'Out': 1}, approximate=True)
case('softplus', {'X': edge}, {'Out': 1}, beta=2.0, threshold=3.0)
case('mish', {'X': edge}, {'Out': 1}, threshold=1.0)
case('hard_swish', {'X': x}, {'Out': 1}, threshold=4.0, scale=5.0, offset=2.0)
case('pow', {'X': floats(3, 3, lo=0.1, hi=3)}, {'Out': 1}, factor=2.5)
case('pow', {'X': ints(3, 3)}, {'Out': 1}, factor=2.0)
case('prelu', {'X': floats(2, 3, 4, 4), 'Alpha': floats(3)}, {'Out': 1}, mode='channel')
case('prelu', {'X': floats(2, 3, 4, 4), 'Alpha': floats(1)}, {'Out': 1}, mode='all')
case('prelu', {'X': floats(2, 3, 4, 4), 'Alpha': floats(1, 3, 4, 4)}, {'Out': 1}, mode='element')
case('softmax', {'X': x}, {'Out': 1}, axis=1)
case('log_softmax', {'X': x}, {'Out': 1}, axis=-1)
case('maxout', {'X': floats(2, 6, 3, 3)}, {'Out': 1}, groups=2)
case('maxout', {'X': floats(2, 3, 3, 6)}, {'Out': 1}, groups=3, axis=3)
for e in 'elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max elementwise_min elementwise_mod elementwise_floordiv'.split():
    case(e, {'X': floats(2, 3, 4, 5), 'Y': floats(3, 4, lo=0.5)}, {'Out': 1}, axis=1)
    case(e, {'X': floats(2, 3, 4), 'Y': floats(4, lo=0.5)}, {'Out': 1})
    case(e, {'X': floats(2, 3, 4), 'Y': floats(2, 3, 1, lo=0.5)}, {'Out': 1}, axis=0)
    case(e, {'X': floats(2, 3), 'Y': floats(2, 3, 1, 1, lo=0.5)}, {'Out': 1}, axis=0)
    case(e, {'X': floats(3), 'Y': floats(2, 3, lo=0.5)}, {'Out': 1})
    case(e, {'X': ints(2, 3, lo=-9, hi=9), 'Y': np.array([[3, -3, 4], [-2, 5, 7]])}, {'Out': 1})
case('elementwise_mod', {'X': floats(4, 4, lo=-5, hi=5), 'Y': np.array([1.5, -1.5, 2, -0.7], 'float32')}, {'Out': 1})
case('elementwise_add', {'X': floats(2, 3), 'Y': floats(2, 1, 1, 1)}, {'Out': 1}, axis=0)
for dt in ('int32', 'int64'):
    most = np.iinfo(dt).max
    case('elementwise_floordiv', {'X': np.array([most, -most - 1, most - 1, -most - 1, 6, -7, 7], dt),
         'Y': np.array([-3, 3, -4, -3, -3, 3, -3], dt)}, {'Out': 1})
    case('trunc', {'X': np.array([5, -7, most], dt)}, {'Out': 1})
case('elementwise_pow', {'X': floats(2, 3, lo=0.1, hi=2), 'Y': floats(3)}, {'Out': 1})
case('elementwise_pow', {'X': ints(2, 3, lo=1), 'Y': ints(3)}, {'Out': 1})
case('elementwise_pow', {'X': ints(2, 3, lo=-3), 'Y': ints(3, lo=40, hi=70)}, {'Out': 1})  # saturates
for c in 'equal not_equal less_than less_equal greater_than greater_equal'.split():
    case(c, {'X': ints(3, 4, hi=3), 'Y': ints(3, 4, hi=3)}, {'Out': 1})
    case(c, {'X': floats(3, 4), 'Y': floats(3)}, {'Out': 1}, axis=0)
    case(c, {'X': ints(3, 4, hi=2).astype(bool), 'Y': ints(3, 4, hi=2).astype(bool)}, {'Out': 1})
for c in 'logical_and logical_or logical_xor'.split():
    case(c, {'X': ints(3, 4, hi=2).astype(bool), 'Y': ints(4, hi=2).astype(bool)}, {'Out': 1})
    case(c, {'X': ints(3, 4, hi=2), 'Y': ints(3, 4, hi=2)}, {'Out': 1})
case('logical_not', {'X': ints(3, 4, hi=2).astype(bool)}, {'Out': 1})
case('bitwise_and', {'X': ints(3, 4, hi=9), 'Y': ints(3, 4, hi=9)}, {'Out': 1})
case('bitwise_not', {'X': ints(3, 4, hi=2).astype(bool)}, {'Out': 1})
case('bitwise_xor', {'X': ints(3, 4, hi=9, dt='int32'), 'Y': ints(3, 4, hi=9, dt='int32')}, {'Out': 1})
case('scale', {'X': x}, {'Out': 1}, scale=2.0, bias=1.0)
case('scale', {'X': x}, {'Out': 1}, scale=2.0, bias=1.0, bias_after_scale=False)
case('scale', {'X': ints(3, 3)}, {'Out': 1}, scale=2.5, bias=1.7)
case('scale', {'X': x, 'ScaleTensor': floats(1)}, {'Out': 1}, bias=0.5)
case('clip', {'X': x}, {'Out': 1}, min=-0.5, max=0.7)
case('clip', {'X': ints(3, 3, lo=-9, hi=9)}, {'Out': 1}, min=-2.5, max=3.9)
case('clip', {'X': x, 'Min': np.array([-1], 'float32')}, {'Out': 1}, min=0.0, max=1.0)
case('increment', {'X': floats(1)}, {'Out': 1}, step=2.5)
case('where', {'Condition': ints(3, 4, hi=2).astype(bool), 'X': floats(3, 4), 'Y': floats(3, 4)}, {'Out': 1})
case('sum', {'X': [floats(2, 3), floats(2, 3), floats(2, 3)]}, {'Out': 1})
case('sum', {'X': [ints(2, 3), ints(2, 3)]}, {'Out': 1})
case('minus', {'X': floats(2, 3), 'Y': floats(2, 3)}, {'Out': 1})
nf = np.array([1, np.inf, -np.inf, np.nan, 0], 'float32')
for t in 'isfinite isnan isinf isfinite_v2 isnan_v2 isinf_v2'.split():
    case(t, {'X': nf}, {'Out': 1})
    case(t, {'X': floats(2, 2)}, {'Out': 1})
for fl in (['relu', 'elementwise_add'], ['elementwise_add', 'relu'], ['scale', 'elementwise_mul'],
     ['elementwise_mul', 'sigmoid']):
    case('fused_elemwise_activation', {'X': floats(2, 3, 4), 'Y': floats(4)}, {'Out': 1, 'IntermediateOut': 1},
         functor_list=('strings', fl), scale=2.0)
for dyn in (False, True, 'all'):
    case('conv2d', {'Input': floats(2, 4, 7, 8), 'Filter': floats(6, 4, 3, 3)}, {'Output': 1}, dyn and dyn != 'all',
         strides=[2, 1], paddings=[1, 2], dilations=[1, 1], groups=1)
case('conv2d', {'Input': floats(2, 4, 7, 8), 'Filter': floats(6, 2, 3, 3), 'Bias': floats(6)}, {'Output': 1}, strides=[1, 2],
     paddings=[1, 0, 2, 1], dilations=[2, 1], groups=2, fuse_activation='leaky_relu', fuse_alpha=0.1)
case('conv2d', {'Input': floats(2, 7, 8, 4), 'Filter': floats(6, 4, 3, 3)}, {'Output': 1}, strides=[2, 2], paddings=[1, 1],
     dilations=[1, 1], groups=1, data_format='NHWC')
case('conv2d', {'Input': floats(2, 4, 7, 8), 'Filter': floats(6, 4, 3, 2)}, {'Output': 1}, strides=[2, 3], paddings=[0, 0],
     dilations=[2, 2], groups=1, padding_algorithm='SAME')
case('conv2d', {'Input': floats(2, 4, 7, 8), 'Filter': floats(6, 4, 3, 2)}, {'Output': 1}, strides=[2, 3], paddings=[3, 3],
     dilations=[2, 2], groups=1, padding_algorithm='VALID')
case('conv2d', {'Input': floats(2, 4, 7, 8), 'Filter': floats(6, 4, 3, 3), 'ResidualData': floats(2, 6, 7, 8)}, {'Output': 1},
     strides=[1, 1], paddings=[1, 1], fuse_activation='relu')
case('depthwise_conv2d', {'Input': floats(2, 4, 7, 8), 'Filter': floats(4, 1, 3, 3)}, {'Output': 1}, strides=[1, 1],
     paddings=[1, 1], groups=4)
case('conv2d_fusion', {'Input': floats(2, 4, 5, 5), 'Filter': floats(6, 4, 3, 3), 'Bias': floats(6)}, {'Output': 1}, strides=[1,
     1], paddings=[1, 1], activation='relu')
case('conv3d', {'Input': floats(1, 2, 4, 5, 6), 'Filter': floats(3, 2, 2, 3, 3)}, {'Output': 1}, strides=[1, 2, 1],
     paddings=[0, 1, 1])
for kw in (dict(), dict(output_size=[15, 10]), dict(output_padding=[1, 0]), dict(padding_algorithm='SAME'),
     dict(padding_algorithm='VALID')):
    case('conv2d_transpose', {'Input': floats(2, 4, 7, 5), 'Filter': floats(4, 3, 3, 3)}, {'Output': 1}, strides=[2, 2],
         paddings=[1, 1], dilations=[1, 1], groups=1, **kw)
case('conv2d_transpose', {'Input': floats(2, 7, 5, 4), 'Filter': floats(4, 3, 3, 2), 'Bias': floats(6)}, {'Output': 1},
     strides=[3, 2], paddings=[1, 0, 2, 1], dilations=[1, 2], groups=2, data_format='NHWC',
     fuse_activation='relu')
case('conv3d_transpose', {'Input': floats(1, 2, 3, 4, 3), 'Filter': floats(2, 3, 2, 2, 3)}, {'Output': 1}, strides=[1, 2,
     2], paddings=[0, 1, 1], dilations=[1, 1, 1], groups=1)
for pt in ('max', 'avg'):
    for excl in (True, False):
        for dyn in (False, 'all'):
            for kw in (dict(ksize=[3, 3], strides=[2, 2], paddings=[1, 1]), dict(ksize=[3, 2], strides=[2, 2],
                 paddings=[0, 0], ceil_mode=True), dict(ksize=[3, 3], strides=[2, 2], paddings=[1, 0, 1, 1],
                 ceil_mode=True), dict(ksize=[2, 3], strides=[2, 3], paddings=[1, 1], ceil_mode=True),
                 dict(ksize=[3, 3], strides=[1, 2], paddings=[0, 0], padding_algorithm='SAME'), dict(ksize=[2,
                 2], strides=[2, 2], paddings=[5, 5], padding_algorithm='VALID')):
                case('pool2d', {'X': floats(2, 3, 7, 8)}, {'Out': 1}, dyn, pooling_type=pt, exclusive=excl, **kw)
        case('pool2d', {'X': floats(2, 7, 8, 3)}, {'Out': 1}, pooling_type=pt, exclusive=excl, ksize=[2, 2],
             strides=[2, 2], paddings=[0, 0], data_format='NHWC')
    case('pool2d', {'X': floats(2, 3, 7, 8)}, {'Out': 1}, 'all', pooling_type=pt, ksize=[1, 1], global_pooling=True)
    case('pool2d', {'X': floats(2, 3, 7, 8)}, {'Out': 1}, 'all', pooling_type=pt, ksize=[1, 1], adaptive=True)
    case('pool2d', {'X': floats(2, 3, 6, 8)}, {'Out': 1}, pooling_type=pt, ksize=[3, 4], adaptive=True)
    case('pool2d', {'X': floats(2, 3, 7, 8)}, {'Out': 1}, pooling_type=pt, ksize=[3, 5], adaptive=True)
    case('pool2d', {'X': floats(2, 3, 2, 8)}, {'Out': 1}, pooling_type=pt, ksize=[3, 3], strides=[2, 2], paddings=[0,
         0])
    case('pool3d', {'X': floats(1, 2, 5, 6, 7)}, {'Out': 1}, pooling_type=pt, ksize=[2, 2, 3], strides=[2, 1, 2],
         paddings=[0, 1, 1], ceil_mode=True)
case('max_pool2d_with_index', {'X': floats(2, 3, 6, 8)}, {'Out': 1, 'Mask': 1}, ksize=[2, 3], strides=[2, 2],
     paddings=[0, 1])
case('max_pool2d_with_index', {'X': floats(2, 3, 6, 8)}, {'Out': 1, 'Mask': 1}, ksize=[2, 2], adaptive=True)
for m in ('nearest', 'bilinear', 'bicubic'):
    for ac in (True, False):
        for am in (0, 1):
            case(m + '_interp_v2', {'X': floats(2, 3, 4, 5)}, {'Out': 1}, 'all', align_corners=ac, align_mode=am,
                 scale=[2.0, 1.5], interp_method=m)
            case(m + '_interp_v2', {'X': floats(2, 3, 4, 5)}, {'Out': 1}, 'all', align_corners=ac, align_mode=am,
                 out_h=7, out_w=3, interp_method=m)
            case(m + '_interp', {'X': floats(2, 3, 4, 5)}, {'Out': 1}, align_corners=ac, align_mode=am, scale=1.7,
                 interp_method=m)
            case(m + '_interp', {'X': floats(2, 3, 4, 5), 'OutSize': np.array([3, 9], 'int32')}, {'Out': 1},
                 align_corners=ac, align_mode=am, interp_method=m)
    case(m + '_interp_v2', {'X': floats(2, 4, 5, 3)}, {'Out': 1}, out_h=6, out_w=9, data_layout='NHWC',
         align_corners=False, interp_method=m)
    case(m + '_interp_v2', {'X': floats(2, 3, 4, 5), 'SizeTensor': [np.array([6], 'int32'), np.array([7], 'int32')]},
         {'Out': 1}, 'all', align_corners=False, align_mode=0, interp_method=m)
case('bilinear_interp_v2', {'X': floats(2, 3, 4, 5)}, {'Out': 1}, out_h=1, out_w=1, align_corners=False, align_mode=0,
     interp_method='bilinear')
case('bilinear_interp_v2', {'X': floats(2, 3, 4, 5)}, {'Out': 1}, out_h=1, out_w=1, align_corners=True,
     interp_method='bilinear')
case('bilinear_interp_v2', {'X': floats(2, 3, 4, 5), 'Scale': np.array([2.5], 'float32')}, {'Out': 1},
     align_corners=False, align_mode=1, interp_method='bilinear')
for ac in (True, False):
    for am in (0, 1):
        for sc in ([0.6, 0.7], [1.3, 2.7], [1.1, 1.15], [0.25, 0.2], [1.8, 1.2]):
            for m in ('nearest', 'bilinear', 'bicubic'):
                for dyn in (False, 'all'):
                    case(m + '_interp_v2', {'X': floats(1, 2, 4, 5)}, {'Out': 1}, dyn, align_corners=ac, align_mode=am,
                         scale=sc, interp_method=m)
    case('bilinear_interp_v2', {'X': floats(1, 2, 1, 5)}, {'Out': 1}, 'all', align_corners=ac, align_mode=0,
         scale=[1.8, 1.15], interp_method='bilinear')
    case('trilinear_interp_v2', {'X': floats(1, 2, 3, 4, 5)}, {'Out': 1}, scale=[1.5, 1.3, 0.7], align_corners=ac)
case('linear_interp_v2', {'X': floats(2, 3, 5)}, {'Out': 1}, out_w=8, align_corners=False, align_mode=0,
     interp_method='linear')
case('trilinear_interp_v2', {'X': floats(1, 2, 3, 4, 5)}, {'Out': 1}, out_d=5, out_h=6, out_w=4, align_corners=True,
     interp_method='trilinear')
for pm in ('zeros', 'border', 'reflection'):
    for ac in (True, False):
        case('grid_sampler', {'X': floats(2, 3, 4, 5), 'Grid': floats(2, 3, 3, 2, lo=-1.4, hi=1.4)}, {'Output': 1},
             padding_mode=pm, align_corners=ac, mode='bilinear')
for al in (True, False):
    case('roi_align', {'X': floats(2, 3, 8, 8), 'ROIs': np.array([[0, 0, 7, 7], [1, 2, 9, 12], [3, 3, 6, 5.0]],
         'float32'), 'RoisNum': np.array([2, 1], 'int32')}, {'Out': 1}, pooled_height=2, pooled_width=3,
         spatial_scale=0.5, sampling_ratio=2, aligned=al)
for m in ('constant', 'reflect', 'edge'):
    case('pad2d', {'X': floats(2, 3, 4, 5)}, {'Out': 1}, paddings=[1, 2, 0, 3], mode=m, pad_value=0.5)
    case('pad2d', {'X': floats(2, 4, 5, 3)}, {'Out': 1}, paddings=[1, 2, 0, 3], mode=m, pad_value=0.5,
         data_format='NHWC')
for m in ('constant', 'reflect', 'replicate', 'circular'):
    case('pad3d', {'X': floats(2, 2, 3, 4, 5)}, {'Out': 1}, paddings=[1, 2, 0, 3, 2, 1], mode=m, value=0.5)
    case('pad3d', {'X': floats(2, 3, 4, 5, 2)}, {'Out': 1}, paddings=[1, 2, 0, 3, 2, 1], mode=m, data_format='NDHWC')
case('pad', {'X': floats(2, 3)}, {'Out': 1}, paddings=[1, 2, 0, 3], pad_value=1.5)
case('batch_norm', {'X': floats(2, 3, 4, 5), 'Scale': floats(3), 'Bias': floats(3), 'Mean': floats(3), 'Variance': floats(3, lo=0.5)},
     {'Y': 1, 'MeanOut': '', 'VarianceOut': '', 'SavedMean': '', 'SavedVariance': ''}, is_test=True,
     epsilon=0.001)
case('batch_norm', {'X': floats(2, 4, 5, 3), 'Scale': floats(3), 'Bias': floats(3), 'Mean': floats(3), 'Variance': floats(3, lo=0.5)},
     {'Y': 1, 'MeanOut': '', 'VarianceOut': '', 'SavedMean': '', 'SavedVariance': ''}, is_test=True,
     data_layout='NHWC')
case('batch_norm', {'X': floats(4, 3), 'Scale': floats(3), 'Bias': floats(3), 'Mean': floats(3), 'Variance': floats(3, lo=0.5)}, {'Y': 1,
     'MeanOut': '', 'VarianceOut': '', 'SavedMean': '', 'SavedVariance': ''}, is_test=True,
     data_layout='NHWC')
for dyn in (False, 'all'):
    case('layer_norm', {'X': floats(2, 3, 4), 'Scale': floats(12), 'Bias': floats(12)}, {'Y': 1, 'Mean': '', 'Variance': ''},
         dyn, begin_norm_axis=1)
    case('layer_norm', {'X': floats(2, 3, 4), 'Scale': floats(4)}, {'Y': 1, 'Mean': '', 'Variance': ''}, dyn,
         begin_norm_axis=2)
    case('layer_norm', {'X': floats(2, 3, 4)}, {'Y': 1, 'Mean': '', 'Variance': ''}, dyn, begin_norm_axis=2,
         epsilon=0.1)
case('instance_norm', {'X': floats(2, 3, 4, 5), 'Scale': floats(3), 'Bias': floats(3)}, {'Y': 1, 'SavedMean': '',
     'SavedVariance': ''})
case('instance_norm', {'X': floats(2, 3, 4, 5)}, {'Y': 1, 'SavedMean': '', 'SavedVariance': ''})
case('group_norm', {'X': floats(2, 6, 4, 5), 'Scale': floats(6), 'Bias': floats(6)}, {'Y': 1, 'Mean': '', 'Variance': ''}, True,
     groups=3)
case('group_norm', {'X': floats(2, 4, 5, 6), 'Scale': floats(6)}, {'Y': 1, 'Mean': '', 'Variance': ''}, groups=2,
     data_layout='NHWC')
case('lrn', {'X': floats(2, 6, 3, 3)}, {'Out': 1, 'MidOut': ''}, n=5, alpha=0.02, k=1.5)
case('affine_channel', {'X': floats(2, 3, 4, 5), 'Scale': floats(3), 'Bias': floats(3)}, {'Out': 1})
case('norm', {'X': floats(2, 3, 4)}, {'Out': 1, 'Norm': 1}, axis=1)
case('skip_layernorm', {'X': floats(2, 3, 4), 'Y': floats(2, 3, 4), 'Scale': floats(4), 'Bias': floats(4)}, {'Out': 1},
     begin_norm_axis=2, epsilon=1e-05)
case('fused_fc_elementwise_layernorm', {'X': floats(2, 3, 4), 'W': floats(4, 5), 'Bias0': floats(5), 'Y': floats(2, 3, 5),
     'Scale': floats(5), 'Bias1': floats(5)}, {'Out': 1}, x_num_col_dims=2, begin_norm_axis=2, activation_type='relu')
case('fused_embedding_eltwise_layernorm', {'Ids': [ints(2, 3), ints(2, 3)], 'Embs': [floats(5, 4), floats(5, 4)], 'Scale': floats(4),
     'Bias': floats(4)}, {'Out': 1})
case('multihead_matmul', {'Input': floats(2, 3, 4), 'W': floats(4, 3, 6), 'Bias': floats(3, 6), 'BiasQK': floats(2, 2, 3, 3)},
     {'Out': 1}, head_number=2, alpha=0.5)
case('matmul_v2', {'X': floats(2, 3, 4), 'Y': floats(2, 5, 4)}, {'Out': 1}, trans_y=True)
case('matmul_v2', {'X': floats(4), 'Y': floats(4)}, {'Out': 1})
case('matmul_v2', {'X': floats(2, 3, 4), 'Y': floats(4)}, {'Out': 1})
case('matmul_v2', {'X': floats(4), 'Y': floats(4, 2)}, {'Out': 1})
case('matmul_v2', {'X': floats(4, 3), 'Y': floats(4, 2)}, {'Out': 1}, trans_x=True)
case('matmul', {'X': floats(2, 4, 3), 'Y': floats(2, 4, 5)}, {'Out': 1}, transpose_X=True, alpha=0.5)
case('mul', {'X': floats(2, 3, 4), 'Y': floats(12, 5)}, {'Out': 1}, 'all', x_num_col_dims=1, y_num_col_dims=1)
case('mul', {'X': floats(2, 3, 4), 'Y': floats(4, 5)}, {'Out': 1}, True, x_num_col_dims=2)
case('mul', {'X': floats(2, 3, 4), 'Y': floats(2, 2, 5)}, {'Out': 1}, True, x_num_col_dims=2, y_num_col_dims=2)
case('mul', {'X': floats(2, 3), 'Y': floats(3, 2, 5)}, {'Out': 1}, x_num_col_dims=1, y_num_col_dims=1)
case('fc', {'Input': floats(2, 3, 4), 'W': floats(4, 5), 'Bias': floats(5)}, {'Out': 1}, in_num_col_dims=2,
     activation_type='relu')
case('fc', {'Input': floats(2, 3, 4), 'W': floats(12, 5), 'Bias': floats(1, 5)}, {'Out': 1}, in_num_col_dims=1)
case('bmm', {'X': floats(2, 3, 4), 'Y': floats(2, 4, 5)}, {'Out': 1})
case('mv', {'X': floats(3, 4), 'Vec': floats(4)}, {'Out': 1})
case('dot', {'X': floats(3, 4), 'Y': floats(3, 4)}, {'Out': 1})
case('dot', {'X': floats(4), 'Y': floats(4)}, {'Out': 1})
case('addmm', {'Input': floats(3, 5), 'X': floats(3, 4), 'Y': floats(4, 5)}, {'Out': 1}, Alpha=2.0, Beta=0.5)
at = {'Out': 1, 'SoftmaxStats': '', 'Weights': '', 'SeedOffset': ''}
case('scaled_dot_product_attention', {'Q': floats(2, 2, 3, 4), 'K': floats(2, 2, 5, 4), 'V': floats(2, 2, 5, 6)}, at, scale=0.5,
     is_causal=True)
case('scaled_dot_product_attention', {'Q': floats(2, 3, 2, 4), 'K': floats(2, 5, 2, 4), 'V': floats(2, 5, 2, 4), 'Mask': floats(1, 1,
     3, 5)}, at, scale=0.5, layout='BSHD')
case('scaled_dot_product_attention', {'Q': floats(2, 3, 3, 2, 4)}, at, scale=0.5, layout='BS3HD')
case('scaled_dot_product_attention', {'Q': floats(3, 4), 'K': floats(5, 4), 'V': floats(5, 4)}, at, scale=0.5)
for r in 'reduce_sum reduce_mean reduce_max reduce_min reduce_prod'.split():
    for kw in (dict(dim=[1]), dict(dim=[0, -1], keep_dim=True), dict(reduce_all=True), dict(reduce_all=True,
         keep_dim=True), dict(dim=('ints', []))):
        case(r, {'X': floats(2, 3, 4)}, {'Out': 1}, **kw)
    case(r, {'X': floats(4)}, {'Out': 1}, dim=[0])
    if r != 'reduce_mean':
        case(r, {'X': ints(2, 3, lo=1, dt='int32')}, {'Out': 1}, dim=[1])
        case(r, {'X': ints(2, 3, lo=1)}, {'Out': 1}, dim=[1])
case('reduce_sum', {'X': ints(2, 3, dt='int32')}, {'Out': 1}, dim=[1], out_dtype=3, in_dtype=2)
case('reduce_all', {'X': ints(2, 3, hi=2).astype(bool)}, {'Out': 1}, dim=[1])
case('reduce_any', {'X': ints(2, 3, hi=2).astype(bool)}, {'Out': 1}, reduce_all=True)
case('mean', {'X': x}, {'Out': 1})
case('squared_l2_norm', {'X': x}, {'Out': 1})
case('l1_norm', {'X': x}, {'Out': 1})
case('logsumexp', {'X': x}, {'Out': 1}, axis=[1])
case('logsumexp', {'X': x}, {'Out': 1}, reduce_all=True)
for p in (0.0, 1.0, 2.0, 3.0, float('inf'), float('-inf')):
    case('p_norm', {'X': x}, {'Out': 1}, porder=p, axis=1)
    case('p_norm', {'X': x}, {'Out': 1}, porder=p, asvector=True)
    case('p_norm', {'X': x}, {'Out': 1}, porder=p, axis=-1, keepdim=True)
for a in ('arg_max', 'arg_min'):
    case(a, {'X': x}, {'Out': 1}, axis=('long', 1))
    case(a, {'X': x}, {'Out': 1}, axis=('long', -1), keepdims=True, dtype=2)
    case(a, {'X': x}, {'Out': 1}, axis=('long', 0), flatten=True)
    case(a, {'X': floats(5)}, {'Out': 1}, axis=('long', 0))
    case(a, {'X': x}, {'Out': 1}, axis=('long', 0), flatten=True, keepdims=True)
case('top_k', {'X': x}, {'Out': 1, 'Indices': 1}, k=2)
case('top_k_v2', {'X': x, 'K': np.array([2], 'int32')}, {'Out': 1, 'Indices': 1}, axis=1, largest=False)
case('argsort', {'X': x}, {'Out': 1, 'Indices': 1}, 'all', axis=1, descending=True)
case('argsort', {'X': x}, {'Out': 1, 'Indices': 1}, axis=-1)
for kw in (dict(axis=1), dict(axis=-1, exclusive=True), dict(axis=0, reverse=True), dict(flatten=True)):
    case('cumsum', {'X': x}, {'Out': 1}, **kw)
XSHAPE = {'XShape': ''}
for dyn in (False, 'all'):
    case('reshape2', {'X': x}, {'Out': 1, **XSHAPE}, dyn, shape=[0, -1])
    case('reshape2', {'X': x, 'Shape': np.array([4, -1], 'int32')}, {'Out': 1, **XSHAPE}, dyn, shape=[0, -1])
    case('reshape2', {'X': x, 'ShapeTensor': [np.array([4], 'int32'), np.array([6], 'int32')]}, {'Out': 1, **XSHAPE},
         dyn, shape=[4, 6])
    case('flatten2', {'X': x}, {'Out': 1, **XSHAPE}, dyn, axis=2)
    case('flatten_contiguous_range', {'X': floats(2, 3, 4, 5)}, {'Out': 1, **XSHAPE}, dyn, start_axis=1, stop_axis=2)
    case('transpose2', {'X': x}, {'Out': 1, **XSHAPE}, dyn, axis=[2, 0, 1])
    case('unsqueeze2', {'X': x}, {'Out': 1, **XSHAPE}, dyn, axes=[0, -1])
    case('unsqueeze2', {'X': x}, {'Out': 1, **XSHAPE}, dyn, axes=[1, 1])
    case('shape', {'Input': x}, {'Out': 1}, dyn)
    case('size', {'Input': x}, {'Out': 1}, dyn)
    case('concat', {'X': [floats(2, 3), floats(2, 4)]}, {'Out': 1}, dyn, axis=-1)
    case('stack', {'X': [floats(2, 3), floats(2, 3)]}, {'Y': 1}, dyn, axis=1)
    case('split', {'X': floats(2, 6)}, {'Out': 3}, dyn if dyn != 'all' else True, axis=1, num=3)
    case('unstack', {'X': floats(2, 3, 4)}, {'Y': 3}, axis=1, num=3)
    case('unbind', {'X': floats(2, 3, 4)}, {'Out': 2}, axis=0)
    case('tile', {'X': floats(2, 3)}, {'Out': 1}, dyn, repeat_times=[2, 1, 2])
    case('tile', {'X': floats(2, 3)}, {'Out': 1}, dyn, repeat_times=[2])
    case('expand', {'X': floats(2, 3)}, {'Out': 1}, dyn, expand_times=[2, 2])
    case('expand_v2', {'X': floats(1, 3)}, {'Out': 1}, False, shape=[2, 4, -1])
    case('expand_as_v2', {'X': floats(1, 3)}, {'Out': 1}, target_shape=[2, 4, 3])
    case('expand_as', {'X': floats(2, 3), 'target_tensor': floats(4, 3)}, {'Out': 1}, dyn)
case('split', {'X': floats(2, 7)}, {'Out': 3}, axis=-1, sections=[2, -1, 3])
case('squeeze2', {'X': floats(1, 3, 1)}, {'Out': 1, **XSHAPE}, axes=[0, 1])
case('squeeze2', {'X': floats(1, 3, 1)}, {'Out': 1, **XSHAPE}, axes=('ints', []))
case('squeeze2', {'X': floats(1, 1)}, {'Out': 1, **XSHAPE}, axes=('ints', []))
case('meshgrid', {'X': [floats(2), floats(3)]}, {'Out': 2})
case('broadcast_tensors', {'X': [floats(2, 1), floats(3)]}, {'Out': 2})
case('pixel_shuffle', {'X': floats(2, 8, 3, 3)}, {'Out': 1}, upscale_factor=2)
case('pixel_shuffle', {'X': floats(2, 3, 3, 8)}, {'Out': 1}, upscale_factor=2, data_format='NHWC')
case('shuffle_channel', {'X': floats(2, 6, 3, 3)}, {'Out': 1}, group=2)
case('slice', {'Input': floats(4, 5, 6)}, {'Out': 1}, axes=[0, 2], starts=[1, -3], ends=[3, 100])
case('slice', {'Input': floats(4, 5, 6)}, {'Out': 1}, axes=[0], starts=[-1], ends=[0], decrease_axis=[0])
case('slice', {'Input': floats(4)}, {'Out': 1}, axes=[0], starts=[2], ends=[3], decrease_axis=[0])
case('slice', {'Input': floats(4, 5), 'StartsTensor': np.array([1], 'int32'), 'EndsTensor': np.array([3], 'int32')},
     {'Out': 1}, axes=[1])
case('slice', {'Input': floats(4, 5), 'StartsTensorList': [np.array([-1], 'int32')], 'EndsTensorList': [np.array([0],
     'int32')]}, {'Out': 1}, axes=[1], decrease_axis=[1])
case('slice', {'Input': floats(4, 5), 'StartsTensorList': [np.array([1], 'int32'), np.array([2], 'int32')],
     'EndsTensorList': [np.array([2], 'int32'), np.array([3], 'int32')]}, {'Out': 1}, axes=[0, 1],
     decrease_axis=[0, 1])
case('strided_slice', {'Input': floats(4, 5)}, {'Out': 1}, axes=[0, 1], starts=[0, 4], ends=[4, -1], strides=[2, -1])
case('strided_slice', {'Input': floats(4, 5)}, {'Out': 1}, axes=[1], starts=[-1], ends=[-5], strides=[-2])
for step in (-2, -1, 1, 2):
    for start in (0, 3, 4, 9, -1, -4, -5, -6, -9):
        for end in (0, 4, 9, -1, -5, -6, -9):
            case('strided_slice', {'Input': floats(5)}, {'Out': 1}, axes=[0], starts=[start], ends=[end], strides=[step])
            if step > 0 or start >= -1:
                case('strided_slice', {'Input': floats(4, 5)}, {'Out': 1}, 'all', axes=[1], starts=[start], ends=[end],
                     strides=[step])
for last in (-1, 1):
    case('slice', {'Input': floats(3, 4, 5), 'StartsTensor': np.array([last, 1]), 'EndsTensor': np.array([last + 1, 3])},
         {'Out': 1}, axes=[0, 2], decrease_axis=[0])
    case('slice', {'Input': floats(3, 4, 5), 'StartsTensor': np.array([1, last])}, {'Out': 1}, axes=[0, 2], starts=[1, last],
         ends=[3, last + 1], decrease_axis=[2])
case('crop', {'X': floats(4, 5)}, {'Out': 1}, offsets=[1, 2], shape=[2, 2])
case('crop_tensor', {'X': floats(4, 5)}, {'Out': 1}, offsets=[1, 2], shape=[2, -1])
case('flip', {'X': x}, {'Out': 1}, axis=[0, 2])
case('roll', {'X': x}, {'Out': 1}, shifts=('longs', [1, -2]), axis=('longs', [0, 2]))
case('roll', {'X': x}, {'Out': 1}, shifts=('longs', [5]))
case('tril_triu', {'X': floats(4, 5)}, {'Out': 1}, diagonal=1, lower=True)
case('tril_triu', {'X': floats(4, 5)}, {'Out': 1}, diagonal=-1, lower=False)
case('set_value', {'Input': floats(4, 5)}, {'Out': 1}, axes=('longs', [0]), starts=('longs', [1]), ends=('longs',
     [3]), steps=('longs', [1]), shape=('longs', [1]), fp32_values=[2.5])
case('set_value', {'Input': floats(4, 5, 3), 'ValueTensor': floats(4, 3)}, {'Out': 1}, axes=('longs', [1]),
     starts=('longs', [-1]), ends=('longs', [0]), steps=('longs', [1]), decrease_axes=('longs', [1]))
case('set_value', {'Input': floats(4, 5, 3), 'ValueTensor': floats(3, 1)}, {'Out': 1}, axes=('longs', [0, 1]),
     starts=('longs', [1, 0]), ends=('longs', [3, 3]), steps=('longs', [1, 1]))
case('set_value', {'Input': floats(4, 5, 3), 'ValueTensor': floats(3)}, {'Out': 1}, axes=('longs', [0, 1]),
     starts=('longs', [1, 0]), ends=('longs', [2, 3]), steps=('longs', [1, 1]), decrease_axes=('longs', [0]))
case('gather', {'X': floats(5, 4), 'Index': ints(3)}, {'Out': 1})
case('gather', {'X': floats(5, 4), 'Index': ints(3, 1, hi=4, dt='int32')}, {'Out': 1}, axis=1)
case('gather_nd', {'X': floats(5, 5, 2), 'Index': ints(3, 2)}, {'Out': 1})
case('gather_nd', {'X': floats(5, 5), 'Index': ints(2)}, {'Out': 1})
case('index_sample', {'X': floats(3, 5), 'Index': ints(3, 2)}, {'Out': 1})
case('index_select', {'X': floats(3, 5), 'Index': ints(4)}, {'Out': 1}, dim=1)
case('lookup_table', {'W': floats(5, 3), 'Ids': ints(4, 1)}, {'Out': 1}, padding_idx=('long', 2))
case('lookup_table_v2', {'W': floats(5, 3), 'Ids': ints(4, 2)}, {'Out': 1}, padding_idx=('long', 1))
case('lookup_table_v2', {'W': floats(5, 3), 'Ids': ints(4, 2, dt='int32')}, {'Out': 1})
case('one_hot', {'X': ints(4, 1)}, {'Out': 1}, depth=6)
case('one_hot_v2', {'X': ints(4, 2)}, {'Out': 1}, depth=6, dtype=3)
case('one_hot_v2', {'X': ints(4, lo=-3, hi=9)}, {'Out': 1}, depth=4, allow_out_of_range=True)
case('one_hot_v2', {'X': ints(4), 'depth_tensor': np.array([7], 'int32')}, {'Out': 1})
case('scatter', {'X': floats(5, 3), 'Ids': np.array([1, 3]), 'Updates': floats(2, 3)}, {'Out': 1})
case('scatter', {'X': floats(5, 3), 'Ids': np.array([[1], [1]]), 'Updates': floats(2, 3)}, {'Out': 1}, overwrite=False)
case('scatter_nd_add', {'X': floats(5, 3), 'Index': np.array([[1], [1]]), 'Updates': floats(2, 3)}, {'Out': 1})
case('masked_select', {'X': floats(3, 4), 'Mask': ints(3, 4, hi=2).astype(bool)}, {'Y': 1})
case('where_index', {'Condition': ints(3, 4, hi=2).astype(bool)}, {'Out': 1})
case('where_index', {'Condition': ints(3, 4, hi=2)}, {'Out': 1})
case('fill_constant', {}, {'Out': 1}, shape=('longs', [2, 3]), value=1.5, dtype=5)
case('fill_constant', {}, {'Out': 1}, shape=('longs', [1]), str_value='123456789012345', dtype=3)
case('fill_constant', {}, {'Out': 1}, shape=('longs', [40, 40]), value=2.0, dtype=3)
case('fill_constant', {'ShapeTensor': np.array([2, 3], 'int32')}, {'Out': 1}, value=1.5, dtype=5)
case('fill_constant', {'ShapeTensorList': [np.array([2], 'int32'), np.array([2], 'int32')], 'ValueTensor': floats(1)},
     {'Out': 1}, dtype=5)
case('fill_constant_batch_size_like', {'Input': floats(3, 2)}, {'Out': 1}, True, shape=[1, 4], value=2.0, dtype=5)
case('fill_any_like', {'X': floats(3, 2)}, {'Out': 1}, True, value=3.0, dtype=-1)
case('fill_zeros_like', {'X': floats(3, 2)}, {'Out': 1})
case('eye', {}, {'Out': 1}, num_rows=('long', 3), num_columns=('long', 4), dtype=5)
case('range', {'Start': np.array([1.0], 'float32'), 'End': np.array([5.0], 'float32'), 'Step': np.array([0.7],
     'float32')}, {'Out': 1})
case('range', {'Start': np.array([9]), 'End': np.array([1]), 'Step': np.array([-2])}, {'Out': 1})
case('linspace', {'Start': np.array([1.0], 'float32'), 'Stop': np.array([5.0], 'float32'), 'Num': np.array([7],
     'int32')}, {'Out': 1})
case('linspace', {'Start': np.array([1.0], 'float32'), 'Stop': np.array([5.0], 'float32'), 'Num': np.array([1],
     'int32')}, {'Out': 1})
case('assign_value', {}, {'Out': 1}, shape=[2], dtype=3, int64_values=('longs', [4, 5]))
case('cast', {'X': floats(3, 3)}, {'Out': 1}, in_dtype=5, out_dtype=2)
case('cast', {'X': floats(3, 3)}, {'Out': 1}, in_dtype=5, out_dtype=0)
case('is_empty', {'X': floats(3)}, {'Out': 1})
case('dropout', {'X': x}, {'Out': 1, 'Mask': ''}, dropout_prob=0.3, is_test=True)
case('dropout', {'X': x}, {'Out': 1, 'Mask': ''}, dropout_prob=0.3, is_test=True,
     dropout_implementation='upscale_in_train')
case('assign', {'X': x}, {'Out': 1})
for mode, G in (('LSTM', 4), ('GRU', 3), ('RNN_TANH', 1), ('RNN_RELU', 1)):
    for bi in (False, True):
        for sl in (False, True):
            T, N, In, H, L = (5, 3, 4, 6, 2)
            D = 2 if bi else 1
            W = []
            B = []
            for l in range(L):
                for d in range(D):
                    i = In if l == 0 else D * H
                    W += [floats(G * H, i, lo=-0.5, hi=0.5), floats(G * H, H, lo=-0.5, hi=0.5)]
                    B += [floats(G * H), floats(G * H)]
            st = [floats(L * D, N, H) for _ in range(2 if mode == 'LSTM' else 1)]
            ins = {'Input': floats(T, N, In), 'WeightList': W + B, 'PreState': st}
            if sl:
                ins['SequenceLength'] = np.array([5, 2, 3], 'int32')
            case('rnn', ins, {'Out': 1, 'State': len(st), 'Reserve': '', 'DropoutState': ''}, mode=mode,
                 is_bidirec=bi, num_layers=L, hidden_size=H, input_size=In, is_test=True)
case('lstm_unit', {'X': floats(3, 8), 'C_prev': floats(3, 2)}, {'C': 1, 'H': 1}, forget_bias=0.5)
for b in (True, False):
    case('viterbi_decode', {'Input': floats(3, 6, 5), 'Transition': floats(5, 5), 'Length': np.array([6, 1, 3])},
         {'Scores': 1, 'Path': 1}, include_bos_eos_tag=b)
case('viterbi_decode', {'Input': floats(3, 6, 5), 'Transition': floats(5, 5), 'Length': np.array([4, 1, 3])}, {'Scores': 1,
     'Path': 1})
case('viterbi_decode', {'Input': floats(2, 1, 5), 'Transition': floats(5, 5), 'Length': np.array([1, 1])}, {'Scores': 1,
     'Path': 1})
case('softmax_with_cross_entropy', {'Logits': floats(4, 5), 'Label': np.array([[1], [-100], [4], [0]])},
     {'Softmax': 1, 'Loss': 1})
case('softmax_with_cross_entropy', {'Logits': floats(4, 5, 2), 'Label': ints(4, 1, 2)}, {'Softmax': 1, 'Loss': 1},
     axis=1)
case('softmax_with_cross_entropy', {'Logits': floats(4, 5), 'Label': floats(4, 5, lo=0, hi=1)}, {'Softmax': 1, 'Loss': 1},
     soft_label=True)
case('square_error_cost', {'X': x, 'Y': floats(2, 3, 4)}, {'Out': 1})
for reduction in ('none', 'mean', 'sum'):
    case('nll_loss', {'X': floats(4, 3, 2), 'Label': ints(4, 2, hi=3), 'Weight': floats(3, lo=0.5, hi=2)},
         {'Out': 1, 'Total_weight': 1}, reduction=reduction, ignore_index=('long', 1))
case('label_smooth', {'X': floats(3, 4, lo=0, hi=1)}, {'Out': 1}, epsilon=0.1)
case('sigmoid_cross_entropy_with_logits', {'X': floats(3, 4), 'Label': floats(3, 4, lo=0, hi=1)}, {'Out': 1})

main()
