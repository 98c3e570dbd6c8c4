#include "zeepo/kernels/cuda/attention_cudnn.h"

#include <cudnn_frontend.h>

#include <array>
#include <bit>
#include <map>
#include <memory>
#include <unordered_map>

#include "zeepo/base/error.h"

namespace zeepo::cuda {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;

// Names of the graph's tensors, so that a run is a list of addresses.
enum class Operand : std::int64_t { q = 1, k, v, out, log_sums };

// A graph for one shape, built and ready to run; without a graph where cuDNN has none for it.
struct Plan {
  std::shared_ptr<Graph> graph;
  std::int64_t workspace_bytes = 0;
};

// A handle of cuDNN belongs to one thread, and so do the plans made with it.
class Plans {
 public:
  static Plans& of_thread() {
    thread_local Plans plans;
    return plans;
  }

  // The GPU's handle, set to the stream.
  cudnnHandle_t handle(CudaStream& stream) {
    auto& owner = handles_[stream.device()];
    if (!owner) {
      cudnnHandle_t made = nullptr;
      check(cudnnCreate(&made), "cudnnCreate");
      owner.reset(made);
    }
    check(cudnnSetStream(owner.get(), stream.handle()), "cudnnSetStream");
    return owner.get();
  }

  using Key = std::array<std::int64_t, 17>;
  // The plan of that key, built from make() when it is asked for first.
  template <class Make>
  const Plan& get(CudaStream& stream, const Key& key, Make&& make) {
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    Plan plan{make(), 0};
    const bool built = plan.graph->build(handle(stream), {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_good() &&
                       plan.graph->get_workspace_size(plan.workspace_bytes).is_good();
    if (!built) plan.graph.reset();
    return plans_.emplace(key, std::move(plan)).first->second;
  }

 private:
  static void check(cudnnStatus_t status, const char* call) {
    if (status != CUDNN_STATUS_SUCCESS) throw Error("{}: {}", call, cudnnGetErrorString(status));
  }
  std::map<int, std::unique_ptr<cudnnHandle_t, Destroy<cudnnHandle_t, cudnnDestroy>>> handles_;  // by GPU
  std::map<Key, Plan> plans_;
};

// Wide loads need rows that start at multiples of 16 bytes.
bool takes(const ConstHeads& x) {
  return (x.dtype == DType::bf16 || x.dtype == DType::f16) && x.head_dim % 8 == 0 && x.head_dim <= 256 &&
         x.row_stride % 8 == 0 && x.batch_stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

// Heads as cuDNN counts them: (batch, heads, rows, head_dim).
void describe(fe::graph::Tensor_attributes& tensor, Operand name, const ConstHeads& x) {
  tensor.set_uid(static_cast<std::int64_t>(name))
      .set_dim({x.batch, x.heads, x.rows, x.head_dim})
      .set_stride({x.batch_stride, x.head_dim, x.row_stride, 1});
}
std::shared_ptr<fe::graph::Tensor_attributes> input(Graph& graph, Operand name, const ConstHeads& x) {
  fe::graph::Tensor_attributes tensor;
  describe(tensor, name, x);
  return graph.tensor(tensor);
}

std::shared_ptr<Graph> make_graph(const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const ConstHeads& out,
                                  const AttentionOptions& options) {
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(q.dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  auto attributes = fe::graph::SDPA_attributes()
                        .set_generate_stats(true)
                        .set_attn_scale(options.scale)
                        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                        .set_diagonal_band_right_bound(0);
  if (options.window > 0 && options.window < k.rows)
    attributes.set_diagonal_band_left_bound(static_cast<int>(options.window));
  const auto [y, sums] =
      graph->sdpa(input(*graph, Operand::q, q), input(*graph, Operand::k, k), input(*graph, Operand::v, v), attributes);
  describe(*y, Operand::out, out);
  y->set_output(true);
  sums->set_uid(static_cast<std::int64_t>(Operand::log_sums))
      .set_dim({q.batch, q.heads, q.rows, 1})
      .set_stride({q.heads * q.rows, q.rows, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT)
      .set_output(true);
  return graph;
}

// Everything that a plan depends on.
Plans::Key key_of(CudaStream& stream, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                  const ConstHeads& out, const AttentionOptions& options) {
  return {stream.device(),
          static_cast<std::int64_t>(q.dtype),
          q.batch,
          q.rows,
          q.heads,
          k.heads,
          q.head_dim,
          options.window,
          static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(options.scale)),
          q.batch_stride,
          q.row_stride,
          k.batch_stride,
          k.row_stride,
          v.batch_stride,
          v.row_stride,
          out.batch_stride,
          out.row_stride};
}

}  // namespace

bool attention_cudnn(CudaStream& stream, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                     const Heads& out, View log_sums, const AttentionOptions& options) {
  if (options.dropout > 0 || q.rows != k.rows || q.rows == 1 || !log_sums) return false;
  for (const ConstHeads& x : {q, k, v, ConstHeads(out)})
    if (!takes(x)) return false;
  auto& plans = Plans::of_thread();
  const Plan& plan =
      plans.get(stream, key_of(stream, q, k, v, out, options), [&] { return make_graph(q, k, v, out, options); });
  if (!plan.graph || static_cast<std::size_t>(plan.workspace_bytes) > CudaStream::kWorkspaceBytes) return false;
  std::unordered_map<std::int64_t, void*> addresses;
  const auto set = [&](Operand name, const void* data) {
    addresses[static_cast<std::int64_t>(name)] = const_cast<void*>(data);
  };
  set(Operand::q, q.data);
  set(Operand::k, k.data);
  set(Operand::v, v.data);
  set(Operand::out, out.data);
  set(Operand::log_sums, log_sums.data);
  auto done = plan.graph->execute(plans.handle(stream), addresses,
                                  stream.workspace(static_cast<std::size_t>(plan.workspace_bytes)));
  if (!done.is_good()) throw Error("cuDNN attention: {}", done.get_message());
  return true;
}

}  // namespace zeepo::cuda
