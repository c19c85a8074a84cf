# Installs Coracle in components, which are also Debian's packages (debian/rules):
#   core, train, convert, c   a library each
#   development               headers, static libraries, and what find_package(coracle) and pkg-config need
#   command                   the command, its help, examples, documentation
#   mpi                       the plugin for ranks as processes
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/coracle)

file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(coracle_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
foreach(component core train convert c)
  set(target coracle_${component}_library)
  if(component STREQUAL "core")
    set(target coracle)
  elseif(component STREQUAL "c")
    set(target coracle_c)
  endif()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${target} EXPORT coracle-targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} NAMELINK_COMPONENT development)
endforeach()
install(TARGETS coracle_headers EXPORT coracle-targets)
install(EXPORT coracle-targets NAMESPACE coracle:: DESTINATION ${config_dir} COMPONENT development)
install(TARGETS coracle_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
if(CORACLE_STATIC_TOO)
  foreach(name coracle coracle_train coracle_convert)
    install(FILES ${CORACLE_OBJECTS_FROM}/lib${name}.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  endforeach()
endif()

# Public headers: coracle.h, <coracle/proto.h> and what these include.
set(include_dir ${CMAKE_INSTALL_INCLUDEDIR}/coracle)
set(generated_dir ${PROJECT_BINARY_DIR}/gen)
if(CORACLE_OBJECTS_FROM)
  set(generated_dir ${CORACLE_OBJECTS_FROM}/gen)
endif()
install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")
set(destination \"\${CMAKE_INSTALL_PREFIX}/${include_dir}\")" COMPONENT development)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/coracle_c.h ${generated_dir}/coracle/proto.h DESTINATION ${include_dir}
  COMPONENT development)
install(DIRECTORY ${generated_dir}/coracle/proto DESTINATION ${include_dir} COMPONENT development
  FILES_MATCHING PATTERN "*.pb.h" PATTERN "event_log.pb.h" EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/proto DESTINATION ${include_dir} COMPONENT development
  FILES_MATCHING PATTERN "*.proto")
install(FILES ${PROJECT_SOURCE_DIR}/capi/coracle.py DESTINATION ${CMAKE_INSTALL_DATADIR}/coracle/python
  COMPONENT development)

# Documentation, licences, examples, schemas.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
install(FILES ${PROJECT_SOURCE_DIR}/third_party/dagre/LICENSE RENAME LICENSE.dagre
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/proto DESTINATION ${CMAKE_INSTALL_DATADIR}/coracle COMPONENT command
  FILES_MATCHING PATTERN "*.proto")

# The help of the command as files: man pages, completions, the schemas of its texts.
install(CODE "set(coracle ${CMAKE_CROSSCOMPILING_EMULATOR} \"$<TARGET_FILE:coracle_cli>\")
set(man \"${CMAKE_INSTALL_MANDIR}/man1\")
set(data \"${CMAKE_INSTALL_DATADIR}\")" COMPONENT command)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_help.cmake COMPONENT command)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/coracle-config.cmake.in
  ${PROJECT_BINARY_DIR}/coracle-config.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/coracle-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/coracle-config.cmake ${PROJECT_BINARY_DIR}/coracle-config-version.cmake
  DESTINATION ${config_dir} COMPONENT development)
# The libraries that the static library needs, for pkg-config. A shared one names them itself.
set(static_libs "-lprotobuf -lglog -lre2 -lfmt -lz -lhwy -lgomp -lpthread -ldl")
if(CORACLE_ONEDNN)
  string(APPEND static_libs " -ldnnl")
endif()
set(static_train_libs "-lpng -ljpeg")
if(leveldb_FOUND)
  string(APPEND static_train_libs " -lleveldb -lsnappy")
endif()
foreach(which pc pc_train)
  string(REPLACE pc static libs ${which}_libs)
  set(${which}_libs "")
  set(${which}_private_libs "")
  if(CORACLE_SHARED)
    set(${which}_private_libs "${${libs}}")
  else()
    set(${which}_libs "${${libs}}")
  endif()
endforeach()
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
foreach(name coracle coracle_train coracle_convert coracle_c)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endforeach()

# `cpack` makes a tarball that runs wherever it is unpacked; scripts/package makes Debian's packages.
set(CPACK_GENERATOR TGZ)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_PACKAGE_CONTACT "the Coracle authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Static-graph deep-learning compiler and runtime")
set(CPACK_PACKAGE_FILE_NAME coracle-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
include(CPack)
