# Copies the public headers, and framework/io/proto.h for those who want protobuf, from `source` to `destination`.
cmake_policy(VERSION 3.25)
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/public_headers.txt headers)
foreach(header IN LISTS headers ITEMS framework/io/proto.h)
  get_filename_component(directory "${header}" DIRECTORY)
  file(INSTALL DESTINATION "${destination}/${directory}" FILES "${source}/${header}")
endforeach()
