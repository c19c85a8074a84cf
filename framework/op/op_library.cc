#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_registry.h>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace coracle {
namespace {

constexpr const char* kEntry = "CoracleRegisterOps";
constexpr std::string_view kVersionPrefix = "CoracleOpLibrary_";
constexpr uint64_t kMaxLibraryBytes = uint64_t{1} << 31;

// The names that a shared object exports and imports, read without loading it: its constructors may
// abort the process (protobuf's do if a schema is registered twice).
class SharedObject {
 public:
  explicit SharedObject(std::string bytes) : bytes_(std::move(bytes)) {
    const auto header = At<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr)) {
      ThrowInvalid("is not a 64-bit ELF shared object");
    }
    for (uint64_t i = 0; i < header->e_shnum; ++i) {
      const auto section = At<Elf64_Shdr>(header->e_shoff, i);
      if (section && section->sh_type == SHT_DYNSYM) ReadSymbols(*section, header->e_shoff);
      if (section && section->sh_type == SHT_DYNAMIC) ReadNeeded(*section, header->e_shoff);
    }
  }

  const std::vector<std::string_view>& exports() const { return exports_; }
  const std::vector<std::string_view>& imports() const { return imports_; }
  const std::vector<std::string_view>& needed() const { return needed_; }  // other shared objects

 private:
  // The i-th T of an array at `offset`; nullopt if the file ends before it.
  template <class T>
  std::optional<T> At(uint64_t offset, uint64_t i = 0) const {
    const uint64_t size = bytes_.size();
    if (offset > size || i >= (size - offset) / sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset + i * sizeof(T), sizeof(T));
    return value;
  }

  // The text at `offset` of the string table in section number `link`.
  std::string_view Text(uint64_t sections, uint64_t link, uint64_t offset) const {
    const auto table = At<Elf64_Shdr>(sections, link);
    if (!table || table->sh_offset + offset >= bytes_.size()) return "";
    const std::string_view rest = std::string_view(bytes_).substr(table->sh_offset + offset);
    return rest.substr(0, rest.find('\0'));
  }

  void ReadSymbols(const Elf64_Shdr& section, uint64_t sections) {
    for (uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
      const auto symbol = At<Elf64_Sym>(section.sh_offset, i);
      if (!symbol) return;
      (symbol->st_shndx == SHN_UNDEF ? imports_ : exports_)
          .push_back(Text(sections, section.sh_link, symbol->st_name));
    }
  }

  void ReadNeeded(const Elf64_Shdr& section, uint64_t sections) {
    for (uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Dyn); ++i) {
      const auto entry = At<Elf64_Dyn>(section.sh_offset, i);
      if (!entry || entry->d_tag == DT_NULL) return;
      if (entry->d_tag == DT_NEEDED)
        needed_.push_back(Text(sections, section.sh_link, entry->d_un.d_val));
    }
  }

  std::string bytes_;
  std::vector<std::string_view> exports_, imports_, needed_;
};

bool Contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string OwnVersion() {
  return fmt::format("{}.{}.{}", CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR,
                     CORACLE_VERSION_PATCH);
}

// "0.1.0" from "CoracleOpLibrary_0_1_0"; "" without such a function.
std::string VersionOf(const SharedObject& library) {
  for (std::string_view name : library.exports()) {
    if (!name.starts_with(kVersionPrefix)) continue;
    std::string version(name.substr(kVersionPrefix.size()));
    std::replace(version.begin(), version.end(), '_', '.');
    return version;
  }
  return "";
}

[[noreturn]] void ThrowNoEntry() {
  throw Error(ErrorCode::kNotFound,
              "exports no CoracleRegisterOps; define it as <coracle/framework/op/op_registry.h> "
              "declares it");
}

// Whether loading the library would bring a second libcoracle into the process. A library that
// imports no Coracle function, to add an op or a kind, must contain Coracle itself.
bool HasItsOwn(const SharedObject& library) {
  const bool takes =
      std::any_of(library.imports().begin(), library.imports().end(),
                  [](std::string_view name) { return name.starts_with("_ZN7coracle"); });
  if (!takes) return true;
  return std::any_of(library.needed().begin(), library.needed().end(), [](std::string_view name) {
    return name.starts_with("libcoracle.so") &&
           !::dlopen(std::string(name).c_str(), RTLD_LAZY | RTLD_NOLOAD);
  });
}

// Throws unless loading the library is safe.
void Check(const SharedObject& library) {
  if (!Contains(library.exports(), kEntry)) ThrowNoEntry();
  const std::string version = VersionOf(library);
  if (version != OwnVersion()) {
    ThrowInvalid(fmt::format(
        "was built against {}, and this is Coracle {}; build it again",
        version.empty() ? "no <coracle/framework/op/op_registry.h>" : "Coracle " + version,
        OwnVersion()));
  }
  if (HasItsOwn(library)) {
    ThrowInvalid(
        "contains its own libcoracle in addition to this program's (or adds nothing); link it to "
        "coracle::headers instead of coracle::coracle");
  }
}

}  // namespace

void LoadOpLibrary(const std::string& path, OpRegistry& ops) {
  const std::string shown = Quote(path, 300);
  if (!FileExists(path)) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("cannot load the op library {}: no such file", shown));
  }
  // dlopen searches only the system's directories for a bare name.
  const std::string file = path.find('/') == path.npos ? "./" + path : path;
  const std::string bytes = ReadFile(path, kMaxLibraryBytes);
  decltype(&CoracleRegisterOps) entry = nullptr;
  try {
    Check(SharedObject(bytes));
    void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      throw Error(ErrorCode::kNotFound, fmt::format("cannot be loaded: {}", ::dlerror()));
    entry = reinterpret_cast<decltype(entry)>(::dlsym(library, kEntry));
    if (!entry) ThrowNoEntry();
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("the op library {} {}", shown, e.message()));
  }
  entry(ops);
}

}  // namespace coracle
