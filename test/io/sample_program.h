#pragma once
// A small program that has one of everything that the format knows.

#include <coracle/framework/io/proto.h>

#include <string>

namespace coracle::proto {

inline OpDesc::Attr& AddAttr(OpDesc& op, const std::string& name, AttrType type) {
  auto* attr = op.add_attrs();
  attr->set_name(name);
  attr->set_type(type);
  return *attr;
}

inline void AddScalar(Scalar* scalar) {
  scalar->set_type(Scalar::COMPLEX128);
  scalar->mutable_c()->set_r(1.5);
  scalar->mutable_c()->set_i(-2);
}

inline void AddEveryAttr(OpDesc& op) {
  AddAttr(op, "int", INT).set_i(-7);
  AddAttr(op, "float", FLOAT).set_f(0.1f);
  AddAttr(op, "string", STRING).set_s(std::string("a\0b\xff\n", 5));
  auto& ints = AddAttr(op, "ints", INTS);
  ints.add_ints(-1);
  ints.add_ints(300);
  auto& floats = AddAttr(op, "floats", FLOATS);
  floats.add_floats(1);
  floats.add_floats(-2.5);
  auto& strings = AddAttr(op, "strings", STRINGS);
  strings.add_strings("");
  strings.add_strings("two");
  AddAttr(op, "boolean", BOOLEAN).set_b(true);
  auto& bools = AddAttr(op, "booleans", BOOLEANS);
  bools.add_bools(true);
  bools.add_bools(false);
  AddAttr(op, "block", BLOCK).set_block_idx(1);
  AddAttr(op, "long", LONG).set_l(int64_t{1} << 40);
  auto& blocks = AddAttr(op, "blocks", BLOCKS);
  blocks.add_blocks_idx(1);
  blocks.add_blocks_idx(0);
  AddAttr(op, "longs", LONGS).add_longs(-(int64_t{1} << 50));
  AddAttr(op, "float64s", FLOAT64S).add_float64s(1e300);
  AddAttr(op, "var", VAR).set_var_name("x");
  AddAttr(op, "vars", VARS).add_vars_name("x");
  AddAttr(op, "float64", FLOAT64).set_float64(0.1);
  AddScalar(AddAttr(op, "scalar", SCALAR).mutable_scalar());
  auto& scalars = AddAttr(op, "scalars", SCALARS);
  AddScalar(scalars.add_scalars());
  scalars.add_scalars()->set_type(Scalar::LONG);
  scalars.mutable_scalars(1)->set_i(-3);
  AddAttr(op, "empty", LONGS);
}

inline VarDesc& AddVar(BlockDesc& block, const std::string& name, VarType::Type type) {
  auto* var = block.add_vars();
  var->set_name(name);
  var->mutable_type()->set_type(type);
  return *var;
}

inline void SetTensorDesc(VarType::TensorDesc* tensor, VarType::Type dtype) {
  tensor->set_data_type(dtype);
  tensor->add_dims(-1);
  tensor->add_dims(1000);
}

inline void AddEveryVar(BlockDesc& block) {
  auto& x = AddVar(block, "x", VarType::LOD_TENSOR);
  SetTensorDesc(x.mutable_type()->mutable_lod_tensor()->mutable_tensor(), VarType::FP32);
  x.mutable_type()->mutable_lod_tensor()->set_lod_level(0);
  x.set_persistable(false);
  auto& w = AddVar(block, "w", VarType::LOD_TENSOR);
  SetTensorDesc(w.mutable_type()->mutable_lod_tensor()->mutable_tensor(), VarType::BF16);
  w.mutable_type()->mutable_lod_tensor()->set_lod_level(2);
  w.set_persistable(true);
  w.set_need_check_feed(false);
  w.set_is_parameter(true);
  w.set_stop_gradient(true);
  auto* attr = w.add_attrs();
  attr->set_name("dims_mapping");
  attr->set_type(INTS);
  attr->add_ints(4);
  auto* training = w.MutableExtension(proto::training);
  training->set_trainable(false);
  training->set_learning_rate(0.25);
  training->mutable_initializer()->set_kind("uniform");
  auto* low = training->mutable_initializer()->add_attrs();
  low->set_name("low");
  low->set_type(FLOAT);
  low->set_f(-1);
  training->mutable_error_clip()->set_kind("by_norm");
  auto* norm = training->mutable_error_clip()->add_attrs();
  norm->set_name("max_norm");
  norm->set_type(FLOAT64);
  norm->set_float64(3);
  training->set_creation_site("net.pbtxt:3:4");
  auto& plain = AddVar(block, "plain", VarType::LOD_TENSOR);  // no lod_level
  SetTensorDesc(plain.mutable_type()->mutable_lod_tensor()->mutable_tensor(), VarType::INT64);
  auto& rows = AddVar(block, "rows", VarType::SELECTED_ROWS);
  SetTensorDesc(rows.mutable_type()->mutable_selected_rows(), VarType::FP64);
  auto& array = AddVar(block, "array", VarType::LOD_TENSOR_ARRAY);
  SetTensorDesc(array.mutable_type()->mutable_tensor_array()->mutable_tensor(), VarType::INT32);
  auto& reader = AddVar(block, "reader", VarType::READER);
  SetTensorDesc(reader.mutable_type()->mutable_reader()->add_lod_tensor()->mutable_tensor(),
                VarType::UINT8);
  AddVar(block, "tuple", VarType::TUPLE)
      .mutable_type()
      ->mutable_tuple()
      ->add_element_type(VarType::INT32);
  AddVar(block, "scopes", VarType::STEP_SCOPES);
  AddVar(block, "feed", VarType::FEED_MINIBATCH).set_persistable(true);
  AddVar(block, "bare", VarType::LOD_TENSOR);  // says no tensor
  auto& coo = AddVar(block, "coo", VarType::SPARSE_COO);
  SetTensorDesc(coo.mutable_type()->mutable_sparse_coo(), VarType::FP32);
  auto& odd = AddVar(block, "odd", VarType::RAW);  // a description that its type does not use
  SetTensorDesc(odd.mutable_type()->mutable_lod_tensor()->mutable_tensor(), VarType::COMPLEX64);
}

inline ProgramDesc SampleMessage() {
  ProgramDesc program;
  auto& root = *program.add_blocks();
  root.set_idx(0);
  root.set_parent_idx(-1);
  AddEveryVar(root);
  auto& op = *root.add_ops();
  op.set_type("relu");
  auto* in = op.add_inputs();
  in->set_parameter("X");
  in->add_arguments("x");
  op.add_inputs()->set_parameter("Bias");
  auto* out = op.add_outputs();
  out->set_parameter("Out");
  out->add_arguments("plain");
  out->add_arguments("@EMPTY@");
  op.set_is_target(false);
  AddEveryAttr(op);
  auto& inner = *program.add_blocks();
  inner.set_idx(1);
  inner.set_parent_idx(0);
  inner.set_forward_block_idx(-1);
  inner.add_ops()->set_type("while");
  program.mutable_version()->set_version(2006000);
  auto* pair = program.mutable_op_version_map()->add_pair();
  pair->set_op_name("clip");
  pair->mutable_op_version()->set_version(1);
  program.SetExtension(random_seed, 90210u);
  return program;
}

}  // namespace coracle::proto
