#!/usr/bin/env python3
"""Writes a saved Paddle program of an image network as an ONNX model, for the peers of bench/run.

    paddle_to_onnx.py PROGRAM_DIRECTORY OUT.onnx 1x3x640x640

Knows the ops of ch_PP-OCRv3_det and ch_ppocr_mobile_v2.0_cls alone, and stops at any other. Needs the package onnx (Debian:
python3-onnx), and protoc.
"""
import importlib
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')


def framework():
    """The module that protoc makes of Coracle's schema."""
    with tempfile.TemporaryDirectory() as out:
        proto = os.path.join(ROOT, 'proto')
        subprocess.check_call(['protoc', '-I' + proto, '--python_out=' + out, 'framework.proto'])
        sys.path.insert(0, out)
        return importlib.import_module('framework_pb2')


def read_params(path, names, pb):
    """The float32 tensors of a combined file, which holds them in the order of their names."""
    data, at, found = open(path, 'rb').read(), 0, {}
    for name in names:
        levels, = struct.unpack_from('<Q', data, at + 4)
        assert levels == 0, name
        size, = struct.unpack_from('<i', data, at + 16)
        desc = pb.VarType.TensorDesc.FromString(data[at + 20:at + 20 + size])
        assert desc.data_type == pb.VarType.FP32, name
        count, at = int(np.prod(desc.dims)), at + 20 + size
        found[name] = np.frombuffer(data, '<f4', count, at).reshape(list(desc.dims))
        at += 4 * count
    assert at == len(data)
    return found


class Converter:
    def __init__(self, block, params, shape):
        self.params, self.shape = params, shape
        self.rank = {v.name: len(v.type.lod_tensor.tensor.dims) for v in block.vars}
        self.nodes, self.extra = [], 0
        self.initializers, self.input, self.output = [], None, None
        for op in block.ops:
            self.convert(op)

    def constant(self, array):
        self.extra += 1
        name = 'constant_%d' % self.extra
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind, inputs, outputs, **attrs):
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attrs))

    def convert(self, op):
        ins = {v.parameter: list(v.arguments) for v in op.inputs if v.arguments}
        outs = {v.parameter: list(v.arguments) for v in op.outputs if v.arguments}
        values = {}
        for a in op.attrs:
            field = {0: 'i', 1: 'f', 2: 's', 3: 'ints', 4: 'floats', 6: 'b', 9: 'l', 11: 'longs'}.get(a.type)
            if field:
                v = getattr(a, field)
                values[a.name] = list(v) if field.endswith('s') and field != 's' else v
        x = ins.get('X', ins.get('Input', ['']))[0]
        out = outs.get('Out', outs.get('Output', outs.get('Y', [''])))[0]
        kind = op.type
        if kind == 'feed':
            self.input = out
        elif kind == 'fetch':
            self.output = x
        elif kind in ('conv2d', 'depthwise_conv2d', 'conv2d_transpose'):
            self.convolution(kind, x, ins['Filter'][0], out, values)
        elif kind == 'batch_norm':
            self.node('BatchNormalization',
                      [x, ins['Scale'][0], ins['Bias'][0], ins['Mean'][0], ins['Variance'][0]], [outs['Y'][0]],
                      epsilon=values['epsilon'])
        elif kind in ('relu', 'sigmoid'):
            self.node(kind.capitalize(), [x], [out])
        elif kind == 'hard_swish':
            assert (values['threshold'], values['scale'], values['offset']) == (6, 6, 3)
            self.node('HardSwish', [x], [out])
        elif kind == 'hard_sigmoid':
            self.node('HardSigmoid', [x], [out], alpha=values['slope'], beta=values['offset'])
        elif kind in ('elementwise_add', 'elementwise_mul'):
            self.node(kind[12:].capitalize(), [x, self.operand(x, ins['Y'][0], values['axis'])], [out])
        elif kind == 'pool2d':
            self.pool(x, out, values)
        elif kind == 'nearest_interp_v2':
            assert not values['align_corners']
            scales = self.constant(np.array([1, 1] + values['scale'], 'float32'))
            self.node('Resize', [x, '', scales], [out], mode='nearest', nearest_mode='floor',
                      coordinate_transformation_mode='asymmetric')
        elif kind == 'concat':
            self.node('Concat', ins['X'], [out], axis=values['axis'])
        elif kind in ('shape', 'slice'):
            pass  # of the shape that reshape2 gets
        elif kind == 'reshape2':
            assert values['shape'] == [-1, -1]
            self.node('Flatten', [x], [out])
        elif kind == 'matmul':
            assert not values['transpose_X'] and not values['transpose_Y'] and values['alpha'] == 1
            self.node('MatMul', [x, ins['Y'][0]], [out])
        elif kind == 'softmax':
            self.node('Softmax', [x], [out], axis=values['axis'])
        elif kind == 'scale':
            assert values['scale'] == 1 and values['bias'] == 0
            self.node('Identity', [x], [out])
        else:
            sys.exit('no rule for ' + kind)

    def convolution(self, kind, x, weights, out, values):
        pads = values['paddings']
        assert values.get('padding_algorithm', 'EXPLICIT') in ('EXPLICIT', b'EXPLICIT')
        pads = [pads[0], pads[1], pads[0], pads[1]] if len(pads) == 2 else [pads[0], pads[2], pads[1], pads[3]]
        self.node('ConvTranspose' if kind.endswith('transpose') else 'Conv', [x, weights], [out],
                  strides=values['strides'], dilations=values['dilations'], group=values['groups'], pads=pads,
                  kernel_shape=list(self.params[weights].shape[2:]))

    def operand(self, x, y, axis):
        """A parameter whose axis 0 is axis `axis` of x gets the dims that follow."""
        if y not in self.params or axis in (-1, self.rank[x] - self.params[y].ndim):
            return y
        array = self.params[y]
        return self.constant(array.reshape(list(array.shape) + [1] * (self.rank[x] - axis - array.ndim)))

    def pool(self, x, out, values):
        if values['adaptive'] or values['global_pooling']:
            assert values['pooling_type'] == 'avg' and (values['global_pooling'] or values['ksize'] == [1, 1])
            self.node('GlobalAveragePool', [x], [out])
            return
        assert values['pooling_type'] == 'max'
        pads = values['paddings']
        self.node('MaxPool', [x], [out], kernel_shape=values['ksize'], strides=values['strides'],
                  pads=[pads[0], pads[1], pads[0], pads[1]], ceil_mode=int(values['ceil_mode']))

    def model(self):
        read = {name for node in self.nodes for name in node.input}
        weights = [numpy_helper.from_array(a.copy(), n) for n, a in self.params.items() if n in read]
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, 'program', [info(self.input, onnx.TensorProto.FLOAT, self.shape)],
            [info(self.output, onnx.TensorProto.FLOAT, ['d%d' % i for i in range(self.rank[self.output])])], weights + self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 15)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    directory, out, shape = sys.argv[1], sys.argv[2], [int(d) for d in sys.argv[3].split('x')]
    pb = framework()
    program = pb.ProgramDesc.FromString(open(os.path.join(directory, 'inference.pdmodel'), 'rb').read())
    block = program.blocks[0]
    names = sorted(v.name for v in block.vars if v.persistable and v.type.type == pb.VarType.LOD_TENSOR)
    params = read_params(os.path.join(directory, 'inference.pdiparams'), names, pb)
    onnx.save(Converter(block, params, shape).model(), out)
    print(out)


main()
