# cmake -P needed_ops.cmake: what configuring a slim build reads of the JSON of `coracle ops --needed`.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/needed_ops.cmake)
set(CORACLE_OPS a/first b/second b/third)
set(file ${CMAKE_CURRENT_BINARY_DIR}/needed_ops_test.json)
if(DEFINED NAME)  # the inner run, with a file that CORACLE_OPS lacks
  set(CORACLE_OPS_FROM ${file})
  coracle_needed_ops(files left_out)
  return()
endif()

function(check_equal what actual wanted)
  if(NOT "${actual}" STREQUAL "${wanted}")
    message(FATAL_ERROR "${what}: ${actual} in place of ${wanted}")
  endif()
endfunction()

file(WRITE ${file} [[{"format": "coracle.needed_ops", "version": 1, "ops": ["x"],
  "files": [{"file": "b/third", "ops": ["x", "y"]}, {"file": "a/first", "ops": []}], "left_out": ["z", "w"]}]])
set(CORACLE_OPS_FROM ${file})
coracle_needed_ops(files left_out)
check_equal("files" "${files}" "b/third;a/first")
check_equal("types of other files" "${left_out}" "z;w")

file(WRITE ${file} [[{"format": "coracle.needed_ops", "version": 1, "ops": [], "files": [], "left_out": []}]])
coracle_needed_ops(files left_out)
check_equal("no files" "${files}" "")
check_equal("no types" "${left_out}" "")

# Refused: a file of another version, a program that is not there.
file(WRITE ${file} [[{"format": "coracle.needed_ops", "version": 1, "files": [{"file": "c/other"}], "left_out": []}]])
execute_process(COMMAND ${CMAKE_COMMAND} -DNAME=other -P ${CMAKE_CURRENT_LIST_FILE} ERROR_VARIABLE error RESULT_VARIABLE result)
string(REGEX REPLACE "[ \n]+" " " error "${error}")  # CMake breaks lines of messages
if(result EQUAL 0 OR NOT error MATCHES "no file operators/c/other.cc")
  message(FATAL_ERROR "a file of another version is not refused: ${error}")
endif()
file(REMOVE ${file})
execute_process(COMMAND ${CMAKE_COMMAND} -DNAME=other -P ${CMAKE_CURRENT_LIST_FILE} ERROR_VARIABLE error RESULT_VARIABLE result)
string(REGEX REPLACE "[ \n]+" " " error "${error}")
if(result EQUAL 0 OR NOT error MATCHES "does not exist")
  message(FATAL_ERROR "a missing file is not refused: ${error}")
endif()
