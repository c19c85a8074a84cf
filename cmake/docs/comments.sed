# Turns the comments of a header into comments that Doxygen reads, with their text as it is.
/^ *\/\//{
  s/@/\\@/g
  s/</\\</g
  s/>/\\>/g
  s|^( *)//   |\1///     |
  s|^( *)// |\1/// |
  s|^( *)//$|\1///|
}
s|([;,{}]) +// (.*)|\1  ///< \2|
