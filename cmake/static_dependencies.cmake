# For a command that needs few other files: links the static libraries of others that Debian has. It has none of oneDNN,
# Highway and fmt, and oneDNN needs the shared libraries of C++ and OpenMP, of which a process must have one.
option(CORACLE_STATIC_DEPENDENCIES "Link the static libraries of others that Debian has" OFF)
if(CORACLE_STATIC_DEPENDENCIES)
  list(PREPEND CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(GFLAGS_SHARED FALSE)
endif()

# Replaces the shared library of a target, whose CMake files know no other, by libNAME.a and what that needs.
function(coracle_link_statically target name)
  if(NOT CORACLE_STATIC_DEPENDENCIES OR NOT TARGET ${target})
    return()
  endif()
  set(needed Threads::Threads)
  foreach(other IN LISTS name ARGN)
    find_library(CORACLE_STATIC_${other} lib${other}.a REQUIRED)
    list(APPEND needed ${CORACLE_STATIC_${other}})
  endforeach()
  list(REMOVE_ITEM needed ${CORACLE_STATIC_${name}})
  if(name STREQUAL "glog")
    list(APPEND needed unwind)  # whose static library is no position-independent code
  endif()
  get_target_property(configuration ${target} IMPORTED_CONFIGURATIONS)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${configuration} ${CORACLE_STATIC_${name}}
    INTERFACE_LINK_LIBRARIES "${needed}")
endfunction()
