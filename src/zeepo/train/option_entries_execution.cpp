#include "zeepo/train/option_entries.h"
#include "zeepo/train/option_kinds.h"

namespace zeepo {

using namespace option_kinds;

namespace {

TrainOption shares(TrainOption option, Shares Placement::*kind) {
  const std::string label = label_of(option);
  option.effect = Effect::execution;
  option = other(
      std::move(option),
      [kind](const std::string& named, const std::string& text, TrainOptions& o) {
        o.placement.*kind = parse_shares(named, text);
      },
      [kind](const TrainOptions& o) { return text_of(o.placement.*kind); });
  option.check = [=](const TrainOptions& o) {
    constexpr double kRounding = 1e-9;
    const Shares& of = o.placement.*kind;
    if (!(of.host >= 0 && of.nvme >= 0 && of.host + of.nvme <= 1 + kRounding))
      throw UsageError("{} host={},nvme={}: must be shares, 0 or more and together at most 1", label, of.host, of.nvme);
  };
  return option;
}

}  // namespace

void add_rank_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::ranks;
  table.push_back(choice(
      {.name = "--device", .group = kGroup, .help = "cpu or cuda", .otherwise = "cuda where there is a GPU"},
      [](auto& o) -> auto& { return o.backend; }, device_choices()));
  table.push_back(whole({.name = "--threads",
                         .group = kGroup,
                         .help = "Of the CPU, a rank",
                         .otherwise = "OMP_NUM_THREADS, or all cores",
                         .effect = Effect::execution,
                         .ranks = Ranks::may_differ},
                        [](auto& o) -> auto& { return o.threads; }, {.least = 1, .most = kMaxThreads, .absent = 0}));
  table.push_back(
      whole({.name = "--stage",
             .group = kGroup,
             .help = "What is sharded over the ranks: 0 nothing, 1 the optimizer's state, 2 and gradients, 3 "
                     "and parameters",
             .effect = Effect::execution,
             .deepspeed = {"zero_optimization.stage"}},
            [](auto& o) -> auto& { return o.stage; }, {.most = 3}));
  table.push_back(choice({.name = "--comm",
                          .group = kGroup,
                          .help = "What carries GPU memory between ranks: nccl, mpi through host memory, or auto: nccl "
                                  "where it is built in and every rank has a GPU of its own",
                          .effect = Effect::execution},
                         [](auto& o) -> auto& { return o.comm; },
                         {{"auto", Carrier::automatic}, {"mpi", Carrier::mpi}, {"nccl", Carrier::nccl}}));
  table.push_back(number(
      {.name = "--timeout",
       .group = kGroup,
       .help = "Seconds after which waiting for a rank that lives but makes no progress is an error; "
               "0: never",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      [](auto& o) -> auto& { return o.timeout_seconds; }));
  table.push_back(flag(
      {.name = "--no-communication",
       .group = kGroup,
       .help = "A diagnosis: the ranks send each other nothing in a step, which shows what the links "
               "cost; nothing is saved"},
      [](auto& o) -> auto& { return o.no_communication; }));
  table.push_back(other(
      {.name = "--simulate-link",
       .group = kGroup,
       .help = "Slow links, as ranks=1GB/s,host-device=8GB/s,nvme=500MB/s: for measurements",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        const SimulatedLinks links = parse_links(label, text);
        o.rank_bytes_per_second = links.ranks;
        o.link_bytes_per_second = links.host_device;
        o.nvme_bytes_per_second = links.nvme;
      },
      [](const TrainOptions& o) {
        return text_of(SimulatedLinks{o.rank_bytes_per_second, o.link_bytes_per_second, o.nvme_bytes_per_second});
      }));
}

void add_memory_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::memory;
  table.push_back(other(
      {.name = "--memory",
       .group = kGroup,
       .help = "Budgets of a rank, as device=4GiB,host=16GiB,nvme=100GiB",
       .otherwise = "what the machine has",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        const Budgets budgets = parse_budgets(label, text);
        o.device_bytes = budgets.device;
        o.host_bytes = budgets.host;
        o.nvme_bytes = budgets.nvme;
      },
      [](const TrainOptions& o) {
        return text_of(Budgets{o.device_bytes, o.host_bytes, o.nvme_bytes});
      }));
  table.push_back(other(
      {.name = "--placement",
       .group = kGroup,
       .help = "auto: choose what lives where within --memory, the fastest tiers first or, after zeepo probe, what is "
               "predicted to be faster; given: as the options say",
       .effect = Effect::execution},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        const bool open = parse_choice<bool>(label, text, {{"given", false}, {"auto", true}});
        o.choose = {.params = open, .optimizer = open, .activations = open, .prefetch = open};
      },
      [](const TrainOptions& o) { return o.choose.any() ? "auto" : "given"; }));
  table.push_back(
      shares({.name = "--offload-param",
              .group = kGroup,
              .help = "Where parameters live between uses: none, host, nvme, or shares of them as "
                      "host=0.5,nvme=0.3",
              .deepspeed_also = {"zero_optimization.offload_param.device", "zero_optimization.offload_param.ratio"}},
             &Placement::params));
  table.push_back(shares(
      {.name = "--offload-optimizer",
       .group = kGroup,
       .help = "Where the optimizer's state and the gradients live, and are stepped: none, host, nvme, "
               "or shares",
       .deepspeed_also = {"zero_optimization.offload_optimizer.device", "zero_optimization.offload_optimizer.ratio"}},
      &Placement::optimizer));
  TrainOption step_below = other(
      {.name = "--step-below",
       .group = kGroup,
       .help = "What steps the optimizer's state in host memory: host, device, or the share that the host steps; auto: "
               "the host on the CPU; the GPU, and in runs of 12 steps and more as much by the host as is measured to "
               "help",
       .effect = Effect::execution},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        o.host_step_share = parse_host_share(label, text);
      },
      [](const TrainOptions& o) { return text_of_host_share(o.host_step_share); });
  step_below.check = [](const TrainOptions& o) {
    if (o.host_step_share && !(*o.host_step_share >= 0 && *o.host_step_share <= 1))
      throw UsageError("train: --step-below {}: must be a share from 0 to 1", *o.host_step_share);
  };
  table.push_back(step_below);
  table.push_back(flag(
      {.name = "--activation-checkpointing",
       .group = kGroup,
       .help = "Keep only each block's input and compute the rest again",
       .effect = Effect::execution,
       .deepspeed_also = {"activation_checkpointing.number_checkpoints",
                          "activation_checkpointing.partition_activations"}},
      [](auto& o) -> auto& { return o.activation_checkpointing; }));
  table.push_back(choice(
      {.name = "--offload-activations",
       .group = kGroup,
       .help = "Where block inputs wait for the backward pass: none, host or nvme; turns on "
               "--activation-checkpointing",
       .effect = Effect::execution,
       .deepspeed_also = {"activation_checkpointing.cpu_checkpointing"}},
      [](auto& o) -> auto& { return o.placement.activations; }, place_choices()));
  table.push_back(choice(
      {.name = "--cache-policy",
       .group = kGroup,
       .help = "Which parameters are on the device where --offload-param leaves a share there: fixed, "
               "always the same; lru, those used last",
       .effect = Effect::execution},
      [](auto& o) -> auto& { return o.placement.cache; }, {{"fixed", CachePolicy::fixed}, {"lru", CachePolicy::lru}}));
  table.push_back(other(
      {.name = "--nvme-path",
       .group = kGroup,
       .help = "Directories for files of states, as DIR[,DIR...]: striped over all",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ,
       .deepspeed_also = {"zero_optimization.offload_param.nvme_path",
                          "zero_optimization.offload_optimizer.nvme_path"}},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        o.nvme_paths = parse_paths(label, text);
      },
      [](const TrainOptions& o) { return text_of(o.nvme_paths); }));
  TrainOption prefetch = other(
      {.name = "--prefetch",
       .group = kGroup,
       .help = "Gathered parameters ahead of their use; 0: no overlap",
       .effect = Effect::execution,
       .deepspeed_also = {"zero_optimization.stage3_prefetch_bucket_size",
                          "zero_optimization.stage3_max_live_parameters"}},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        o.prefetch_bytes = parse_size_option(label, text);
      },
      [](const TrainOptions& o) { return text_of_size(o.prefetch_bytes); });
  prefetch.check = [](const TrainOptions& o) {
    if (o.prefetch_bytes < 0) throw UsageError("train: --prefetch {}: must be at least 0", o.prefetch_bytes);
  };
  table.push_back(prefetch);
  table.push_back(flag(
      {.name = "--no-tune",
       .group = kGroup,
       .help = "Keep --prefetch, the buffers and what the host steps as they are, instead of adapting them while it "
               "runs",
       .effect = Effect::execution},
      [](const TrainOptions& o) { return !o.tune.prefetch && !o.tune.pieces && !o.tune.host_share; },
      [](TrainOptions& o, bool off) { o.tune = {.prefetch = !off, .pieces = !off, .host_share = !off}; }));
}

