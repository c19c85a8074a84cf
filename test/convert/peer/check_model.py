#!/usr/bin/env python3
"""Checks ONNX models with the package onnx (Debian: python3-onnx).

    check_model.py MODEL.onnx...

Prints a line for each model that its checker or its shape inference does not accept.
"""
import sys

import onnx


def problem(path):
    try:
        onnx.checker.check_model(path, full_check=True)
        onnx.shape_inference.infer_shapes_path(path, path + '.inferred', True, True)
    except Exception as error:  # whatever the package throws
        return '%s: %s' % (path, ' '.join(str(error).split())[:300])
    return None


def main():
    problems = [p for p in map(problem, sys.argv[1:]) if p]
    print('\n'.join(problems), end='\n' if problems else '')
    sys.exit(bool(problems))


main()
