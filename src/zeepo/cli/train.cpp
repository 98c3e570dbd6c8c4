#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/cli/commands.h"
#include "zeepo/cli/values.h"
#include "zeepo/comm/gpu_place.h"
#include "zeepo/comm/launch.h"
#include "zeepo/comm/throttled/throttled_communicator.h"
#include "zeepo/train/deepspeed_config.h"
#include "zeepo/train/trainer.h"

namespace zeepo::cli {
namespace {

// Texts that become values once all options are known.
struct Texts {
  std::string optimizer = "adamw", moments = "fp32", betas = "0.9,0.95", decay = "all", schedule = "constant",
              reduce = "each";
  std::string products = "same", comm = "auto";
  std::string dtype, output_dtype, device, memory, prefetch = "256MiB", link;
  std::string placement = "given", cache_policy = "fixed", offload_param = "none", offload_optimizer = "none",
              offload_activations = "none";
  std::string step_below = "auto", nvme_path;
  bool no_shuffle = false, no_tune = false;
  std::filesystem::path config;
};

void parse_betas(const std::string& text, OptimizerOptions& optimizer) {
  std::istringstream stream(text);
  char comma = 0;
  if (!(stream >> optimizer.beta1 >> comma >> optimizer.beta2) || comma != ',' || stream.peek() != EOF)
    throw UsageError("train: --betas {}: write two numbers, like 0.9,0.95", text);
}

void parse_choices(const Texts& texts, TrainOptions& options) {
  options.optimizer.type = choice_option<OptimizerType>(
      "train: --optimizer", texts.optimizer,
      {{"adamw", OptimizerType::adamw}, {"adam", OptimizerType::adam}, {"sgd", OptimizerType::sgd}});
  options.optimizer.moments = choice_option<MomentType>(
      "train: --moments", texts.moments,
      {{"fp32", MomentType::fp32}, {"bf16", MomentType::bf16}, {"8bit", MomentType::eight_bit}});
  options.schedule.type = choice_option<ScheduleType>(
      "train: --schedule", texts.schedule,
      {{"constant", ScheduleType::constant}, {"linear", ScheduleType::linear}, {"cosine", ScheduleType::cosine}});
  options.decay =
      choice_option<Decay>("train: --decay", texts.decay, {{"all", Decay::all}, {"matrices", Decay::matrices}});
  options.reduce =
      choice_option<Reduce>("train: --reduce", texts.reduce, {{"each", Reduce::each}, {"last", Reduce::last}});
  options.products = choice_option<Products>("train: --matmul-dtype", texts.products,
                                             {{"same", Products::as_stored}, {"fp8", Products::fp8}});
}

// What lives where.
void parse_placement(const Texts& texts, TrainOptions& options) {
  options.placement.params = shares_option("--offload-param", texts.offload_param);
  options.placement.optimizer = shares_option("--offload-optimizer", texts.offload_optimizer);
  options.placement.cache = choice_option<CachePolicy>("train: --cache-policy", texts.cache_policy,
                                                       {{"fixed", CachePolicy::fixed}, {"lru", CachePolicy::lru}});
  options.placement.activations = place_option("--offload-activations", texts.offload_activations);
  if (!texts.nvme_path.empty())
    for (const auto& path : split_at_commas(texts.nvme_path)) options.nvme_paths.emplace_back(path);
  options.host_step_share = host_share_option("--step-below", texts.step_below);
  const Budgets budgets = memory_option(texts.memory);
  options.device_bytes = budgets.device;
  options.host_bytes = budgets.host;
  options.nvme_bytes = budgets.nvme;
}

void add_data_options(CLI::App& command, TrainOptions& options, Texts& texts) {
  command.add_option("--model", options.model, "A Hugging Face directory: config.json, safetensors, tokenizer.json")
      ->required();
  command.add_flag("--from-scratch", options.from_scratch, "Start from weights drawn from --seed, not from the files");
  command.add_option("--data", options.data, "Token file (.bin), text (.txt) or JSON lines with \"text\" (.jsonl)")
      ->required();
  command.add_option("--config", texts.config, "DeepSpeed's JSON; options given here win over it");
  command.add_option("--seq-len", options.seq_len, "Tokens a sample [1024, or the model's positions]");
  command.add_option("--micro-batch", options.micro_batch, "Samples computed at a time")->capture_default_str();
  command.add_option("--grad-accum", options.grad_accum, "Micro-batches a step")->capture_default_str();
  command.add_option("--steps", options.steps, "The last step [once through the data]");
  command.add_flag("--no-shuffle", texts.no_shuffle, "Take the samples in the order of the file");
  command.add_option("--seed", options.seed, "Of the order, fresh weights, dropout and the rounding of narrow moments")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "[OMP_NUM_THREADS, or all cores]")
      ->check(CLI::Range(1, kMaxThreads));
}

void add_optimizer_options(CLI::App& command, TrainOptions& options, Texts& texts) {
  command.add_option("--optimizer", texts.optimizer, "adamw, adam or sgd")->capture_default_str();
  command
      .add_option("--moments", texts.moments,
                  "How the optimizer's moments are kept: fp32, bf16 (2 bytes each), or 8bit (adamw, adam)")
      ->capture_default_str();
  command.add_option("--lr", options.schedule.lr, "Learning rate")->capture_default_str();
  command.add_option("--betas", texts.betas, "Of adamw and adam")->capture_default_str();
  command.add_option("--eps", options.optimizer.eps, "Of adamw and adam")->capture_default_str();
  command.add_option("--momentum", options.optimizer.momentum, "Of sgd")->capture_default_str();
  command.add_option("--weight-decay", options.optimizer.weight_decay)->capture_default_str();
  command.add_option("--decay", texts.decay, "What decays: all, or matrices alone")->capture_default_str();
  command.add_option("--clip", options.clip, "Largest gradient norm; 0: no clipping")->capture_default_str();
  command.add_option("--schedule", texts.schedule, "constant, linear or cosine")->capture_default_str();
  command.add_option("--warmup", options.schedule.warmup, "Steps from 0 up to --lr")->capture_default_str();
  command.add_option("--lr-end", options.schedule.lr_end, "Where linear and cosine end")->capture_default_str();
  command.add_option("--dropout", options.dropout, "Instead of config.json's");
}

void add_machine_options(CLI::App& command, TrainOptions& options, Texts& texts) {
  command.add_option("--dtype", texts.dtype,
                     "fp32, bf16 or fp16; 16-bit runs keep the fp32 weights [bf16 on a GPU, else fp32]");
  command.add_option("--device", texts.device, "cpu or cuda [cuda where there is a GPU]");
  command
      .add_option("--comm", texts.comm,
                  "What carries GPU memory between ranks: nccl, mpi through host memory, or auto: nccl where it is "
                  "built in and every rank has a GPU of its own")
      ->capture_default_str();
  command.add_option("--memory", texts.memory,
                     "Budgets of a rank, as device=4GiB,host=16GiB,nvme=100GiB [what the machine has]");
  command
      .add_option(
          "--stage", options.stage,
          "What is sharded over the ranks: 0 nothing, 1 the optimizer's state, 2 and gradients, 3 and parameters")
      ->capture_default_str();
  command
      .add_option("--reduce", texts.reduce,
                  "Gradients over the ranks: each micro-step, or last, their local sum (stages 0 and 1)")
      ->capture_default_str();
  command.add_option("--blocks-per-unit", options.blocks_per_unit, "Transformer blocks that travel together")
      ->capture_default_str();
  command
      .add_option("--matmul-dtype", texts.products,
                  "What linear layers compute y and the gradient of their input with: same, the run's dtype, or fp8, "
                  "8-bit floats on a GPU: faster, other rounding")
      ->capture_default_str();
  command
      .add_option("--tile-linear", options.linear_tiles,
                  "Run each linear layer of the blocks as this many tiles, gathered and reduced one at a time: less "
                  "working memory, the same result")
      ->capture_default_str();
  command
      .add_option("--timeout", options.timeout_seconds,
                  "Seconds after which waiting for a rank that lives but makes no progress is an error; 0: never")
      ->capture_default_str();
  command.add_option("--prefetch", texts.prefetch, "Gathered parameters ahead of their use; 0: no overlap")
      ->capture_default_str();
  command.add_flag("--no-tune", texts.no_tune,
                   "Keep --prefetch, the buffers and what the host steps as they are, instead of adapting them in the "
                   "first steps");
  command.add_option("--simulate-link", texts.link,
                     "Slow links, as ranks=1GB/s,host-device=8GB/s,nvme=500MB/s: for measurements");
  command.add_flag("--activation-checkpointing", options.activation_checkpointing,
                   "Keep only each block's input and compute the rest again");
  command.add_option("--log", options.log, "JSON lines, a plan, each step and a summary; - for stdout");
  command.add_option("--trace", options.trace,
                     "A Chrome trace of the last steps, for Perfetto: what ran when on every rank");
  command.add_option("--output", options.output, "Where to save the trained model, as a Hugging Face directory");
  command.add_option("--output-dtype", texts.output_dtype, "[--dtype]");
}

void add_offload_options(CLI::App& command, Texts& texts) {
  command
      .add_option("--placement", texts.placement,
                  "auto: choose what lives where within --memory, the fastest tiers first; given: as the options say")
      ->capture_default_str();
  command
      .add_option("--offload-param", texts.offload_param,
                  "Where parameters live between uses: none, host, nvme, or shares of them as host=0.5,nvme=0.3")
      ->capture_default_str();
  command
      .add_option("--offload-optimizer", texts.offload_optimizer,
                  "Where the optimizer's state and the gradients live, and are stepped: none, host, nvme, or shares")
      ->capture_default_str();
  command
      .add_option(
          "--step-below", texts.step_below,
          "What steps the optimizer's state in host memory: host, device, or the share that the host steps; auto: "
          "the host on the CPU; the GPU, and in runs of 12 steps and more as much by the host as is measured to help")
      ->capture_default_str();
  command
      .add_option("--offload-activations", texts.offload_activations,
                  "Where block inputs wait for the backward pass (with --activation-checkpointing): none, host or nvme")
      ->capture_default_str();
  command
      .add_option(
          "--cache-policy", texts.cache_policy,
          "Which parameters are on the device where --offload-param leaves a share there: fixed, always the same; "
          "lru, those used last")
      ->capture_default_str();
  command.add_option("--nvme-path", texts.nvme_path,
                     "Directories for files of states, as DIR[,DIR...]: striped over all");
}

// DeepSpeed's file gives what the command line has not.
void apply_config(const CLI::App& command, const std::filesystem::path& path, const Launch& launch,
                  TrainOptions& options) {
  const DeepSpeedConfig config = load_deepspeed_config(path);
  std::set<std::string> flags;
  for (const CLI::Option* option : command.get_options())
    if (option->count() > 0) flags.insert(option->get_name());
  apply(config, flags, launch.size, options);
  if (launch.rank == 0 && !config.unused.empty()) fmt::print(stderr, "zeepo: warning: {}\n", warning_of(config));
}

enum class Comm { automatic, mpi, nccl };

// Null: not wanted, and GPU memory passes through the host's.
std::unique_ptr<Communicator> nccl_over(Communicator& ranks, Comm comm, const TrainOptions& options) {
  if (options.backend != Backend::cuda || comm == Comm::mpi) return nullptr;
  if (comm == Comm::automatic && (ranks.size() == 1 || !has_nccl())) return nullptr;
  const GpuPlace place = find_gpu(ranks);
  // NCCL takes ranks that share a GPU where it has been told that they are on machines of their own.
  const int sharing = comm == Comm::nccl ? place.most_alike : place.most_ranks;
  if (sharing == 1) return make_nccl_communicator(ranks, place.gpu, options.timeout_seconds);
  if (comm == Comm::nccl)
    throw Error("train: --comm nccl: {} ranks share a GPU, and NCCL wants one for each; start fewer, or use --comm mpi",
                sharing);
  return nullptr;
}

// Neither the command line nor a config has said.
bool prefetch_is_open(const CLI::App& command, const TrainOptions& options) {
  return command.count("--prefetch") == 0 && options.prefetch_bytes == TrainOptions{}.prefetch_bytes;
}

// With --placement auto: all that neither the command line nor a config has placed.
OpenChoices open_choices(const CLI::App& command, const std::string& placement, const TrainOptions& options) {
  enum class By { given, budgets };
  const By by = choice_option<By>("train: --placement", placement, {{"given", By::given}, {"auto", By::budgets}});
  if (by == By::given) return {};
  const Placement& given = options.placement;
  const auto absent = [&](const char* flag) { return command.count(flag) == 0; };
  return {.params = absent("--offload-param") && given.params.on_device(),
          .optimizer = absent("--offload-optimizer") && given.optimizer.on_device(),
          .activations = absent("--offload-activations") && given.activations == Place::device,
          .prefetch = prefetch_is_open(command, options)};
}

// One rank of a job, or all of it. What goes wrong on one rank ends the job on all.
void train(const TrainOptions& options, const Launch& launch, Comm comm, double link_bytes_per_second) {
  const auto ranks = make_communicator(launch);
  std::unique_ptr<Communicator> nccl;  // its end may wait for the other ranks: they are told of a failure before
  const auto run = [&] {
    ranks->set_progress_timeout(options.timeout_seconds);  // for the first contact, too
    nccl = nccl_over(*ranks, comm, options);
    Communicator& communicator = nccl ? *nccl : *ranks;
    std::optional<ThrottledCommunicator> slow;
    if (link_bytes_per_second > 0 && ranks->size() > 1) slow.emplace(communicator, link_bytes_per_second);
    Trainer(options, slow ? *slow : communicator).run();
    communicator.finish();
  };
  if (ranks->size() == 1) return run();
  try {
    run();
  } catch (const std::exception& error) {
    ranks->abort_job(error.what());
  }
}

}  // namespace

