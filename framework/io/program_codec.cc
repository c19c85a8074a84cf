// Programs as binary ProgramDesc messages. The field numbers come from the generated classes. The
// bytes are read and written here, so that unknown parts are kept exactly.

#include <coracle/framework/base/text.h>
#include <coracle/framework/base/trace.h>
#include <coracle/framework/io/internal/attr_codec.h>
#include <coracle/framework/io/internal/program_codec.h>
#include <coracle/framework/io/internal/var_codec.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/proto/framework.pb.h>
#include <coracle/proto/training.pb.h>
#include <fmt/format.h>

namespace coracle {
namespace {

using wire::Encoder;
using wire::Field;
using wire::Reader;
using wire::Source;
using wire::Tag;
using ProgramProto = proto::ProgramDesc;
using BlockProto = proto::BlockDesc;
using OpProto = proto::OpDesc;
using SlotProto = proto::OpDesc::Var;
using PairProto = proto::OpVersionMap::OpVersionPair;

using OpVersions = std::vector<std::pair<std::string, int32_t>>;

void EncodeOpVersions(const OpVersions& versions, Encoder& out) {
  for (const auto& [name, version] : versions) {
    out.Message(proto::OpVersionMap::kPairFieldNumber, [&, &op = name, number = version] {
      out.Bytes(PairProto::kOpNameFieldNumber, op);
      out.Message(PairProto::kOpVersionFieldNumber,
                  [&] { out.Int(proto::OpVersion::kVersionFieldNumber, number); });
    });
  }
}

[[noreturn]] void FailAt(const Source& source, std::string_view message, const std::string& what) {
  throw Error(ErrorCode::kDataLoss,
              fmt::format("{}: {} (at byte {})", source.name, what, message.data() - source.begin));
}

// nullopt if it is not written as this codec writes it.
std::optional<int64_t> DecodeVersion(const Source& source, std::string_view message) {
  Field field, number;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag != Tag(proto::Version::kVersionFieldNumber, wire::kVarint)) return std::nullopt;
    number = field;
  }
  if (number.whole.size() != message.size() || message.empty()) return std::nullopt;
  return number.Int64();
}

// nullopt if they are not written as this codec writes them.
std::optional<OpVersions> DecodeOpVersions(const Source& source, std::string_view message) {
  OpVersions versions;
  Field pair, field, version;
  for (Reader in(message, source); in.Next(&pair);) {
    if (pair.tag != Tag(proto::OpVersionMap::kPairFieldNumber, wire::kBytes)) return std::nullopt;
    auto& [name, number] = versions.emplace_back();
    for (Reader pair_in(pair.bytes, source); pair_in.Next(&field);) {
      if (field.tag == Tag(PairProto::kOpNameFieldNumber, wire::kBytes)) {
        name = field.String();
      } else if (field.tag == Tag(PairProto::kOpVersionFieldNumber, wire::kBytes)) {
        for (Reader version_in(field.bytes, source); version_in.Next(&version);) {
          if (version.number() == proto::OpVersion::kVersionFieldNumber) number = version.Int32();
        }
      }
    }
  }
  std::string plain;
  Encoder out(&plain);
  EncodeOpVersions(versions, out);
  if (plain != message) return std::nullopt;
  return versions;
}

// Sets the version of the program; keeps fields that would be written in another way.
void SetVersion(const Source& source, const Field& version, const Field& legacy,
                ProgramDesc& program, std::string* unknown) {
  if (!version.whole.empty()) program.version = DecodeVersion(source, version.bytes);
  if (!version.whole.empty() && !program.version) unknown->append(version.whole);
  if (legacy.whole.empty()) return;
  if (version.whole.empty()) program.version = DecodeVersion(source, legacy.bytes);
  program.version_in_legacy_field = version.whole.empty() && program.version;
  if (!program.version_in_legacy_field) unknown->append(legacy.whole);
}

Slot DecodeSlot(const Source& source, std::string_view message) {
  Slot slot;
  bool has_name = false;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == Tag(SlotProto::kParameterFieldNumber, wire::kBytes)) {
      slot.name.assign(field.bytes);
      has_name = true;
    } else if (field.tag == Tag(SlotProto::kArgumentsFieldNumber, wire::kBytes)) {
      slot.args.emplace_back(field.bytes);
    }
  }
  if (!has_name) FailAt(source, message, "a slot has no name");
  return slot;
}

