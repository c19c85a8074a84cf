#!/usr/bin/env python3
"""Writes NAME_b8.onnx beside each NAME.onnx of a directory: the same model, with a batch of 8 in place of 1.

    onnx_batch.py DIRECTORY [BATCH]

Needs the package onnx (Debian: python3-onnx). Reshapes to a shape that begins with the old batch of 1 get the new one.
"""
import glob
import os
import sys

import onnx
from onnx import numpy_helper


def constants(graph):
    """Name -> (the tensor's proto) of initializers and Constant nodes."""
    found = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if node.op_type == 'Constant' and node.attribute[0].name == 'value':
            found[node.output[0]] = node.attribute[0].t
    return found


def set_batch(model, batch):
    graph = model.graph
    for value in list(graph.input)[:1] + list(graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    del graph.value_info[:]
    known = constants(graph)
    for node in graph.node:
        if node.op_type != 'Reshape' or node.input[1] not in known:
            continue
        tensor = known[node.input[1]]
        shape = numpy_helper.to_array(tensor).copy()
        if shape.size < 2 or shape[0] != 1:
            continue
        shape[0] = batch
        tensor.CopyFrom(numpy_helper.from_array(shape, tensor.name))


def main():
    directory, batch = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8
    for path in sorted(glob.glob(os.path.join(directory, '*.onnx'))):
        name = os.path.splitext(path)[0]
        if name.endswith('_b%d' % batch):
            continue
        model = onnx.load(path)
        set_batch(model, batch)
        onnx.checker.check_model(model)
        onnx.save(model, '%s_b%d.onnx' % (name, batch))
        print('%s_b%d.onnx' % (name, batch))


main()
