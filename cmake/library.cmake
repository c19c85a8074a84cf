# The three libraries, static or shared, made of the objects of the directories:
#   coracle          programs, builder, backward, clips, optimizers, compiler, executor, files
#   coracle_train    training jobs and their data
#   coracle_convert  models of ONNX, Caffe and Paddle 3
# Each links the libraries above it in this list. Their CMake targets are coracle::coracle,
# coracle::train and coracle::convert.
set(CORACLE_SONAME ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
  # Until 1.0, each minor version may change the interface.
  set(CORACLE_SONAME ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/symbols.map.in ${PROJECT_BINARY_DIR}/symbols.map @ONLY)

# Adds the library `target`, in a file called `name`, from the objects of the parts that follow.
function(coracle_library target name)
  if(CORACLE_SHARED)
    add_library(${target} SHARED)
    # Threads of the pool sleep in the library's code, so it must stay loaded if a program closes the library.
    target_link_options(${target} PRIVATE LINKER:-z,nodelete LINKER:--as-needed
      LINKER:--version-script=${PROJECT_BINARY_DIR}/symbols.map)
    if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")  # a sanitizer's functions come from the program
      target_link_options(${target} PRIVATE LINKER:--no-undefined)
    endif()
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${PROJECT_BINARY_DIR}/symbols.map)
  else()
    add_library(${target} STATIC)
  endif()
  coracle_add_objects(${target} ${ARGN})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME ${name}
    VERSION ${PROJECT_VERSION} SOVERSION ${CORACLE_SONAME})
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

coracle_library(coracle coracle coracle_proto coracle_base coracle_tensor coracle_ir coracle_op coracle_io
  coracle_communication coracle_operators coracle_passes coracle_executor coracle_backward coracle_clip
  coracle_initializer coracle_regularizer coracle_optimizer coracle_distribute coracle_layers coracle_edit
  coracle_inspect coracle_quantize)
add_library(coracle::coracle ALIAS coracle)
target_link_libraries(coracle PUBLIC coracle_headers)
if(CORACLE_OPS_FROM)
  target_link_options(coracle INTERFACE LINKER:--gc-sections)
endif()
target_link_libraries(coracle PRIVATE hwy::hwy OpenMP::OpenMP_CXX ${CMAKE_DL_LIBS}
  $<$<BOOL:${CORACLE_ONEDNN}>:DNNL::dnnl>)

# The object libraries of these two directories have the names coracle_train and coracle_convert.
coracle_library(coracle_train_library coracle_train coracle_train_proto coracle_train)
add_library(coracle::train ALIAS coracle_train_library)
set_target_properties(coracle_train_library PROPERTIES EXPORT_NAME train)
target_link_libraries(coracle_train_library PUBLIC coracle
  PRIVATE PNG::PNG JPEG::JPEG $<$<BOOL:${leveldb_FOUND}>:leveldb::leveldb>)

coracle_library(coracle_convert_library coracle_convert coracle_convert_proto coracle_convert)
add_library(coracle::convert ALIAS coracle_convert_library)
set_target_properties(coracle_convert_library PROPERTIES EXPORT_NAME convert)
target_link_libraries(coracle_convert_library PUBLIC coracle_train_library)
target_link_options(coracle_convert_library INTERFACE LINKER:--undefined=coracle_convert_readers)  # convert/model_readers.cc

if(CORACLE_COVERAGE)
  foreach(part base tensor ir op io backward clip)
    target_compile_options(coracle_${part} PRIVATE --coverage -O0)
  endforeach()
  target_link_options(coracle PUBLIC --coverage)
endif()
