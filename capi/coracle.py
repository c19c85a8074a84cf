"""Runs Coracle's models from Python: numpy arrays in, numpy arrays out.

    import coracle
    model = coracle.Model("digits.pdmodel")
    (probabilities,) = model.run(pixels)            # inputs in the model's order
    (probabilities,) = model.run(image=pixels)      # or by name

This file is all of it: it calls libcoracle_c by ctypes, and needs numpy. The library is found by
the environment's CORACLE_LIBRARY (a path), next to this file, or where the system keeps libraries.
Threads may share a Model; each gets a session of its own. Texts are UTF-8; other bytes of a result
come as lone surrogates (Python's "surrogateescape"), so that none is lost.
"""

import ctypes
import ctypes.util
import os
import threading
import weakref

import numpy as np

_API_VERSION = 1
_BFLOAT16, _STRING = 22, 25
_DTYPES = {
    0: np.dtype(np.bool_), 1: np.dtype(np.int16), 2: np.dtype(np.int32), 3: np.dtype(np.int64),
    4: np.dtype(np.float16), 5: np.dtype(np.float32), 6: np.dtype(np.float64),
    19: np.dtype(np.uint64), 20: np.dtype(np.uint8), 21: np.dtype(np.int8),
    23: np.dtype(np.complex64), 24: np.dtype(np.complex128),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class Error(RuntimeError):
    """An error of the library. `status` is one of the numbers of coracle_c.h."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class _String(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_uint64)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("lod_levels", ctypes.c_int32), ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64),
        ("lod", ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64))),
        ("lod_sizes", ctypes.POINTER(ctypes.c_uint64)), ("capacity", ctypes.c_uint64),
    ]


def _load():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libcoracle_c.so")
    path = os.environ.get("CORACLE_LIBRARY") or (here if os.path.exists(here) else None)
    path = path or ctypes.util.find_library("coracle_c") or "libcoracle_c.so.1"
    library = ctypes.CDLL(path)
    text, handle, number = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int32
    place = ctypes.POINTER(handle)
    tensors, names = ctypes.POINTER(_Tensor), ctypes.POINTER(text)
    port = [handle, number, names, ctypes.POINTER(number), ctypes.POINTER(number),
            ctypes.POINTER(ctypes.c_int64)]
    step = [handle, names, tensors, number, names, tensors, number]
    for name, result, arguments in [
        ("api_version", number, []), ("version", text, []), ("last_error", text, []),
        ("set_threads", number, [number]), ("options_new", number, [place]),
        ("options_free", None, [handle]), ("options_set", number, [handle, text, text]),
        ("model_load", number, [text, handle, place]),
        ("model_load_memory", number,
         [text, handle, ctypes.c_uint64, handle, ctypes.c_uint64, handle, place]),
        ("model_free", None, [handle]), ("model_inputs", number, [handle]),
        ("model_outputs", number, [handle]), ("model_input", number, port),
        ("model_output", number, port), ("session_new", number, [handle, place]),
        ("session_free", None, [handle]), ("session_cancel", None, [handle]),
        ("session_run", number, [handle, tensors, number, tensors, number]),
        ("trainer_new", number, [text, text, text, handle, place]),
        ("trainer_free", None, [handle]), ("trainer_step", number, step),
        ("trainer_save", number, [handle, text]),
        ("trainer_save_model", number, [handle, text, names, number, names, number]),
    ]:
        function = getattr(library, "coracle_" + name)
        function.restype, function.argtypes = result, arguments
    if library.coracle_api_version() < _API_VERSION:
        raise ImportError(f"{path} is older than this file")
    return library


_library = _load()


def _check(status):
    if status != 0:
        raise Error(status, _library.coracle_last_error().decode("utf-8", "backslashreplace"))


def version():
    """The version of the library, "0.1.0"."""
    return _library.coracle_version().decode()


def set_threads(threads):
    """How many threads one run uses at most."""
    _check(_library.coracle_set_threads(threads))


class _Options:
    def __init__(self, options):
        self.handle = ctypes.c_void_p()
        _check(_library.coracle_options_new(ctypes.byref(self.handle)))
        for name, value in options.items():
            if isinstance(value, bool):
                value = int(value)
            _check(_library.coracle_options_set(self.handle, _c_text(name), _c_text(str(value))))

    def __del__(self):
        _library.coracle_options_free(self.handle)


def _encoded(text):
    return text.encode("utf-8", "surrogateescape")


def _decoded(text):
    return text.decode("utf-8", "surrogateescape")


def _c_text(text):
    """Bytes of a text for C, where a zero byte would end it."""
    if "\0" in text:
        raise ValueError(f"a zero byte in {text!r}")
    return _encoded(text)


def _path(path):
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError(f"a zero byte in the path {path!r}")
    return encoded


def _texts(names):
    return (ctypes.c_char_p * max(len(names), 1))(*[_c_text(name) for name in names])


def _element(value):
    """The bytes of a text in an array."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(f"an array of texts holds {value!r}")
    return _encoded(value)


def _memory(data):
    """Address and size of bytes, a bytearray, a memoryview, ..., and what keeps them alive."""
    view = memoryview(data).cast("B")
    if view.nbytes == 0:
        return None, 0, view
    array = np.frombuffer(view, np.uint8)
    return array.ctypes.data, array.nbytes, array


def _inputs(arrays):
    """The arrays as tensors, and what must stay alive while these are used."""
    tensors, kept = (_Tensor * max(len(arrays), 1))(), []
    for tensor, array in zip(tensors, arrays):
        array = np.asarray(array)
        tensor.struct_size, tensor.rank = ctypes.sizeof(_Tensor), array.ndim
        if array.dtype.kind in "OUS":
            texts = [_element(x) for x in array.ravel()]
            data = (_String * max(len(texts), 1))()
            for element, text in zip(data, texts):
                element.data = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p)
                element.size = len(text)
            tensor.dtype, tensor.bytes = _STRING, len(texts) * ctypes.sizeof(_String)
            tensor.data = ctypes.cast(data, ctypes.c_void_p)
            kept.append((texts, data))
        else:
            if array.dtype not in _CODES:
                raise TypeError(f"arrays of {array.dtype} have no counterpart in Coracle")
            shape, array = array.shape, np.require(array, requirements=["C", "A"])
            tensor.dtype, tensor.bytes = _CODES[array.dtype], array.nbytes
            tensor.data = array.ctypes.data
            array = array.reshape(shape)
            kept.append(array)
        dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        tensor.dims = dims
        kept.append(dims)
    return tensors, kept


