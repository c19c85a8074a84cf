# Copies the pages of the site, with the files that they link to, from `source` to `pages`. The
# folders stay the same, so that links between the pages are valid.
cmake_policy(VERSION 3.25)
file(REMOVE_RECURSE ${pages})
file(GLOB_RECURSE files RELATIVE ${source}
  ${source}/docs/*.md ${source}/examples/*.md ${source}/examples/*.pbtxt ${source}/proto/*.proto)
foreach(file IN LISTS files ITEMS README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE
    bench/README.md third_party/dagre/README.md)
  get_filename_component(directory ${file} DIRECTORY)
  file(COPY ${source}/${file} DESTINATION ${pages}/${directory})
endforeach()
# GitHub shows a folder by its README.md; mkdocs needs the page.
file(GLOB_RECURSE files ${pages}/*.md)
foreach(file IN LISTS files)
  file(READ ${file} text)
  string(REPLACE "](docs/ops)" "](docs/ops/README.md)" text "${text}")
  string(REGEX REPLACE "\\]\\((examples/[a-z_]+)\\)" "](\\1/README.md)" text "${text}")
  file(WRITE ${file} "${text}")
endforeach()
file(COPY ${source}/cmake/docs/site.css ${source}/cmake/docs/api.md DESTINATION ${pages})
