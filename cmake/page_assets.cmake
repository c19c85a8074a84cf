# Makes one C++ file of the parts of a page: cmake -DPAGE=inspect/page -DLIBRARY=dagre.min.js
# -DSCRIPTS=a.js,b.js -DOUT=page_assets.cc -P page_assets.cmake
# The layout library and layout.js become one function, whose text the page gives to a worker.
string(REPLACE "," ";" scripts "${SCRIPTS}")
file(READ ${PAGE}/index.html html)
file(READ ${PAGE}/style.css style)
file(READ ${LIBRARY} library)
file(READ ${PAGE}/js/layout.js layout)
set(script "'use strict';\n\nfunction createLayoutEngine() {\n${library}\n${layout}\nreturn layOutLevel;\n}\n")
foreach(name IN LISTS scripts)
  file(READ ${PAGE}/js/${name} text)
  string(APPEND script "\n${text}")
endforeach()
set(script "(() => {\n${script}\n})();")
string(SHA256 style_hash "${style}")
string(SHA256 script_hash "${script}")
# A string literal ends at its delimiter, so no part may contain the delimiter.
foreach(part html style script)
  string(FIND "${${part}}" ")CORACLE\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "the page's ${part} holds the delimiter of a C++ literal")
  endif()
endforeach()
string(TOLOWER "${script}" lower)
string(FIND "${lower}" "</script" found)
if(NOT found EQUAL -1)
  message(FATAL_ERROR "the page's script holds </script, which would end it")
endif()
file(WRITE ${OUT} "#include <coracle/inspect/page_assets.h>

namespace coracle::page_assets {

const char* const kHtml = R\"CORACLE(${html})CORACLE\";
const char* const kStyle = R\"CORACLE(${style})CORACLE\";
const char* const kScript = R\"CORACLE(${script})CORACLE\";
const char* const kStyleSha256 = \"${style_hash}\";
const char* const kScriptSha256 = \"${script_hash}\";

}  // namespace coracle::page_assets
")
