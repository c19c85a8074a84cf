# The three libraries, static or shared, made of the objects of the directories:
#   coracle          programs, builder, backward, clips, optimizers, compiler, executor, files
#   coracle_train    training jobs and their data
#   coracle_convert  models of ONNX, Caffe and Paddle 3
# Each links the libraries above it in this list. Their CMake targets are coracle::coracle,
# coracle::train and coracle::convert.
if(CORACLE_OBJECTS_FROM)
  # Ninja lists the objects in use. The directories may also hold objects of deleted sources.
  execute_process(COMMAND ${CMAKE_MAKE_PROGRAM} -t inputs libcoracle.a libcoracle_train.a libcoracle_convert.a
    WORKING_DIRECTORY ${CORACLE_OBJECTS_FROM} OUTPUT_VARIABLE all_objects COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+\\.o\n" all_objects "${all_objects}")
  list(TRANSFORM all_objects STRIP)
  list(TRANSFORM all_objects PREPEND ${CORACLE_OBJECTS_FROM}/)
endif()

# Adds the library `target`, in a file called `name`, from the objects of the parts that follow.
function(coracle_library target name)
  if(CORACLE_SHARED)
    add_library(${target} SHARED)
    # Threads of the pool sleep in the library's code, so it must stay loaded if a program closes the library.
    target_link_options(${target} PRIVATE LINKER:-z,nodelete)
  else()
    add_library(${target} STATIC)
  endif()
  foreach(part IN LISTS ARGN)
    if(CORACLE_OBJECTS_FROM)
      set(objects ${all_objects})
      list(FILTER objects INCLUDE REGEX "/coracle_${part}\\.dir/")
      if(NOT objects)
        message(FATAL_ERROR "no objects of ${part} in ${CORACLE_OBJECTS_FROM}; build the library there first")
      endif()
      target_sources(${target} PRIVATE ${objects})
      set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON)
    else()
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:coracle_${part}>)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME ${name}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  target_link_libraries(${target} PRIVATE fmt::fmt glog::glog coracle_re2 nlohmann_json::nlohmann_json
    ZLIB::ZLIB protobuf::libprotobuf Threads::Threads)
endfunction()

# Only the headers, for op libraries: they take Coracle's symbols from the program that loads them.
add_library(coracle_headers INTERFACE)
add_library(coracle::headers ALIAS coracle_headers)
set_target_properties(coracle_headers PROPERTIES EXPORT_NAME headers)
target_compile_features(coracle_headers INTERFACE cxx_std_20)
target_include_directories(coracle_headers INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

coracle_library(coracle coracle proto base tensor ir op io communication operators passes executor backward
  clip initializer regularizer optimizer distribute layers edit inspect quantize)
add_library(coracle::coracle ALIAS coracle)
target_link_libraries(coracle PUBLIC coracle_headers)
target_link_libraries(coracle PRIVATE hwy::hwy OpenMP::OpenMP_CXX ${CMAKE_DL_LIBS}
  $<$<BOOL:${CORACLE_ONEDNN}>:DNNL::dnnl>)

# The object libraries of these two directories have the names coracle_train and coracle_convert.
coracle_library(coracle_train_library coracle_train train_proto train)
add_library(coracle::train ALIAS coracle_train_library)
set_target_properties(coracle_train_library PROPERTIES EXPORT_NAME train)
target_link_libraries(coracle_train_library PUBLIC coracle PRIVATE $<$<BOOL:${leveldb_FOUND}>:leveldb::leveldb>)

coracle_library(coracle_convert_library coracle_convert convert_proto convert)
add_library(coracle::convert ALIAS coracle_convert_library)
set_target_properties(coracle_convert_library PROPERTIES EXPORT_NAME convert)
target_link_libraries(coracle_convert_library PUBLIC coracle_train_library)

if(CORACLE_COVERAGE)
  foreach(part base tensor ir op io backward clip)
    target_compile_options(coracle_${part} PRIVATE --coverage -O0)
  endforeach()
  target_link_options(coracle PUBLIC --coverage)
endif()
