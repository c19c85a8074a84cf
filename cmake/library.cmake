# libcoracle: the objects of every directory in one library, static or shared.
set(CORACLE_PARTS proto base tensor ir op io communication operators passes executor backward clip initializer regularizer
  optimizer distribute layers edit inspect train convert)
if(CORACLE_SHARED)
  add_library(coracle SHARED)
  # Threads of the pool rest in its code: it stays when a program closes the library.
  target_link_options(coracle PRIVATE LINKER:-z,nodelete)
else()
  add_library(coracle STATIC)
endif()
add_library(coracle::coracle ALIAS coracle)
if(CORACLE_OBJECTS_FROM)
  # As the build there lists them: objects of sources that are gone may lie beside them.
  execute_process(COMMAND ${CMAKE_MAKE_PROGRAM} -t inputs libcoracle.a WORKING_DIRECTORY ${CORACLE_OBJECTS_FROM}
    OUTPUT_VARIABLE all_objects COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+\\.o\n" all_objects "${all_objects}")
  list(TRANSFORM all_objects STRIP)
  list(TRANSFORM all_objects PREPEND ${CORACLE_OBJECTS_FROM}/)
endif()
foreach(part IN LISTS CORACLE_PARTS)
  if(CORACLE_OBJECTS_FROM)
    set(objects ${all_objects})
    list(FILTER objects INCLUDE REGEX "/coracle_${part}\\.dir/")
    if(NOT objects)
      message(FATAL_ERROR "no objects of ${part} in ${CORACLE_OBJECTS_FROM}; build the library there first")
    endif()
    target_sources(coracle PRIVATE ${objects})
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON)
  else()
    target_sources(coracle PRIVATE $<TARGET_OBJECTS:coracle_${part}>)
  endif()
endforeach()
if(CORACLE_COVERAGE)
  foreach(part base tensor ir op io backward clip)
    target_compile_options(coracle_${part} PRIVATE --coverage -O0)
  endforeach()
  target_link_options(coracle PUBLIC --coverage)
endif()
set_target_properties(coracle PROPERTIES LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
# The headers alone: for op libraries, which take Coracle's symbols from the program that loads them.
add_library(coracle_headers INTERFACE)
add_library(coracle::headers ALIAS coracle_headers)
set_target_properties(coracle_headers PROPERTIES EXPORT_NAME headers)
target_compile_features(coracle_headers INTERFACE cxx_std_20)
target_include_directories(coracle_headers INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(coracle PUBLIC coracle_headers)
target_link_libraries(coracle PRIVATE
  fmt::fmt glog::glog coracle_re2 nlohmann_json::nlohmann_json ZLIB::ZLIB hwy::hwy protobuf::libprotobuf
  Threads::Threads OpenMP::OpenMP_CXX ${CMAKE_DL_LIBS} $<$<BOOL:${CORACLE_ONEDNN}>:DNNL::dnnl>
  $<$<BOOL:${leveldb_FOUND}>:leveldb::leveldb>)
