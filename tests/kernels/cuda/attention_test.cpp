#include "zeepo/kernels/attention.h"

#include "tests/kernels/cuda/cuda_checks.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/cuda/attention_paths.h"

namespace zeepo {
namespace {

using cuda::AttentionPath;
constexpr AttentionPath kPaths[] = {AttentionPath::cudnn, AttentionPath::matrix, AttentionPath::plain};
constexpr const char* kNames[] = {"cuDNN", "matrix units", "plain"};

struct Case {
  std::int64_t batch, queries, keys, heads, kv_heads, dim, window = 0;
  float dropout = 0;
  std::int64_t gap = 0;  // elements between rows; not a multiple of 8: rows that no wide load can read

  AttentionOptions options() const {
    return {.scale = 1 / std::sqrt(static_cast<float>(dim)), .window = window, .dropout = dropout, .key = {77}};
  }
  std::string str(DType dtype) const {
    return fmt::format("{} B {} Tq {} Tk {} H {}/{} D {} window {} dropout {} gap {}", name_of(dtype), batch, queries,
                       keys, heads, kv_heads, dim, window, dropout, gap);
  }
};

const Case kSquare[] = {{1, 1, 1, 1, 1, 8},
                        {2, 7, 7, 2, 2, 16},
                        {1, 70, 70, 4, 2, 32},
                        {2, 65, 65, 3, 1, 80, 20},
                        {1, 200, 200, 4, 4, 96},
                        {2, 256, 256, 4, 2, 64},
                        {1, 300, 300, 2, 1, 64, 33},
                        {2, 384, 384, 8, 2, 128},
                        {1, 333, 333, 8, 1, 128},
                        {1, 300, 300, 4, 2, 128, 100},
                        {1, 260, 260, 2, 1, 256},
                        {1, 190, 190, 2, 2, 192, 64},
                        {1, 512, 512, 2, 2, 64, 128},
                        {1, 600, 600, 2, 1, 16},
                        // Odd head sizes and rows.
                        {4, 9, 9, 4, 4, 20, 4},
                        {1, 130, 130, 2, 1, 100},
                        {1, 130, 130, 2, 1, 64, 0, 0, 3},
                        {1, 65, 65, 1, 1, 250},
                        // Dropout.
                        {2, 37, 37, 8, 8, 8, 0, 0.3f},
                        {1, 270, 270, 2, 1, 64, 0, 0.2f},
                        {1, 271, 271, 4, 2, 128, 50, 0.1f},
                        {1, 100, 100, 2, 2, 256, 0, 0.5f},
                        {1, 67, 67, 2, 2, 33, 0, 0.1f}};
const Case kCached[] = {{1, 1, 50, 2, 2, 8},         {2, 1, 1300, 4, 1, 16},       {1, 1, 1300, 4, 4, 17, 100},
                        {1, 3, 600, 4, 2, 64},       {2, 5, 9, 4, 4, 8, 3},        {1, 70, 400, 4, 2, 128},
                        {1, 100, 700, 2, 1, 64, 90}, {1, 2, 530, 4, 1, 24, 3},     {2, 1, 700, 16, 2, 128},
                        {1, 1, 4099, 8, 1, 128},     {1, 200, 333, 2, 2, 256, 70}, {1, 129, 130, 2, 1, 64, 0, 0.2f}};

// q, k and v as parts of wider rows, like a fused projection or a cache.
template <class Part>
struct Parts {
  Part q, k, v;
};
template <class Any>
auto parts(const Case& t, BasicView<Any> queries, BasicView<Any> keys) {
  Parts<BasicHeads<Any>> heads{heads_of(queries, 0, t.heads, t.dim), heads_of(keys, t.heads * t.dim, t.kv_heads, t.dim),
                               heads_of(keys, (t.heads + t.kv_heads) * t.dim, t.kv_heads, t.dim)};
  heads.q.rows = t.queries;
  return heads;
}
Shape fused(const Case& t, std::int64_t rows) { return {t.batch, rows, (t.heads + 2 * t.kv_heads) * t.dim + t.gap}; }
Shape rows_of(const Case& t) { return {t.batch, t.queries, t.heads * t.dim}; }

struct Results {
  TypedValues out, log_sums, dqkv;
};

Results on_cpu(const Case& t, DType dtype, const TypedValues& q, const TypedValues& kv, const TypedValues& dout) {
  Threads cpu(2);
  Results r{TypedValues(dtype, rows_of(t)), TypedValues(DType::f32, {t.batch, t.heads, t.queries}), kv};
  const auto in = parts(t, q.view(), kv.view());
  const auto out = heads_of(r.out.view(), 0, t.heads, t.dim);
  attention(cpu.stream, in.q, in.k, in.v, out, r.log_sums.view(), t.options());
  if (t.queries == t.keys) {
    const auto to = parts(t, r.dqkv.view(), r.dqkv.view());
    attention_backward(
        cpu.stream,
        {in.q, in.k, in.v, out, heads_of(dout.view(), 0, t.heads, t.dim), r.log_sums.view(), to.q, to.k, to.v},
        t.options());
  }
  return r;
}

double largest(const TypedValues& values) {
  double size = 0;
  for (std::int64_t i = 0; i < values.elements(); ++i) size = std::max(size, std::abs(values[i]));
  return size;
}

// Weights and their gradients are rounded to 16 bits before the matrix units multiply them: an error of the sums, not
// of each element.
void expect_close(const TypedValues& got, const TypedValues& expected, DType dtype, const std::string& what) {
  const double slack = dtype == DType::f32 ? 2e-5 : 2 * rounding_of(dtype);
  expect_near(got, expected, slack, largest(expected), what);
}

// Runs one path forward and, where there are as many queries as keys, backward (cuDNN has no way back); whether it took
// the problem.
bool check_path(AttentionPath path, const Case& t, DType dtype, const cuda::BackwardRoom& room = {}) {
  const std::string what = fmt::format("{} {}", kNames[static_cast<int>(path)], t.str(dtype));
  const bool square = t.queries == t.keys;
  const auto kv = TypedValues::random(dtype, fused(t, t.keys), 1);
  const auto q = square ? kv : TypedValues::random(dtype, fused(t, t.queries), 2);
  const auto dout = TypedValues::random(dtype, rows_of(t), 3);
  const Results expected = on_cpu(t, dtype, q, kv, dout);

  const Twin on_kv(kv), on_q(q), on_dout(dout), out(TypedValues::random(dtype, rows_of(t), 4)),
      log_sums(TypedValues::random(DType::f32, {t.batch, t.heads, t.queries}, 5));
  const auto in = parts(t, on_q.view(), on_kv.view());
  const auto to = heads_of(out.view(), 0, t.heads, t.dim);
  if (!cuda::attention_by(path, gpu(), in.q, in.k, in.v, to, log_sums.view(), t.options())) return false;
  expect_close(out.back(), expected.out, dtype, what + " out");
  expect_near(log_sums.back(), expected.log_sums, 2e-5, 1, what + " log_sums");
  if (!square || path == AttentionPath::cudnn) return true;

  // From the CPU's outputs, so that each pass is judged alone; the gaps between rows must stay as they were.
  const Twin cpu_out(expected.out), cpu_log_sums(expected.log_sums);
  TypedValues first(dtype, fused(t, t.keys));
  for (int run = 0; run < 2; ++run) {
    const Twin dqkv(kv);
    const auto gradients = parts(t, dqkv.view(), dqkv.view());
    if (!cuda::attention_backward_by(
            path, gpu(),
            {in.q, in.k, in.v, heads_of(cpu_out.view(), 0, t.heads, t.dim), heads_of(on_dout.view(), 0, t.heads, t.dim),
             cpu_log_sums.view(), gradients.q, gradients.k, gradients.v},
            t.options(), room))
      return false;
    if (run == 0) {
      first = dqkv.back();
      expect_close(first, expected.dqkv, dtype, what + " gradients");
    } else {
      expect_same_bits(dqkv.back(), first, what + " gradients again");
    }
  }
  return true;
}

bool rows_are_aligned(const Case& t) { return t.dim % 8 == 0 && t.gap % 8 == 0; }

// A test a type, which together take minutes under racecheck.
class PlainAttention : public ::testing::TestWithParam<DType> {};
TEST_P(PlainAttention, MatchesTheCpu) {
  for (const Case& t : kSquare) EXPECT_TRUE(check_path(AttentionPath::plain, t, GetParam()));
}
TEST_P(PlainAttention, MatchesTheCpuBehindACache) {
  for (const Case& t : kCached) EXPECT_TRUE(check_path(AttentionPath::plain, t, GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Cuda, PlainAttention, ::testing::ValuesIn(kFloatTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST(CudaAttention, MatrixUnitsMatchTheCpu) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Case& t : kSquare)
      EXPECT_EQ(check_path(AttentionPath::matrix, t, dtype), rows_are_aligned(t)) << t.str(dtype);
    for (const Case& t : kCached)
      EXPECT_EQ(check_path(AttentionPath::matrix, t, dtype), rows_are_aligned(t)) << t.str(dtype);
  }
}

TEST(CudaAttention, CudnnMatchesTheCpu) {
  int taken = 0;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Case& t : kSquare) {
      const bool took = check_path(AttentionPath::cudnn, t, dtype);
      taken += took;
      if (!took && t.dropout == 0 && rows_are_aligned(t)) std::printf("cuDNN leaves %s\n", t.str(dtype).c_str());
    }
  if (taken == 0) GTEST_SKIP() << "a build without cuDNN";
}

// Forward by one way and backward by another: what one keeps must be what the other reads.
TEST(CudaAttention, ChosenByItselfMatchesTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const Case& t : {kSquare[3], kSquare[8], kSquare[16], kSquare[20], kCached[2], kCached[8]}) {
      const bool square = t.queries == t.keys;
      const auto kv = TypedValues::random(dtype, fused(t, t.keys), 1);
      const auto q = square ? kv : TypedValues::random(dtype, fused(t, t.queries), 2);
      const auto dout = TypedValues::random(dtype, rows_of(t), 3);
      const Results expected = on_cpu(t, dtype, q, kv, dout);
      const Twin on_kv(kv), on_q(q), out(expected.out), log_sums(expected.log_sums), on_dout(dout), dqkv(kv);
      const auto in = parts(t, on_q.view(), on_kv.view());
      const auto to = heads_of(out.view(), 0, t.heads, t.dim);
      attention(gpu(), in.q, in.k, in.v, to, square ? log_sums.view() : View{}, t.options());
      expect_close(out.back(), expected.out, dtype, t.str(dtype));
      if (!square) continue;
      const auto gradients = parts(t, dqkv.view(), dqkv.view());
      attention_backward(gpu(),
                         {in.q, in.k, in.v, to, heads_of(on_dout.view(), 0, t.heads, t.dim), log_sums.view(),
                          gradients.q, gradients.k, gradients.v},
                         t.options());
      expect_close(dqkv.back(), expected.dqkv, dtype, t.str(dtype) + " gradients");
    }
}

// The backward pass of many heads that share keys is cut into parts.
TEST(CudaAttention, LongSequencesMatchTheCpu) {
  for (const AttentionPath path : {AttentionPath::cudnn, AttentionPath::matrix}) {
    check_path(path, {1, 1500, 1500, 16, 2, 64}, DType::bf16);
    check_path(path, {2, 1024, 1024, 4, 1, 128, 300}, DType::bf16);
  }
}

// More heads than a grid's second extent has (65,535); by the matrix units, of which each takes 64 rows of the
// workspace, also more than that has room for.
TEST(CudaAttention, ManyHeadsMatchTheCpu) {
  EXPECT_TRUE(check_path(AttentionPath::plain, {1100, 2, 2, 64, 8, 8}, DType::f32));
  check_path(AttentionPath::matrix, {3200, 2, 2, 64, 8, 8}, DType::bf16);
}

// What a batch is cut into must not show: not in dropout, and not in a bit.
TEST(CudaAttention, ABatchInPartsHasTheSameGradients) {
  const Case t{5, 70, 70, 2, 2, 32, 0, 0.2f};
  const auto qkv = Twin::random(DType::bf16, fused(t, t.keys), 1), out = Twin::random(DType::bf16, rows_of(t), 2),
             dout = Twin::random(DType::bf16, rows_of(t), 3), log_sums = Twin::random(DType::f32, {5, 2, 70}, 4);
  const auto in = parts(t, qkv.view(), qkv.view());
  const auto rows = [&](const Twin& x) { return heads_of(x.view(), 0, t.heads, t.dim); };
  const auto backward = [&](AttentionPath path, std::size_t workspace_bytes, const Twin& to) {
    const auto gradients = parts(t, to.view(), to.view());
    return cuda::attention_backward_by(
        path, gpu(), {in.q, in.k, in.v, rows(out), rows(dout), log_sums.view(), gradients.q, gradients.k, gradients.v},
        t.options(), {.workspace_bytes = workspace_bytes});
  };
  // Pairs of fp32 for 128 rows a head; fp32 for 70.
  const std::pair<AttentionPath, std::size_t> samples[] = {{AttentionPath::matrix, 2 * 128 * 8},
                                                           {AttentionPath::plain, 2 * 70 * 4}};
  for (const auto& [path, sample_bytes] : samples) {
    const Twin whole(DType::bf16, fused(t, t.keys)), cut(DType::bf16, fused(t, t.keys));
    if (!backward(path, CudaStream::kWorkspaceBytes, whole)) continue;
    backward(path, 2 * sample_bytes + 100, cut);  // two samples, two and one
    expect_same_bits(cut.back(), whole.back(), kNames[static_cast<int>(path)]);
    EXPECT_THROW(backward(path, sample_bytes - 1, cut), Error);
  }
}

// As where a block has less shared memory than on Hopper.
TEST(CudaAttention, SmallTilesMatchTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const Case& t : kSquare) {
      if (t.dim <= 128) continue;
      EXPECT_TRUE(check_path(AttentionPath::plain, t, dtype, {.shared_bytes = 99 << 10}));
    }
}

TEST(CudaAttention, RefusesWhatDoesNotFit) {
  const TypedValues host(DType::f32, {1, 4, 3 * 264});
  const Twin qkv(host), out(TypedValues(DType::f32, {1, 4, 264})), sums(TypedValues(DType::f32, {1, 1, 3}));
  const auto heads = [&](std::int64_t dim) { return heads_of(qkv.view(), 0, 1, dim); };
  const auto to = [&](std::int64_t dim) { return heads_of(out.view(), 0, 1, dim); };
  EXPECT_NO_THROW(attention(gpu(), heads(256), heads(256), heads(256), to(256), {}, {}));
  EXPECT_THROW(attention(gpu(), heads(264), heads(264), heads(264), to(264), {}, {}), Error);
  EXPECT_THROW(attention(gpu(), heads(8), heads(8), heads(8), to(8), sums.view(), {}), Error);
  EXPECT_THROW(attention(gpu(), heads(8), heads(8), heads(16), to(8), {}, {}), Error);
}

}  // namespace
}  // namespace zeepo