void DecodeOp(const Source& source, std::string_view message, MissingValue missing,
              BlockDesc& block) {
  std::optional<std::string_view> type;
  SlotList inputs, outputs;
  AttrList attrs;
  std::optional<bool> is_target;
  std::string unknown;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    switch (field.tag) {
      case Tag(OpProto::kInputsFieldNumber, wire::kBytes):
        inputs.push_back(DecodeSlot(source, field.bytes));
        break;
      case Tag(OpProto::kOutputsFieldNumber, wire::kBytes):
        outputs.push_back(DecodeSlot(source, field.bytes));
        break;
      case Tag(OpProto::kTypeFieldNumber, wire::kBytes):
        type = field.bytes;
        break;
      case Tag(OpProto::kAttrsFieldNumber, wire::kBytes):
        attrs.push_back(DecodeAttr(field.bytes, source, missing));
        break;
      case Tag(OpProto::kIsTargetFieldNumber, wire::kVarint):
        is_target = field.Bool();
        break;
      default:
        unknown.append(field.whole);
    }
  }
  if (!type)
    FailAt(source, message,
           fmt::format("op {} of block {} has no type", block.NumOps(), block.idx()));
  OpDesc& op =
      block.AppendOp(std::string(*type), std::move(inputs), std::move(outputs), std::move(attrs));
  FileFields::IsTarget(op) = is_target;
  if (!unknown.empty()) FileFields::SetUnknown(op, std::move(unknown));
}

// The variables with a dim below -1.
struct OddDims {
  std::string first;
  size_t count = 0;
};

void DecodeVarInto(const Source& source, std::string_view message, BlockDesc& block, OddDims* odd) {
  std::string name(DecodeVarName(message, source));
  if (block.FindVar(name))
    FailAt(source, message,
           fmt::format("block {} declares the var {} twice", block.idx(), Quote(name)));
  if (!DecodeVar(message, source, block.Var(name))) return;
  if (odd->count++ == 0) odd->first = name;
}

void DecodeBlockFields(const Source& source, std::string_view message, MissingValue missing,
                       BlockDesc& block, OddDims* odd) {
  std::string unknown;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    switch (field.tag) {
      case Tag(BlockProto::kIdxFieldNumber, wire::kVarint):
      case Tag(BlockProto::kParentIdxFieldNumber, wire::kVarint):
        break;
      case Tag(BlockProto::kVarsFieldNumber, wire::kBytes):
        DecodeVarInto(source, field.bytes, block, odd);
        break;
      case Tag(BlockProto::kOpsFieldNumber, wire::kBytes):
        DecodeOp(source, field.bytes, missing, block);
        break;
      case Tag(BlockProto::kForwardBlockIdxFieldNumber, wire::kVarint):
        FileFields::ForwardBlock(block) = field.Int32();
        break;
      default:
        unknown.append(field.whole);
    }
  }
  FileFields::SetUnknown(block, std::move(unknown));
}

void DecodeBlock(const Source& source, std::string_view message, MissingValue missing,
                 ProgramDesc& program, OddDims* odd) {
  int position = program.NumBlocks();
  std::optional<int32_t> idx, parent;
  size_t vars = 0, ops = 0;
  Field field;
  for (Reader in(message, source); in.Next(&field);) {
    if (field.tag == Tag(BlockProto::kIdxFieldNumber, wire::kVarint)) idx = field.Int32();
    if (field.tag == Tag(BlockProto::kParentIdxFieldNumber, wire::kVarint)) parent = field.Int32();
    vars += field.tag == Tag(BlockProto::kVarsFieldNumber, wire::kBytes);
    ops += field.tag == Tag(BlockProto::kOpsFieldNumber, wire::kBytes);
  }
  if (!idx || !parent)
    FailAt(source, message,
           fmt::format("block {} has no {}", position, idx ? "parent_idx" : "idx"));
  if (*idx != position)
    FailAt(source, message, fmt::format("block {} says that its index is {}", position, *idx));
  BlockDesc& block = program.AppendBlock(*parent);
  block.Reserve(vars, ops);
  DecodeBlockFields(source, message, missing, block, odd);
}

