#pragma once
// What a file says about a program that no public member shows: whether a field is present, and the
// fields of a newer format.

#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// The parts of a VarDesc message that a VarDesc does not represent, so that writing gives the
// same bytes.
struct coracle::VarDesc::Wire {
  // A VarType message with more than the fields of VarMeta; "" for the plain form.
  std::string type_bytes;
  std::string unknown_fields;  // of VarDesc, VarDesc.attrs included
  bool lod_level_present = false;
};

namespace coracle::inline internal {

// Reads and writes these parts. A function that returns a reference to change notes one change of
// its object, so the caller assigns to the field at most once, and calls again for the next change.
struct FileFields {
  // Fields of a newer format, as they were read.
  template <class Desc>
  static const std::string& Unknown(const Desc& desc) {
    return desc.unknown_fields_;
  }
  static void SetUnknown(ProgramDesc& program, std::string bytes) {
    program.SetUnknownFields(std::move(bytes));
  }
  static void SetUnknown(BlockDesc& block, std::string bytes) {
    block.SetUnknownFields(std::move(bytes));
  }
  static void SetUnknown(OpDesc& op, std::string bytes) {
    op.Save();
    op.unknown_fields_ = std::move(bytes);
  }

  static void ClearBlocks(ProgramDesc& program) { program.ClearBlocks(); }
  // Whether InferParameters would find other parameters than the present ones after the program is
  // read from a file, so that the file must say which persistable variables are parameters.
  static bool MustSayParameters(const ProgramDesc& program) { return program.MustSayParameters(); }

  static const std::optional<int32_t>& ForwardBlock(const BlockDesc& block) {
    return block.forward_block_idx_;
  }
  static std::optional<int32_t>& ForwardBlock(BlockDesc& block) {
    block.NoteChange();
    return block.forward_block_idx_;
  }

  static const std::optional<bool>& IsTarget(const OpDesc& op) { return op.is_target_; }
  static std::optional<bool>& IsTarget(OpDesc& op) {
    op.Save();
    return op.is_target_;
  }

  using Flag = std::optional<bool>;
  static const Flag& Persistable(const VarDesc& var) { return var.persistable_; }
  static Flag& Persistable(VarDesc& var) { return Changed(var).persistable_; }
  static const Flag& NeedCheckFeed(const VarDesc& var) { return var.need_check_feed_; }
  static Flag& NeedCheckFeed(VarDesc& var) { return Changed(var).need_check_feed_; }
  static const Flag& IsParameter(const VarDesc& var) { return var.is_parameter_; }
  static Flag& IsParameter(VarDesc& var) { return Changed(var).is_parameter_; }
  static const Flag& StopGradient(const VarDesc& var) { return var.stop_gradient_; }
  static Flag& StopGradient(VarDesc& var) { return Changed(var).stop_gradient_; }

  using Wire = VarDesc::Wire;
  static const Wire* WireOf(const VarDesc& var) { return var.wire_.get(); }  // nullptr if plain
  static Wire& MutableWire(VarDesc& var) {
    Changed(var);
    if (!var.wire_) var.wire_ = std::make_unique<Wire>();
    return *var.wire_;
  }

 private:
  static VarDesc& Changed(VarDesc& var) {
    var.Save();
    return var;
  }
};

}  // namespace coracle::inline internal
