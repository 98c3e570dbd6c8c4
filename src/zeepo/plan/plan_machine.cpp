#include "zeepo/plan/plan_machine.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/probe/measure.h"

namespace zeepo {
namespace {

double rate_of(const MachineRates& rates, const char* dtype) {
  const auto found = rates.matmul_flops.find(dtype);
  return found == rates.matmul_flops.end() ? 0 : found->second;
}

void limit(double& rate, double most) {
  if (most > 0) rate = rate > 0 ? std::min(rate, most) : most;
}

}  // namespace

SimulatedRates simulated_rates(const MachineRates& measured) {
  SimulatedRates rates;
  rates.products_fp32 = rate_of(measured, "fp32");
  rates.products_16bit = rate_of(measured, "bf16");
  rates.products_fp8 = 2 * rates.products_16bit;
  rates.attention = measured.attention_flops;
  rates.device_memory = measured.device_memory;
  rates.kernel_seconds = measured.kernel_seconds;
  rates.beside_host = measured.backend == Backend::cuda;
  rates.to_device = measured.link.up;
  rates.to_host = measured.link.down;
  rates.host_steps = measured.host_steps;
  if (measured.files) {
    rates.read = measured.files->read;
    rates.write = measured.files->write;
  }
  if (measured.collectives) {
    rates.within_node = rates.between_nodes =
        std::min(measured.collectives->all_gather, measured.collectives->reduce_scatter);
    rates.collective_seconds = measured.collectives->all_reduce_seconds;
  }
  return rates;
}

SimulatedRates throttled(SimulatedRates rates, const TrainOptions& options) {
  limit(rates.to_device, options.link_bytes_per_second);
  limit(rates.to_host, options.link_bytes_per_second);
  limit(rates.read, options.nvme_bytes_per_second);
  limit(rates.write, options.nvme_bytes_per_second);
  limit(rates.within_node, options.rank_bytes_per_second);
  limit(rates.between_nodes, options.rank_bytes_per_second);
  return rates;
}

PlanMachine probed_machine(Backend backend, int ranks, int threads_of_run) {
  const auto kept = kept_rates(rates_path(machine_name(), backend, ranks));
  if (!kept)
    return {ranks == 1 ? "zeepo probe, run once on this machine, lets a plan tell times"
                       : fmt::format("mpirun -n {} zeepo probe, run once on this machine, lets a plan tell times; "
                                     "--hardware describes another one",
                                     ranks),
            std::nullopt, 0};
  std::string source = "zeepo probe of " + kept->date;
  if (threads_of_run > 0 && threads_of_run != kept->threads)
    source += fmt::format(", by {} thread{} a rank where a run has {}", kept->threads, kept->threads == 1 ? "" : "s",
                          threads_of_run);
  return {std::move(source), simulated_rates(*kept), kept->link.both, true, kept->date};
}

PlanMachine described_machine(const Hardware& hardware) {
  return {hardware.name, hardware.rates, 0, hardware.nvme_bytes > 0};
}

PlaceBytes budgets_on(const PlanMachine& machine, PlaceBytes budgets) {
  if (!machine.has_files) budgets[static_cast<std::size_t>(Place::nvme)] = 0;
  return budgets;
}

PlaceBytes missing_of(const PlaceBytes& bytes, const PlaceBytes& budgets) {
  PlaceBytes missing{};
  for (std::size_t i = 0; i < kPlaces.size(); ++i) missing[i] = std::max<std::int64_t>(0, bytes[i] - budgets[i]);
  return missing;
}

SimulatedRates rates_of(const RunSetup& setup, const PlanMachine& machine) {
  const Placement& placement = setup.options.placement;
  SimulatedRates rates = *machine.rates;
  // State and activations go down while others come up, and both ways share the host's memory.
  if (!placement.optimizer.on_device() || placement.activations != Place::device) {
    limit(rates.to_device, machine.both_ways);
    limit(rates.to_host, machine.both_ways);
  }
  return throttled(rates, setup.options);
}

std::optional<StepTime> step_time(const RunSetup& setup, const PlanMachine& machine) {
  if (!machine.rates) return std::nullopt;
  const SimulatedRates rates = rates_of(setup, machine);
  if (setup.options.placement.in_files() && (rates.read <= 0 || rates.write <= 0)) return std::nullopt;
  if (setup.ranks.ranks > 1 && rates.within_node <= 0) return std::nullopt;
  return predict_step(setup, rates);
}

}  // namespace zeepo
