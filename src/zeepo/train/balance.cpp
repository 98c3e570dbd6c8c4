#include "zeepo/train/balance.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/tensor/tensor.h"
#include "zeepo/zero/agreement.h"
#include "zeepo/zero/session.h"

namespace zeepo {
namespace {

constexpr double kGrain = 20;  // parts of the fastest rank's speed
// Longer than a scheduler's or a control group's periods.
constexpr std::chrono::milliseconds kRowsWarmUp{100}, kRowsMeasured{600};
constexpr std::int64_t kRows = 256, kMostColumns = 4096;

// The three products of a layer in training, forward and backward, a second; all ranks at once, since they may share a
// machine.
double measured_rate(const RunSetup& setup, const GpuPlace& place, Communicator& communicator) {
  using Clock = std::chrono::steady_clock;
  const TrainOptions& options = setup.options;
  Session::Options tiers{.backend = options.backend,
                         .gpu = place.gpu,
                         .threads = options.threads,
                         .device_bytes = std::int64_t{256} << 20,
                         .ranks_on_node = setup.ranks.ranks_on_node};
  tiers.lower.host_bytes = std::int64_t{1} << 20;
  Session session(tiers);
  const std::int64_t in = std::min(kMostColumns, setup.config.hidden);
  const std::int64_t out = std::min(kMostColumns, setup.config.intermediate);
  const Tensor x({kRows, in}, options.dtype), y({kRows, out}, options.dtype), weight({out, in}, options.dtype);
  const Tensor dx({kRows, in}, options.dtype), dweight({out, in}, options.dtype);
  for (const Tensor* tensor : {&x, &weight}) launch([&](auto& s) { fill(s, tensor->view(), 0.01f); });
  const auto layer = [&] {
    launch([&](auto& s) {
      matmul(s, x.view(), weight.view(), y.view(), {.b = Transpose::yes});
      matmul(s, y.view(), weight.view(), dx.view());
      matmul(s, y.view(), x.view(), dweight.view(), {.a = Transpose::yes});
    });
    session.compute().synchronize();
  };
  (void)gather_texts(communicator, "");  // all start together
  const auto start = Clock::now();
  while (Clock::now() < start + kRowsWarmUp) layer();
  const auto begin = Clock::now();
  double done = 0;
  while (Clock::now() < start + kRowsWarmUp + kRowsMeasured || done == 0) {
    layer();
    ++done;
  }
  return done / std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

std::vector<std::int64_t> share_rows(std::int64_t rows, std::span<const double> speeds) {
  std::vector<std::int64_t> shares(speeds.size(), 1);
  for (std::int64_t left = rows - static_cast<std::int64_t>(speeds.size()); left > 0; --left) {
    std::size_t soonest = 0;
    const auto end_of = [&](std::size_t rank) { return static_cast<double>(shares[rank] + 1) / speeds[rank]; };
    for (std::size_t rank = 1; rank < speeds.size(); ++rank)
      if (end_of(rank) < end_of(soonest)) soonest = rank;
    ++shares[soonest];
  }
  return shares;
}

std::vector<double> relative_speeds(std::span<const double> rates) {
  const double fastest = std::ranges::max(rates);
  std::vector<double> speeds;
  for (const double rate : rates) speeds.push_back(std::max(1.0, std::round(rate / fastest * kGrain)) / kGrain);
  return speeds;
}

RunSetup balance_ranks(const RunSetup& setup, const std::vector<double>& known, const GpuPlace& place,
                       Communicator& communicator) {
  const auto& balance = setup.options.balance;
  if (!balance.wanted) return setup;
  if (!balance.speeds.empty() && balance.speeds.size() != static_cast<std::size_t>(setup.ranks.ranks))
    throw UsageError("train: --balance: {} speeds for {} ranks; give one a rank, or auto", balance.speeds.size(),
                     setup.ranks.ranks);
  if (setup.ranks.ranks == 1) return setup;
  RunSetup shared = setup;
  std::vector<double>& speeds = shared.balanced.speeds;
  speeds = balance.speeds.empty() ? known : balance.speeds;
  if (speeds.empty()) {
    const double own = measured_rate(setup, place, communicator);
    for (const std::string& rate : gather_texts(communicator, fmt::format("{}", own)))
      speeds.push_back(std::stod(rate));
    speeds = relative_speeds(speeds);
  }
  shared.balanced.rows = share_rows(setup.options.micro_batch * setup.ranks.ranks, speeds);
  return shared;
}

nlohmann::ordered_json balance_json(const RunSetup& setup) {
  if (setup.balanced.rows.empty()) return {};
  return {{"speeds", setup.balanced.speeds}, {"rows", setup.balanced.rows}};
}

std::string balance_text(const RunSetup& setup) {
  const auto& [speeds, rows] = setup.balanced;
  if (rows.empty()) return "";
  std::string text = fmt::format("rows of a micro-step by the ranks' speeds: {}; --balance {} gives the same shares",
                                 fmt::join(rows, ", "), fmt::join(speeds, ","));
  if (setup.options.micro_batch == 1) text += "; with --micro-batch 1 each rank has one row, whatever its speed";
  return text;
}

}  // namespace zeepo
