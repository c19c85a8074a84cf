#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

constexpr std::string_view kServer = "needs other processes (parameter server)";
constexpr std::string_view kShards =
    "deals out ids and rows among other processes (parameter servers)";
constexpr std::string_view kPipeline = "needs other processes (stages of a pipeline)";
constexpr std::string_view kQueue =
    "passes tensors through a queue to another part of the saving process";
constexpr std::string_view kReader =
    "reads data inside the program; take it out and feed the variables that `read` writes";
constexpr std::string_view kFiles =
    "reads data files inside the program; take it out and feed the variables that `read` writes";
constexpr std::string_view kEngine =
    "holds a part of the program in the form of another inference engine; save the program as it "
    "was before that";
constexpr std::string_view kDynamic =
    "belongs to the dynamic graph of the saving process; inference programs do not have it";
constexpr std::string_view kFunction =
    "calls a function of the saving process by its number; register an op of this type that does "
    "the same";
constexpr std::string_view kDevices =
    "runs its block on several devices; put the ops of the block in its place";
constexpr std::string_view kThread = "runs its block in another thread of the saving process";

constexpr RefusedOp kRefused[] = {
    {"checkpoint_notify", kServer},
    {"copy_cross_scope", kPipeline},
    {"create_batch_reader", kReader},
    {"create_ctr_reader", kFiles},
    {"create_custom_reader", kReader},
    {"create_double_buffer_reader", kReader},
    {"create_multi_pass_reader", kReader},
    {"create_py_reader", kReader},
    {"create_random_data_generator", kReader},
    {"create_recordio_file_reader", kFiles},
    {"create_shuffle_reader", kReader},
    {"create_threaded_reader", kReader},
    {"dequeue", kQueue},
    {"distributed_lookup_table", kServer},
    {"distributed_notify", kServer},
    {"dlnne", kEngine},
    {"enqueue", kQueue},
    {"fetch_barrier", kServer},
    {"fl_listen_and_serv", kServer},
    {"go", kThread},
    {"heter_listen_and_serv", kServer},
    {"listen_and_serv", kServer},
    {"lite_engine", kEngine},
    {"lookup_sparse_table", kServer},
    {"lookup_sparse_table_fuse_adam", kServer},
    {"lookup_sparse_table_fuse_sgd", kServer},
    {"lookup_sparse_table_grad_split", kServer},
    {"lookup_sparse_table_init", kServer},
    {"lookup_sparse_table_merge", kServer},
    {"lookup_sparse_table_read", kServer},
    {"lookup_sparse_table_write", kServer},
    {"merge_ids", kShards},
    {"open_files", kFiles},
    {"parallel_do", kDevices},
    {"partial_recv", kPipeline},
    {"partial_send", kPipeline},
    {"prefetch", kServer},
    {"pull_box_extended_sparse", kServer},
    {"pull_box_sparse", kServer},
    {"pull_gpups_sparse", kServer},
    {"pull_sparse", kServer},
    {"pull_sparse_v2", kServer},
    {"push_box_extended_sparse", kServer},
    {"push_box_sparse", kServer},
    {"push_dense", kServer},
    {"push_gpups_sparse", kServer},
    {"push_sparse", kServer},
    {"push_sparse_v2", kServer},
    {"py_func", kFunction},
    {"py_layer", kDynamic},
    {"queue_generator", kQueue},
    {"read", kReader},
    {"recv", kServer},
    {"recv_save", kServer},
    {"recv_v2", kPipeline},
    {"run_program", kDynamic},
    {"send", kServer},
    {"send_and_recv", kServer},
    {"send_barrier", kServer},
    {"send_v2", kPipeline},
    {"sparse_tensor_load", kServer},
    {"split_byref", kShards},
    {"split_ids", kShards},
    {"split_selected_rows", kShards},
    {"tensorrt_engine", kEngine},
};

constexpr bool IsBefore(const RefusedOp& a, const RefusedOp& b) { return a.type < b.type; }
static_assert(std::is_sorted(std::begin(kRefused), std::end(kRefused), IsBefore));

std::span<const std::string_view>& LeftOut() {
  static std::span<const std::string_view> types;
  return types;
}

}  // namespace

std::span<const RefusedOp> RefusedOps() { return kRefused; }

const RefusedOp* FindRefusedOp(std::string_view type) {
  const auto* found =
      std::lower_bound(std::begin(kRefused), std::end(kRefused), RefusedOp{type, ""}, IsBefore);
  return found != std::end(kRefused) && found->type == type ? found : nullptr;
}

const RefusedAttr* FindRefusedAttr(std::string_view type, std::string_view attr) {
  static constexpr RefusedAttr kRefused[] = {
      {"histogram", "density", 0},
      {"kldiv_loss", "log_target", 0},
      {"max_pool2d_with_index", "ceil_mode", 0},
      {"max_pool3d_with_index", "ceil_mode", 0},
      {"round", "decimals", 0},
      {"thresholded_relu", "value", 0},
      {"truncated_gaussian_random", "a", -2},
      {"truncated_gaussian_random", "b", 2},
  };
  for (const RefusedAttr& refused : kRefused)
    if (refused.type == type && refused.attr == attr) return &refused;
  return nullptr;
}

void SetLeftOutOps(std::span<const std::string_view> types) { LeftOut() = types; }

bool IsLeftOutOp(std::string_view type) {
  return std::find(LeftOut().begin(), LeftOut().end(), type) != LeftOut().end();
}

std::string DescribeMissingOp(std::string_view type, const std::vector<std::string>& known) {
  if (const RefusedOp* refused = FindRefusedOp(type))
    return fmt::format("op type {} is refused: {}", Quote(type), refused->reason);
  if (IsLeftOutOp(type)) {
    return fmt::format(
        "op type {} is left out of this build, which has the ops of a few programs: configure "
        "Coracle with a CORACLE_OPS_FROM that names this program, too, or without it",
        Quote(type));
  }
  return fmt::format("unknown op type {}{}", Quote(type), DidYouMean(type, known));
}

}  // namespace coracle::inline internal
