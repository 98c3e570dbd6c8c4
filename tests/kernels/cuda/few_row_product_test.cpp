#include "zeepo/kernels/few_row_product.h"

#include "tests/kernels/cuda/cuda_checks.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/kernels/norm.h"

namespace zeepo {
namespace {

struct Size {
  std::int64_t m, n, k;
};

// What a product has around it.
struct With {
  bool norm, bias, swiglu, sum;
};

std::string text_of(DType dtype, const Size& size, const With& with, CodedType coded = CodedType::same) {
  return fmt::format("{} {}{}{}{}{}", name_of_case(dtype, size.m, size.n, size.k), name_of(coded),
                     with.norm ? " norm" : "", with.bias ? " bias" : "", with.swiglu ? " swiglu" : "",
                     with.sum ? " sum" : "");
}

// The operands of one product on both machines; the CPU's are computed by single operations.
class Product {
 public:
  Product(DType dtype, const Size& size, const With& with, CodedType coded)
      : size_(size),
        with_(with),
        coded_(coded),
        x_(Twin::random(dtype, {size.m, size.k}, 1)),
        weight_(Twin::random(dtype, {rows(), size.k}, 2, 0.1f)),
        bias_(Twin::random(dtype, {rows()}, 3)),
        norm_(Twin::random(dtype, {size.k}, 4)),
        sum_(Twin::random(dtype, {size.m, size.n}, 5)),
        y_(dtype, {size.m, size.n}) {
    if (coded == CodedType::same) return;
    std::vector<float> values(static_cast<std::size_t>(rows() * size.k));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = weight_.cpu()[static_cast<std::int64_t>(i)];
    codes_.resize(coded_bytes(coded, rows() * size.k));
    encode_weights(threads_.stream, coded, values, codes_.data());
    expand_weights(threads_.stream, coded, codes_.data(), weight_.on(threads_.stream));
    codes_there_ = device_memory(gpu(), "device", codes_.size());
    copy_to_device(gpu(), codes_.data(), codes_there_.data(), codes_.size());
    gpu().synchronize();
  }

  FewRowProduct op() const {
    FewRowProduct op{.x = x_.view(), .weight = weight_.view(), .y = y_.view()};
    if (coded_ != CodedType::same) op.weight = {}, op.codes = codes_there_.data(), op.coded = coded_;
    if (with_.bias) op.bias = bias_.view();
    if (with_.norm) op.norm = norm_.view(), op.eps = kEps;
    op.swiglu = with_.swiglu;
    if (with_.sum) op.sum = sum_.view();
    return op;
  }
  const Twin& y() const { return y_; }
  Twin& x() { return x_; }

  void on_cpu() {
    auto& s = threads_.stream;
    const DType dtype = x_.cpu().view().dtype;
    TypedValues normalised(dtype, {size_.m, size_.k}), product(dtype, {size_.m, rows()});
    if (with_.norm) rms_norm(s, {x_.on(s), {}, norm_.on(s), kEps, {}, normalised.view(), {}});
    matmul(s, with_.norm ? normalised.view() : x_.on(s), weight_.on(s), product.view(),
           {.b = Transpose::yes, .bias = with_.bias ? bias_.on(s) : View{}});
    const View y = y_.on(s);
    if (with_.swiglu)
      swiglu(s, product.view(), y);
    else
      copy(s, product.view(), y);
    if (with_.sum) add(s, sum_.on(s), y, y);
  }

 private:
  static constexpr float kEps = 1e-6f;
  std::int64_t rows() const { return with_.swiglu ? 2 * size_.n : size_.n; }

  Threads threads_{2};
  Size size_;
  With with_;
  CodedType coded_;
  Twin x_, weight_, bias_, norm_, sum_, y_;
  std::vector<std::byte> codes_;
  MemoryRange codes_there_;
};

void expect_as_on_the_cpu(DType dtype, const Size& size, const With& with, CodedType coded = CodedType::same) {
  Product product(dtype, size, with, coded);
  const std::string what = text_of(dtype, size, with, coded);
  ASSERT_TRUE(takes(gpu(), product.op())) << what;
  product.on_cpu();
  multiply(gpu(), product.op());
  // Roundings to the type on the way, of the product and of its gate, may fall on the other side of a tie.
  product.y().expect_near(4 * rounding_of(dtype), 1, what);
}

constexpr With kWiths[] = {{false, false, false, false}, {true, true, false, false},  {true, false, true, false},
                           {false, true, true, false},   {false, false, false, true}, {true, true, false, true}};

TEST(CudaFewRowProduct, IsNearTheCpusSingleOperations) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Size& size : {Size{1, 1, 8},
                             {1, 16, 128},
                             {1, 37, 200},
                             {3, 64, 1024},
                             {8, 129, 136},
                             {7, 40, 2056},
                             {8, 250, 512},
                             {1, 4300, 256},
                             {5, 4301, 136},
                             {8, 4290, 128}})
      for (const With& with : kWiths) expect_as_on_the_cpu(dtype, size, with);
}

