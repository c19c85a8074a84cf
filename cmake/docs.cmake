# `ninja docs` makes the site of the docs, build/site/index.html: the pages of docs/, README.md and
# the examples by mkdocs, and the API reference of the public headers by Doxygen, below api/. On
# Debian, both are packages of these names. Neither needs the network.
find_program(MKDOCS_PROGRAM mkdocs)
find_program(DOXYGEN_PROGRAM doxygen)
if(NOT MKDOCS_PROGRAM OR NOT DOXYGEN_PROGRAM)
  add_custom_target(docs
    COMMAND ${CMAKE_COMMAND} -E echo "docs: mkdocs or doxygen is missing; on Debian: apt-get install mkdocs doxygen"
    COMMAND ${CMAKE_COMMAND} -E false)
  return()
endif()

set(docs_source ${PROJECT_SOURCE_DIR}/cmake/docs)
set(docs_build ${PROJECT_BINARY_DIR}/docs)
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/public_headers.txt docs_headers)
list(TRANSFORM docs_headers PREPEND "${PROJECT_BINARY_DIR}/include/coracle/")
list(JOIN docs_headers " " docs_headers)
configure_file(${docs_source}/Doxyfile.in ${docs_build}/Doxyfile @ONLY)
configure_file(${docs_source}/mkdocs.yml ${docs_build}/mkdocs.yml COPYONLY)
add_custom_target(docs
  COMMAND ${CMAKE_COMMAND} -Dsource=${PROJECT_SOURCE_DIR} -Dpages=${docs_build}/pages
    -P ${docs_source}/copy_pages.cmake
  COMMAND ${CMAKE_COMMAND} -E env NO_MKDOCS_2_WARNING=1 ${MKDOCS_PROGRAM} build --strict --quiet --clean
    --config-file ${docs_build}/mkdocs.yml --site-dir ${PROJECT_BINARY_DIR}/site
  COMMAND ${DOXYGEN_PROGRAM} ${docs_build}/Doxyfile
  COMMENT "docs: ${PROJECT_BINARY_DIR}/site/index.html"
  VERBATIM)