// Reads fields and compares each with the bytes that would be written for it. If the two differ,
// the field is kept as unknown bytes.
ProgramDesc Decode(const Source& source, std::string_view bytes, MissingValue missing) {
  ProgramDesc program;
  FileFields::ClearBlocks(program);
  std::string unknown;
  Field field, version, legacy_version;
  std::optional<OpVersions> versions;
  OddDims odd;
  for (Reader in(bytes, source); in.Next(&field);) {
    switch (field.tag) {
      case Tag(ProgramProto::kBlocksFieldNumber, wire::kBytes):
        DecodeBlock(source, field.bytes, missing, program, &odd);
        break;
      case Tag(ProgramProto::kLegacyVersionFieldNumber, wire::kBytes):
        legacy_version = field;
        break;
      case Tag(ProgramProto::kVersionFieldNumber, wire::kBytes):
        version = field;
        break;
      case Tag(ProgramProto::kOpVersionMapFieldNumber, wire::kBytes):
        versions = program.op_versions() ? std::nullopt : DecodeOpVersions(source, field.bytes);
        if (versions)
          program.SetOpVersions(std::move(*versions));
        else
          unknown.append(field.whole);
        break;
      case Tag(proto::kRandomSeedFieldNumber, wire::kVarint):
        program.random_seed = field.value;
        break;
      default:
        unknown.append(field.whole);
    }
  }
  SetVersion(source, version, legacy_version, program, &unknown);
  FileFields::SetUnknown(program, std::move(unknown));
  if (program.NumBlocks() == 0) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("{}: contains no block, so it is not a program", source.name));
  }
  if (odd.count > 0) {
    LogMessage(MessageLevel::kInfo,
               fmt::format("{}: dims below -1 count as unknown: those of {}{}", source.name,
                           Quote(odd.first),
                           odd.count > 1 ? fmt::format(" and {} more", odd.count - 1) : ""));
  }
  program.InferParameters();
  return program;
}

void EncodeSlots(int number, const SlotList& slots, Encoder& out) {
  for (const Slot& slot : slots) {
    out.Message(number, [&] {
      out.Bytes(SlotProto::kParameterFieldNumber, slot.name);
      for (const std::string& arg : slot.args) out.Bytes(SlotProto::kArgumentsFieldNumber, arg);
    });
  }
}

void EncodeOp(const OpDesc& op, Encoder& out) {
  out.Message(BlockProto::kOpsFieldNumber, [&] {
    EncodeSlots(OpProto::kInputsFieldNumber, op.inputs(), out);
    EncodeSlots(OpProto::kOutputsFieldNumber, op.outputs(), out);
    out.Bytes(OpProto::kTypeFieldNumber, op.type());
    for (const NamedAttr& attr : op.attrs()) EncodeAttr(OpProto::kAttrsFieldNumber, attr, out);
    if (FileFields::IsTarget(op)) out.Int(OpProto::kIsTargetFieldNumber, *FileFields::IsTarget(op));
    out.Verbatim(FileFields::Unknown(op));
  });
}

void EncodeBlock(const BlockDesc& block, bool say_parameters, Encoder& out) {
  out.Message(ProgramProto::kBlocksFieldNumber, [&] {
    out.Int(BlockProto::kIdxFieldNumber, block.idx());
    out.Int(BlockProto::kParentIdxFieldNumber, block.parent_idx());
    for (size_t i = 0; i < block.NumVars(); ++i)
      EncodeVar(BlockProto::kVarsFieldNumber, block.var(i), say_parameters, out);
    for (size_t i = 0; i < block.NumOps(); ++i) EncodeOp(block.op(i), out);
    if (FileFields::ForwardBlock(block))
      out.Int(BlockProto::kForwardBlockIdxFieldNumber, *FileFields::ForwardBlock(block));
    out.Verbatim(FileFields::Unknown(block));
  });
}

}  // namespace

ProgramDesc internal::DecodeProgram(std::string_view bytes, const std::string& source,
                                    MissingValue missing) {
  if (bytes.size() > kMaxProgramBytes) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{}: a program of {} exceeds the limit of {}", source,
                            HumanBytes(bytes.size()), HumanBytes(kMaxProgramBytes)));
  }
  return Decode({source, bytes.data()}, bytes, missing);
}

ProgramDesc ParseProgram(std::string_view bytes, const std::string& source) {
  const TraceSpan span("load", "parse program");
  return DecodeProgram(bytes, source, MissingValue::kKeepRaw);
}

std::string SerializeProgram(const ProgramDesc& program) {
  std::string bytes;
  Encoder out(&bytes);
  const bool say_parameters = FileFields::MustSayParameters(program);
  for (int b = 0; b < program.NumBlocks(); ++b)
    EncodeBlock(program.Block(b), say_parameters && b == 0, out);
  if (program.version) {
    int number = program.version_in_legacy_field ? ProgramProto::kLegacyVersionFieldNumber
                                                 : ProgramProto::kVersionFieldNumber;
    out.Message(number, [&] { out.Int(proto::Version::kVersionFieldNumber, *program.version); });
  }
  if (program.op_versions()) {
    out.Message(ProgramProto::kOpVersionMapFieldNumber,
                [&] { EncodeOpVersions(*program.op_versions(), out); });
  }
  out.Verbatim(FileFields::Unknown(program));
  if (program.random_seed != 0) out.Varint(proto::kRandomSeedFieldNumber, program.random_seed);
  return bytes;
}

}  // namespace coracle
