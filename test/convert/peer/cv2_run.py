"""Runs a net of Caffe with OpenCV.

    python3 cv2_run.py FOLDER

The folder holds net.prototxt, net.caffemodel and, for each input by its name, in_<i>.npy with the
name in line i of inputs.txt. Line i of layers.txt names a layer, whose result goes to out_<i>.npy.
"""
import os
import sys

import cv2
import numpy


def lines(path):
    with open(path) as file:
        return file.read().split('\n')[:-1]


def main(folder):
    def at(name):
        return os.path.join(folder, name)

    net = cv2.dnn.readNetFromCaffe(at('net.prototxt'), at('net.caffemodel'))
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.enableFusion(False)
    for i, name in enumerate(lines(at('inputs.txt'))):
        net.setInput(numpy.load(at('in_%d.npy' % i)), name)
    layers = lines(at('layers.txt'))
    for i, result in enumerate(net.forward(layers)):
        numpy.save(at('out_%d.npy' % i), numpy.ascontiguousarray(result))


main(sys.argv[1])
