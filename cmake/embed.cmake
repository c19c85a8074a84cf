# cmake -DIN=FILE -DOUT=FILE.cc -DNAME=kName -P embed.cmake: the bytes of a file as coracle::proto::kName.
file(READ ${IN} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR bytes "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," values "${hex}")
file(WRITE ${OUT} "namespace coracle::proto {\nextern const unsigned char ${NAME}[];\nextern const unsigned long ${NAME}Bytes;\nconst unsigned char ${NAME}[] = {${values}};\nconst unsigned long ${NAME}Bytes = ${bytes};\n}\n")