TEST(CudaFewRowProduct, OfCodesIsThatOfTheirValues) {
  for (const CodedType coded : {CodedType::int8, CodedType::int4})
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const Size& size : {Size{1, 16, 128}, {1, 37, 256}, {7, 65, 2048}, {8, 33, 384}, {2, 4301, 128}})
        for (const With& with : kWiths) expect_as_on_the_cpu(dtype, size, with, coded);
}

TEST(CudaFewRowProduct, ARowIsTheSameWhateverIsBesideIt) {
  for (const CodedType coded : {CodedType::same, CodedType::int4}) {
    const With with{true, true, true, false};
    const Size size{8, 100, 1024};
    Product all(DType::bf16, size, with, coded);
    multiply(gpu(), all.op());
    const TypedValues together = all.y().back();
    for (const std::int64_t rows : {1, 3, 7})
      for (const std::int64_t first : {std::int64_t{0}, 8 - rows}) {
        const Twin part(DType::bf16, {rows, size.n});
        FewRowProduct op = all.op();
        op.x = {all.x().view().as<std::uint16_t>() + first * size.k, DType::bf16, {rows, size.k}};
        op.y = part.view();
        multiply(gpu(), op);
        const TypedValues alone = part.back();
        for (std::int64_t i = 0; i < alone.elements(); ++i)
          ASSERT_EQ(alone[i], together[first * size.n + i]) << rows << " rows from " << first << ", element " << i;
      }
  }
}

// A chain in which each kernel starts before the one ahead of it has ended gives what one after another gives.
TEST(CudaFewRowProduct, StartsEarlyWithTheSameBits) {
  constexpr std::int64_t kWidth = 1024, kLinks = 40;
  std::vector<Twin> weights, results;
  for (std::int64_t i = 0; i < kLinks; ++i) {
    weights.push_back(Twin::random(DType::bf16, {kWidth, kWidth}, static_cast<std::uint64_t>(10 + i), 0.03f));
    results.emplace_back(DType::bf16, Shape{1, kWidth});
  }
  const Twin x = Twin::random(DType::bf16, {1, kWidth}, 1), norm = Twin::random(DType::bf16, {kWidth}, 2);
  const auto chain = [&](bool early) {
    gpu().set_weights_stay(early);
    for (std::size_t i = 0; i < weights.size(); ++i)
      multiply(gpu(), {.x = i == 0 ? x.view() : results[i - 1].view(),
                       .weight = weights[i].view(),
                       .norm = norm.view(),
                       .eps = 1e-6f,
                       .sum = i == 0 ? x.view() : results[i - 1].view(),
                       .y = results[i].view()});
    gpu().set_weights_stay(false);
    return results.back().back();
  };
  const TypedValues late = chain(false);
  for (int run = 0; run < 5; ++run) EXPECT_TRUE(chain(true).bytes() == late.bytes());
}

TEST(CudaFewRowProduct, LeavesOtherProductsAlone) {
  const auto taken = [](DType dtype, const Size& size, CodedType coded = CodedType::same) {
    return takes(gpu(), Product(dtype, size, {false, false, false, false}, coded).op());
  };
  EXPECT_FALSE(taken(DType::f32, {1, 16, 128}));
  EXPECT_FALSE(taken(DType::bf16, {9, 16, 128}));
  EXPECT_FALSE(taken(DType::bf16, {1, 16, 132}));
  EXPECT_FALSE(taken(DType::bf16, {1, 16, 136}, CodedType::int8));
  gpu().set_batch_invariant(BatchInvariant::yes);
  EXPECT_FALSE(taken(DType::bf16, {1, 16, 128}));
  gpu().set_batch_invariant(BatchInvariant::no);
}

}  // namespace
}  // namespace zeepo
