#include "zeepo/cli/inference_options.h"

#include <charconv>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/base/size.h"
#include "zeepo/cli/number_options.h"
#include "zeepo/infer/coded_cache.h"
#include "zeepo/train/option_values.h"

namespace zeepo::cli {

InferenceArguments::InferenceArguments(CLI::App& command) : command_(command) {
  constexpr const char* kMemory = "Memory";
  command.add_option("--model", plain_.model, "A Hugging Face directory: config.json, safetensors, tokenizer.json")
      ->required();
  command.add_option("--dtype", dtype_, "fp32, bf16 or fp16 [bf16 on a GPU, else fp32]");
  command
      .add_option("--weights-dtype", weights_,
                  "How weights are stored on the device, in host memory and in files, and expanded for their use: " +
                      names_of(choices_of(kWeightCodecs)))
      ->capture_default_str();
  command.add_option("--cache-dir", cache_directory_,
                     "Where quantised weights are kept, for the next start [$XDG_CACHE_HOME/zeepo or ~/.cache/zeepo]");
  command.add_option("--device", device_, "cpu or cuda [cuda where there is a GPU]");
  add_whole(command, "--threads", plain_.threads, WholeNumbers<int>{1, kMaxThreads},
            "Of the CPU, a rank [OMP_NUM_THREADS, or all cores]");
  command.add_flag("--batch-invariant", plain_.batch_invariant,
                   "On a GPU, logits that do not depend on how a prompt is cut or batched, as on a CPU always: slower");
  add_number(command, "--timeout", timeout_seconds_, "Seconds that a rank may wait for another; 0: no limit")
      ->default_str("0");
  command.add_option("--memory", memory_, "Budgets, as device=4GiB,host=16GiB,nvme=100GB [what the machine has]")
      ->group(kMemory);
  command
      .add_option("--placement", placement_,
                  "auto: as many weights on the device as fit in --memory, the others offloaded; given: as the options "
                  "say")
      ->capture_default_str()
      ->group(kMemory);
  command
      .add_option("--offload-param", params_,
                  "Where weights live between uses: none, host, nvme, or shares of them as host=0.5,nvme=0.3 [none]")
      ->group(kMemory);
  command.add_option("--offload-kv", kv_, "Where the KV cache lives: none, on the device, or host")
      ->capture_default_str()
      ->group(kMemory);
  command.add_option("--kv-dtype", kv_dtype_, "How the KV cache is stored: same as the weights' --dtype, or int8")
      ->capture_default_str()
      ->group(kMemory);
  command.add_option("--nvme-path", nvme_paths_, "Directories on fast disks, with commas between; used together")
      ->group(kMemory);
  command
      .add_flag("--copy-weights", plain_.copy_weights,
                "Copy weights that live in files to --nvme-path first, with checksums, even where the model's own "
                "files have them: for a model on a slow disk")
      ->group(kMemory);
  command.add_option("--prefetch", prefetch_, "Weights on their way ahead of their use, at most; 0: none [256MiB]")
      ->group(kMemory);
  command
      .add_option("--cache-policy", cache_,
                  "Which weights are on the device where --offload-param leaves a share there: fixed, always the same; "
                  "lru, those used last")
      ->capture_default_str()
      ->group(kMemory);
  add_whole(command, "--blocks-per-unit", plain_.blocks_per_unit, WholeNumbers<std::int64_t>{1},
            "Blocks of the model that are fetched together")
      ->default_str(fmt::format("{}", plain_.blocks_per_unit))
      ->group(kMemory);
  command
      .add_option(
          "--speculate", speculate_,
          "Draft this many tokens at a time with an int4 copy of the weights that are fetched, and check them in "
          "one pass: the same tokens, sooner. auto: 8 where a link is known to be slow; off")
      ->capture_default_str()
      ->group(kMemory);
  command.add_option("--simulate-link", links_, "Slow links, as ranks=1GB/s,host-device=8GB/s,nvme=500MB/s")
      ->group(kMemory);
}

InferenceOptions InferenceArguments::options() const {
  const auto label = [&](const char* name) { return fmt::format("{}: {}", command_.get_name(), name); };
  InferenceOptions options = plain_;
  options.command = command_.get_name();
  options.cache_directory = cache_directory_.empty() ? default_cache_directory() : cache_directory_;
  options.backend = device_.empty() ? default_backend() : parse_choice(label("--device"), device_, device_choices());
  check_device(label("--device"), options.backend);
  options.dtype = dtype_.empty() ? default_dtype(options.backend) : parse_dtype_option(label("--dtype"), dtype_);
  options.drafts = speculate_ == "auto" ? Drafts::if_faster : speculate_ == "off" ? Drafts::none : Drafts::wanted;
  (void)draft_tokens();
  options.weights = parse_choice(label("--weights-dtype"), weights_, choices_of(kWeightCodecs));
  if (!memory_.empty()) {
    const Budgets budgets = parse_budgets(label("--memory"), memory_);
    options.device_bytes = budgets.device;
    options.host_bytes = budgets.host;
    options.nvme_bytes = budgets.nvme;
  }
  if (!params_.empty()) options.params = parse_shares(label("--offload-param"), params_);
  options.kv = parse_choice<Place>(label("--offload-kv"), kv_, {{"none", Place::device}, {"host", Place::host}});
  options.kv_int8 = parse_choice<bool>(label("--kv-dtype"), kv_dtype_, {{"same", false}, {"int8", true}});
  if (!nvme_paths_.empty()) options.nvme_paths = parse_paths(label("--nvme-path"), nvme_paths_);
  if (!prefetch_.empty()) options.prefetch_bytes = parse_size_option(label("--prefetch"), prefetch_);
  options.cache = parse_choice<CachePolicy>(label("--cache-policy"), cache_,
                                            {{"fixed", CachePolicy::fixed}, {"lru", CachePolicy::lru}});
  const bool choose = parse_choice<bool>(label("--placement"), placement_, {{"given", false}, {"auto", true}});
  options.choose = {.params = choose && params_.empty(), .prefetch = choose && prefetch_.empty()};
  if (!links_.empty()) {
    const SimulatedLinks links = parse_links(label("--simulate-link"), links_);
    options.link_bytes_per_second = links.host_device;
    options.nvme_bytes_per_second = links.nvme;
  }
  check(options);
  return options;
}

std::int64_t InferenceArguments::draft_tokens() const {
  constexpr std::int64_t kDraft = 8, kLongest = 64;
  if (speculate_ == "auto" || speculate_ == "off") return kDraft;
  std::int64_t tokens = 0;
  const char* const end = speculate_.data() + speculate_.size();
  const auto [stopped, code] = std::from_chars(speculate_.data(), end, tokens);
  if (code != std::errc{} || stopped != end || tokens < 1 || tokens > kLongest)
    throw UsageError("{}: --speculate {}: must be auto, off, or a number of tokens from 1 to {}", command_.get_name(),
                     speculate_, kLongest);
  return tokens;
}

RankOptions InferenceArguments::ranks() const {
  RankOptions ranks{.backend = options().backend, .timeout_seconds = timeout_seconds_};
  if (!links_.empty()) ranks.bytes_per_second = parse_links("--simulate-link", links_).ranks;
  return ranks;
}

void tell_of_copies(const Inference& inference, const Communicator& communicator) {
  const FilesInUse files = inference.files();
  if (files.copied_bytes > 0 && !inference.plan().options.copy_weights && communicator.rank() == 0)
    say("{}: {} of weights are copied to --nvme-path, not read from the model's own files: {}\n",
        inference.plan().options.command, format_size(files.copied_bytes), files.why_copied);
}

}  // namespace zeepo::cli