def _array(tensor):
    """A copy of a result, which lives as long as Python wants."""
    shape = tuple(tensor.dims[i] for i in range(tensor.rank))
    if tensor.dtype == _STRING:
        count = tensor.bytes // ctypes.sizeof(_String)
        elements = ctypes.cast(tensor.data, ctypes.POINTER(_String))
        texts = [ctypes.string_at(elements[i].data, elements[i].size) if elements[i].size else b""
                 for i in range(count)]
        array = np.empty(len(texts), object)
        array[:] = [_decoded(text) for text in texts]
        return array.reshape(shape)
    data = ctypes.string_at(tensor.data, tensor.bytes) if tensor.bytes else b""
    if tensor.dtype == _BFLOAT16:
        upper = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return upper.view(np.float32).reshape(shape)
    return np.frombuffer(bytearray(data), _DTYPES[tensor.dtype]).reshape(shape)


class _Session:
    def __init__(self, model):
        self.handle = ctypes.c_void_p()
        _check(_library.coracle_session_new(model, ctypes.byref(self.handle)))

    def __del__(self):
        if self.handle:
            _library.coracle_session_free(self.handle)


class Model:
    """An inference model of Paddle, Paddle 3 or ONNX.

    Model(path) reads a file. Model(program=bytes, parameters=bytes, format="pdmodel"|"json"|"onnx")
    takes bytes, a bytearray or a memoryview. Further arguments are options of coracle_options_set,
    such as time_limit=2.
    `inputs` and `outputs` are lists of (name, dtype, shape), where -1 is a dim that may change.
    """

    def __init__(self, path=None, *, program=None, parameters=b"", format="pdmodel", **options):
        self._handle = ctypes.c_void_p()
        chosen = _Options(options)
        if path is not None:
            status = _library.coracle_model_load(_path(path), chosen.handle,
                                                 ctypes.byref(self._handle))
        else:
            address, size, kept = _memory(program)
            values, values_size, kept_values = _memory(parameters)
            status = _library.coracle_model_load_memory(
                _c_text(format), address, size, values, values_size, chosen.handle,
                ctypes.byref(self._handle))
        _check(status)
        count = _library.coracle_model_inputs(self._handle)
        self.inputs = [self._port(_library.coracle_model_input, i) for i in range(count)]
        count = _library.coracle_model_outputs(self._handle)
        self.outputs = [self._port(_library.coracle_model_output, i) for i in range(count)]
        self._sessions = threading.local()
        self._all_sessions, self._lock = weakref.WeakSet(), threading.Lock()

    def _port(self, function, index):
        name, dtype, rank = ctypes.c_char_p(), ctypes.c_int32(), ctypes.c_int32()
        dims = (ctypes.c_int64 * 9)()
        _check(function(self._handle, index, ctypes.byref(name), ctypes.byref(dtype),
                        ctypes.byref(rank), dims))
        return _decoded(name.value), _DTYPES.get(dtype.value), tuple(dims[: rank.value])

    def run(self, *arrays, **named):
        """The outputs for these inputs, as a list of new arrays."""
        if named:
            names = [name for name, _, _ in self.inputs]
            unknown = sorted(set(named) - set(names))
            if unknown or arrays:
                raise TypeError(f"no input {unknown[0]}; the inputs are {names}" if unknown
                                else "give all inputs by position or all by name")
            missing = [name for name in names if name not in named]
            if missing:
                raise TypeError(f"the input {missing[0]} is missing")
            arrays = [named[name] for name in names]
        session = getattr(self._sessions, "session", None)
        if session is None:
            session = self._sessions.session = _Session(self._handle)
            with self._lock:
                self._all_sessions.add(session)
        inputs, kept = _inputs(arrays)
        outputs = (_Tensor * max(len(self.outputs), 1))()
        for output in outputs:
            output.struct_size = ctypes.sizeof(_Tensor)
        _check(_library.coracle_session_run(session.handle, inputs, len(arrays), outputs,
                                            len(self.outputs)))
        return [_array(output) for output in outputs[: len(self.outputs)]]

    def cancel(self):
        """Ends the runs that other threads have begun: they raise an Error of status 8. It has no
        effect on runs that begin later."""
        with self._lock:
            sessions = list(self._all_sessions)
        for session in sessions:
            _library.coracle_session_cancel(session.handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            _library.coracle_model_free(self._handle)


class Trainer:
    """A training program: a file of ops with gradients and updates, its startup program, and
    parameters to start from. One thread may use it at a time."""

    def __init__(self, program, startup=None, parameters=None, **options):
        self._handle = ctypes.c_void_p()
        paths = [None if path is None else _path(path)
                 for path in (program, startup, parameters)]
        chosen = _Options(options)
        _check(_library.coracle_trainer_new(*paths, chosen.handle, ctypes.byref(self._handle)))

    def step(self, feeds, fetches):
        """Feeds a dict of arrays, runs one step, and returns the values of `fetches`."""
        inputs, kept = _inputs(list(feeds.values()))
        outputs = (_Tensor * max(len(fetches), 1))()
        for output in outputs:
            output.struct_size = ctypes.sizeof(_Tensor)
        _check(_library.coracle_trainer_step(self._handle, _texts(list(feeds)), inputs, len(feeds),
                                             _texts(fetches), outputs, len(fetches)))
        return [_array(output) for output in outputs[: len(fetches)]]

    def save(self, path):
        """Writes all parameters and states: .npz, .safetensors or .pdiparams."""
        _check(_library.coracle_trainer_save(self._handle, _path(path)))

    def save_model(self, path, inputs, outputs):
        """Writes PATH.pdmodel and PATH.pdiparams."""
        _check(_library.coracle_trainer_save_model(self._handle, _path(path), _texts(inputs),
                                                   len(inputs), _texts(outputs), len(outputs)))

    def __del__(self):
        if getattr(self, "_handle", None):
            _library.coracle_trainer_free(self._handle)
