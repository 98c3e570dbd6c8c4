// outside [fail]: trains a model of its own to tell points inside a circle from points outside of it, with the
// optimizer's state in host memory, alone or on the ranks of mpirun. With "fail" the last rank throws.
#include <zeepo/zeepo.h>

#include <cstring>

namespace {

// x: (N, 2)   y: (N, 2), a logit for outside and for inside
class Circle : public zeepo::Module {
 public:
  zeepo::Tensor forward(const zeepo::Tensor& x) override { return head_(zeepo::gelu(hidden_(zeepo::gelu(in_(x))))); }

 private:
  zeepo::Module& in_ = child<zeepo::Linear>("in", 2, 32);
  zeepo::Module& hidden_ = child<zeepo::Linear>("hidden", 32, 32);
  zeepo::Module& head_ = child<zeepo::Linear>("head", 32, 2);
};

constexpr std::int64_t kRows = 64, kSteps = 60;

// This rank's rows of a step.
float train_step(zeepo::ModelEngine& engine, Circle& model, std::int64_t step, int rank, int ranks) {
  std::vector<float> x(kRows * 2);
  std::vector<std::int32_t> y;
  zeepo::fill_uniform(zeepo::RngKey{3}, static_cast<std::uint64_t>((step * ranks + rank) * kRows * 2), x);
  for (std::size_t i = 0; i < x.size(); i += 2) {
    x[i] = 2 * x[i] - 1;
    x[i + 1] = 2 * x[i + 1] - 1;
    y.push_back(x[i] * x[i] + x[i + 1] * x[i + 1] < 0.6f);
  }
  engine.micro_step([&] {
    return zeepo::cross_entropy(model(zeepo::Tensor::from<float>(x, {kRows, 2})),
                                zeepo::Tensor::from<std::int32_t>(y, {kRows}));
  });
  return engine.step(0.02).loss;
}

void train(zeepo::Runtime& runtime, bool fail) {
  Circle model;
  auto engine = zeepo::attach(
      model, {.stage = 2, .placement = {.params = {}, .optimizer = zeepo::Shares::all_in(zeepo::Place::host)}});
  engine->load(zeepo::random_weights(1));
  float first = 0, loss = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    if (fail && step == 5 && runtime.rank() == runtime.size() - 1) throw zeepo::Error("the points end here");
    loss = train_step(*engine, model, step, runtime.rank(), runtime.size());
    if (step == 0) first = loss;
  }
  if (runtime.rank() == 0) fmt::print("loss {:.3f} -> {:.3f} on {} ranks\n", first, loss, runtime.size());
  if (loss > first / 2) throw zeepo::Error("the loss fell from {} to {} only", first, loss);
}

}  // namespace

int main(int argc, char** argv) {
  const bool fail = argc > 1 && std::strcmp(argv[1], "fail") == 0;
  return zeepo::run_job(
      {.threads = 1, .device_bytes = 64 << 20, .host_bytes = 64 << 20, .report = zeepo::ReportAs::json},
      [&](zeepo::Runtime& runtime) { train(runtime, fail); });
}