void add_train(CLI::App& program) {
  auto* command = program.add_subcommand("train", "Train a model from a Hugging Face directory on text or tokens");
  const auto options = std::make_shared<TrainOptions>();
  const auto texts = std::make_shared<Texts>();
  add_data_options(*command, *options, *texts);
  add_optimizer_options(*command, *options, *texts);
  add_machine_options(*command, *options, *texts);
  add_offload_options(*command, *texts);
  command->footer(
      "Examples: zeepo train --model gpt2 --data book.txt --seq-len 512 --steps 100 --output tuned\n"
      "          mpirun -n 4 zeepo train --stage 3 --model llama --data tokens.bin --steps 100");
  command->callback([command, options, texts] {
    parse_choices(*texts, *options);
    parse_betas(texts->betas, options->optimizer);
    options->backend = device_option(texts->device);
    options->dtype = dtype_or_default(texts->dtype, options->backend);
    if (!texts->output_dtype.empty()) options->output_dtype = dtype_option("--output-dtype", texts->output_dtype);
    parse_placement(*texts, *options);
    const SimulatedLinks links = links_option(texts->link);
    options->link_bytes_per_second = links.host_device;
    options->nvme_bytes_per_second = links.nvme;
    options->prefetch_bytes = size_option("--prefetch", texts->prefetch);
    if (texts->no_shuffle) options->order = Order::as_is;
    const auto comm = choice_option<Comm>("train: --comm", texts->comm,
                                          {{"auto", Comm::automatic}, {"mpi", Comm::mpi}, {"nccl", Comm::nccl}});
    if (comm == Comm::nccl && options->backend != Backend::cuda)
      throw UsageError("train: --comm nccl: carries GPU memory alone; use --device cuda");
    if (comm == Comm::nccl && links.ranks > 0)
      throw UsageError("train: --simulate-link ranks: slows what passes through host memory; use --comm mpi");
    const Launch launch = detect_launch();
    if (command->count("--config") > 0) apply_config(*command, texts->config, launch, *options);
    options->tune = {.prefetch = !texts->no_tune && prefetch_is_open(*command, *options),
                     .pieces = !texts->no_tune,
                     .host_share = !texts->no_tune};
    options->choose = open_choices(*command, texts->placement, *options);
    train(*options, launch, links.ranks > 0 ? Comm::mpi : comm, links.ranks);
  });
}

}  // namespace zeepo::cli
