# Installs the library, its public headers, the command, and what find_package(coracle) and pkg-config need.
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/coracle)

install(TARGETS coracle coracle_train_library coracle_convert_library coracle_headers coracle_c EXPORT coracle-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT coracle-targets NAMESPACE coracle:: DESTINATION ${config_dir})
file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(coracle_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
install(TARGETS coracle_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# Public headers: coracle.h, <coracle/proto.h> and what these include.
install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")
set(destination \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/coracle\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake)
install(FILES ${PROJECT_SOURCE_DIR}/coracle_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/coracle)
install(FILES ${PROJECT_SOURCE_DIR}/capi/coracle.py DESTINATION ${CMAKE_INSTALL_DATADIR}/coracle/python)
install(FILES ${PROJECT_BINARY_DIR}/gen/coracle/proto.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/coracle)
install(DIRECTORY ${PROJECT_BINARY_DIR}/gen/coracle/proto DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/coracle
  FILES_MATCHING PATTERN "*.pb.h" PATTERN "event_log.pb.h" EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/proto DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/coracle
  FILES_MATCHING PATTERN "*.proto")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/coracle)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/proto DESTINATION ${CMAKE_INSTALL_DATADIR}/coracle
  FILES_MATCHING PATTERN "*.proto")

# The help of the command as files: man pages, completions, the schemas of its texts.
install(CODE "set(coracle \"$<TARGET_FILE:coracle_cli>\")
set(man \"${CMAKE_INSTALL_MANDIR}/man1\")
set(data \"${CMAKE_INSTALL_DATADIR}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_help.cmake)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/coracle-config.cmake.in
  ${PROJECT_BINARY_DIR}/coracle-config.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/coracle-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/coracle-config.cmake ${PROJECT_BINARY_DIR}/coracle-config-version.cmake
  DESTINATION ${config_dir})
# The libraries that the static library needs, for pkg-config. A shared one names them itself.
set(pc_libs "")
if(NOT CORACLE_SHARED)
  set(pc_libs "-lprotobuf -lglog -lre2 -lfmt -lz -lhwy -lgomp -lpthread -ldl")
  if(CORACLE_ONEDNN)
    string(APPEND pc_libs " -ldnnl")
  endif()
endif()
set(pc_train_libs "")
if(leveldb_FOUND AND NOT CORACLE_SHARED)
  set(pc_train_libs "-lleveldb")
endif()
file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
foreach(name coracle coracle_train coracle_convert coracle_c)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the Coracle authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Static-graph deep-learning compiler and runtime")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
include(CPack)