void add_report_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::report;
  table.push_back(path(
      {.name = "--log",
       .group = kGroup,
       .help = "JSON lines, a plan, each step and a summary; - for stdout",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      [](auto& o) -> auto& { return o.log; }));
  table.push_back(path(
      {.name = "--trace",
       .group = kGroup,
       .help = "A Chrome trace of the last steps, for Perfetto: what ran when on every rank",
       .effect = Effect::execution,
       .ranks = Ranks::agree_if_given},
      [](auto& o) -> auto& { return o.trace; }));
  table.push_back(path(
      {.name = "--output",
       .group = kGroup,
       .help = "Where to save the trained model, as a Hugging Face directory",
       .effect = Effect::execution,
       .ranks = Ranks::agree_if_given},
      [](auto& o) -> auto& { return o.output; }));
  table.push_back(path(
      {.name = "--output-fallback",
       .group = kGroup,
       .help = "Where to save the trained model when --output does not take it (its disk is full): a directory on "
               "another disk",
       .effect = Effect::execution,
       .ranks = Ranks::agree_if_given},
      [](auto& o) -> auto& { return o.output_fallback; }));
  table.push_back(number(
      {.name = "--output-retry",
       .group = kGroup,
       .help = "Seconds during which saving the model is tried again when it fails, at each place; 0: once",
       .effect = Effect::execution},
      [](auto& o) -> auto& { return o.output_retry_seconds; }));
  table.push_back(other(
      {.name = "--output-dtype",
       .group = kGroup,
       .help = "Of the weights in --output",
       .otherwise = "--dtype",
       .effect = Effect::execution},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        o.output_dtype = parse_dtype_option(label, text);
      },
      [](const TrainOptions& o) { return o.output_dtype ? std::string(name_of(*o.output_dtype)) : ""; }));
}

}  // namespace zeepo
