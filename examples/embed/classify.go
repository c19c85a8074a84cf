// Loads a model and runs it on numbers of the command line, in Go with cgo:
//
//	classify MODEL WIDTH NUMBER...
//
// The input has rows of WIDTH numbers. Build: go build classify.go
package main

/*
#cgo pkg-config: coracle_c
#include <coracle/coracle_c.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"
)

// Calls a function of the library. Its error belongs to the thread, which a goroutine may leave
// between two calls.
func call(function func() C.int32_t) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if function() == C.CORACLE_OK {
		return nil
	}
	return errors.New(C.GoString(C.coracle_last_error()))
}

// Model has one session, one input and one output. One goroutine at a time may run it.
type Model struct {
	model   *C.coracle_model
	session *C.coracle_session
}

func Load(path string) (*Model, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	it := &Model{}
	err := call(func() C.int32_t { return C.coracle_model_load(name, nil, &it.model) })
	if err == nil {
		err = call(func() C.int32_t { return C.coracle_session_new(it.model, &it.session) })
	}
	if err != nil {
		it.Close()
		return nil, err
	}
	return it, nil
}

func (it *Model) Close() {
	C.coracle_session_free(it.session)
	C.coracle_model_free(it.model)
	it.session, it.model = nil, nil
}

// Run returns a copy of the result. C may not see Go memory that has pointers to Go memory, so the
// elements and dims of the input are copied to C's.
func (it *Model) Run(dims []int64, numbers []float32) ([]float32, error) {
	const number, dim = unsafe.Sizeof(float32(0)), unsafe.Sizeof(int64(0))
	data := C.calloc(C.size_t(len(numbers)+1), C.size_t(number))
	defer C.free(data)
	copy(unsafe.Slice((*float32)(data), len(numbers)), numbers)
	shape := C.calloc(C.size_t(len(dims)+1), C.size_t(dim))
	defer C.free(shape)
	copy(unsafe.Slice((*int64)(shape), len(dims)), dims)

	input := C.coracle_tensor{
		struct_size: C.uint32_t(unsafe.Sizeof(C.coracle_tensor{})),
		dtype:       C.CORACLE_FLOAT32,
		rank:        C.int32_t(len(dims)),
		dims:        (*C.int64_t)(shape),
		data:        data,
		bytes:       C.uint64_t(uintptr(len(numbers)) * number),
	}
	output := C.coracle_tensor{struct_size: input.struct_size}
	err := call(func() C.int32_t {
		return C.coracle_session_run(it.session, &input, 1, &output, 1)
	})
	if err != nil {
		return nil, err
	}
	if output.dtype != C.CORACLE_FLOAT32 {
		return nil, errors.New("the result is not float32")
	}
	// The session's memory, until its next run.
	result := unsafe.Slice((*float32)(output.data), uintptr(output.bytes)/number)
	return append([]float32(nil), result...), nil
}

func classify(arguments []string) error {
	width, err := strconv.ParseInt(arguments[1], 10, 64)
	if err != nil || width < 1 {
		return errors.New("WIDTH must be a number from 1 on, got " + arguments[1])
	}
	var numbers []float32
	for _, text := range arguments[2:] {
		value, err := strconv.ParseFloat(text, 32)
		if err != nil {
			return errors.New(text + " is not a number")
		}
		numbers = append(numbers, float32(value))
	}
	model, err := Load(arguments[0])
	if err != nil {
		return err
	}
	defer model.Close()
	result, err := model.Run([]int64{int64(len(numbers)) / width, width}, numbers)
	for _, value := range result {
		fmt.Println(value)
	}
	return err
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: classify MODEL WIDTH NUMBER...")
		os.Exit(2)
	}
	if err := classify(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "classify:", err)
		os.Exit(1)
	}
}
