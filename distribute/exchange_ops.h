#pragma once
// What the rewritings of distribute/ share: the ops that they insert, and what they ask of a
// program. Internal to distribute/.

#include <coracle/distribute/op_inserter.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

bool HasRole(const OpDesc& op, int role);

OpDesc MakeOp(const std::string& type, SlotList inputs, SlotList outputs, AttrList attrs, int role);
// An op of the ring that has these variables as X and Out.
OpDesc Collective(const std::string& type, const std::vector<std::string>& names, int ring_id,
                  int role);
// The sum over all ranks, in place, in one exchange.
OpDesc SumOf(const std::vector<std::string>& names, int ring_id, int role);

// The op's outputs, slot after slot, as copies that compute it again name them.
std::vector<std::string> OutputNames(const OpDesc& op);

// The variable that a block has or sees. Throws kNotFound: attrs may name what there is not.
const VarDesc& VarOf(const BlockDesc& block, const std::string& name);
// The bytes of a dense variable; 0 while its shape is not known.
int64_t BytesOf(const VarDesc& var);
// The size of buckets in bytes. Throws kInvalidArgument for one that is negative or infinite.
int64_t BucketLimit(double bucket_mb);
void RequireRanksToBe(int nranks);  // at least 1
// Throws kInvalidArgument for a program that sums over ranks already.
void RequireNoExchanges(const ProgramDesc& main);

// The gradients of parameters (op_role_var of backward ops), in the order in which they are named.
// Throws kInvalidArgument if there is none.
std::vector<std::string> ParameterGradients(const ProgramDesc& main);
// The ops that begin the gradient of a loss. Throws kInvalidArgument if there is none.
std::vector<const OpDesc*> LossGradients(const ProgramDesc& main);
// The gradients that the op makes of rows by themselves, whatever that of the loss is: the
// statistics of data_norm, and the counts of cvm.
std::vector<std::string> GradientsOfRows(const OpDesc& op);
// Whether those are means over rows, which do not add up over ranks.
bool AreMeansOfRows(const OpDesc& op);
// Declares the variable of the rank's share of the rows in the root block, unless it is there.
// Throws kInvalidArgument for one of another type, and for one that is not fed.
void DeclareShare(BlockDesc& root, const std::string& name, DType dtype);

// Behind the ops of the startup program that fill them: what it gives persistable variables on rank
// 0 goes to all ranks, trained or not. Left out is what each rank fills with the same constant and
// is no parameter (states of the optimizer). Returns the names.
std::vector<std::string> BroadcastParameters(const ProgramDesc& main, const ProgramDesc& startup,
                                             int ring_id, OpInserter* inserter);

// The ops that run the block, and those around it, name what it uses now.
void NameUsesOf(BlockDesc& block);

// Inserts the ops and infers what they make.
void Insert(OpInserter& inserter, ProgramDesc& program, const OpRegistry& ops);

}  // namespace coracle
