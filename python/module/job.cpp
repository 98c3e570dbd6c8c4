#include "job.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/machine.h"
#include "zeepo/comm/gpu_place.h"
#include "zeepo/comm/launch.h"
#include "zeepo/torch/torch_checkpoint.h"
#include "zeepo/torch/torch_plan.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

DType dtype_named(const std::string& name) {
  if (name == "float32") return DType::f32;
  if (name == "bfloat16") return DType::bf16;
  if (name == "float16") return DType::f16;
  throw Error(
      "init: parameters of torch.{}: must be float32, bfloat16 or float16; call model.float() or model.bfloat16()",
      name);
}

OptimizerType optimizer_named(const std::string& name) {
  if (name == "adamw") return OptimizerType::adamw;
  if (name == "adam") return OptimizerType::adam;
  if (name == "sgd") return OptimizerType::sgd;
  throw Error("init: optimizer {}: must be adamw, adam or sgd", name);
}

// The engine's shapes end at four extents; it does not look at them but to tell matrices from vectors.
Shape shape_of(std::vector<std::int64_t> extents) {
  while (extents.size() > Shape::kMaxRank) {
    extents[extents.size() - 2] *= extents.back();
    extents.pop_back();
  }
  switch (extents.size()) {
    case 0: return {1};
    case 1: return {extents[0]};
    case 2: return {extents[0], extents[1]};
    case 3: return {extents[0], extents[1], extents[2]};
    default: return {extents[0], extents[1], extents[2], extents[3]};
  }
}

UnitPlan plan_of(const std::vector<Job::GivenUnit>& units) {
  UnitPlan plan;
  for (const auto& [name, parameters] : units) {
    Unit unit{name, {}, 0};
    for (const auto& [parameter, extents, trained, group] : parameters) {
      const Shape shape = shape_of(extents);
      UnitParameter laid{unit.elements, shape, trained, {}, group};
      const std::int64_t elements = shape.elements();
      laid.weights.push_back({{parameter, shape}, 0, elements});
      unit.elements += (elements + Unit::kAlignment - 1) / Unit::kAlignment * Unit::kAlignment;
      unit.parameters.push_back(std::move(laid));
    }
    plan.units.push_back(std::move(unit));
  }
  return plan;
}

}  // namespace

namespace {
Communicator* joined = nullptr;  // never destroyed: the process may end in any way
}

Communicator& process_ranks() {
  if (joined == nullptr) joined = make_communicator(detect_launch()).release();
  return *joined;
}

void finish_ranks() {
  if (joined != nullptr) joined->finish();
}

Job::Job(const std::map<std::string, std::string>& texts, const std::string& config_file) {
  Communicator& ranks = process_ranks();
  given_ = make_torch_options(texts, config_file, ranks.size());
  const auto of_half = texts.lower_bound("fp16.");
  if (of_half != texts.end() && of_half->first.starts_with("fp16.")) scale_option_ = of_half->first.substr(5);
  dtype_given_ = texts.contains("--dtype") || given_.options.dtype != DType::f32;
  ranks.set_progress_timeout(given_.options.timeout_seconds);
  check_agreement(ranks, agreed_values(given_.options));
}

std::string Job::option(const std::string& name) const {
  const TrainOption* const option = find_option(name);
  if (option == nullptr) throw Error("init: {}: there is no such option", name);
  return option->text(given_.options);
}

EngineOptions Job::engine_options(const std::string& dtype, const std::string& optimizer, double momentum) const {
  if (dtype_given_ && given_.options.dtype != dtype_named(dtype))
    throw Error(
        "init: dtype {} is asked for, and the parameters are torch.{}; convert the module before, by model.to()",
        name_of(given_.options.dtype), dtype);
  if (!scale_option_.empty() && dtype_named(dtype) != DType::f16)
    throw Error(
        "init: {} is of a float16 module, and the parameters are torch.{}; leave it out, or convert the module before, "
        "by model.half()",
        scale_option_, dtype);
  EngineOptions options = torch_engine_options(given_.options, dtype_named(dtype));
  if (optimizer.empty()) {
    options.use = Use::infer;
    options.snapshot_bytes = 0;
  } else {
    options.optimizer.type = optimizer_named(optimizer);
    options.optimizer.momentum = static_cast<float>(momentum);
  }
  return options;
}

EngineOptions Job::plan_run(const UnitPlan& units, const EngineOptions& options, int gpu) {
  const bool on_gpu = given_.options.backend == Backend::cuda;
  if (!on_gpu && !given_.options.choose.any()) return options;
  Communicator& ranks = process_ranks();
  const GpuPlace place = on_gpu ? find_gpu(ranks) : GpuPlace{};
  if (on_gpu && place.gpu != gpu)
    throw Error("init: the module is on cuda:{}, and rank {} computes on cuda:{}; set CUDA_VISIBLE_DEVICES", gpu,
                ranks.rank(), place.gpu);
  TorchRun run =
      plan_torch_run(units, given_.options, options, shape_of(ranks), torch_budgets(given_.options, ranks, place));
  given_.options = std::move(run.options);
  // Pinned memory is taken at once: as much as is needed.
  if (on_gpu && given_.options.placement.activations != Place::host)
    given_.options.host_bytes = run.memory.bytes[static_cast<std::size_t>(Place::host)];
  return run.engine;
}

void Job::attach(const std::vector<GivenUnit>& units, const std::string& dtype, const std::string& optimizer,
                 double momentum, int gpu, bool protect) {
  UnitPlan plan = plan_of(units);
  const EngineOptions options = plan_run(plan, engine_options(dtype, optimizer, momentum), gpu);
  Communicator& ranks = process_ranks();
  runtime_ = std::make_unique<Runtime>(runtime_options(given_.options, parameter_count(plan), ranks.size()), ranks);
  optimizer_ = options.optimizer;
  for (const auto& unit : units)
    for (const auto& parameter : unit.second) shapes_[std::get<0>(parameter)] = std::get<1>(parameter);
  engine_ = std::make_unique<TorchEngine>(*runtime_, std::move(plan), options,
                                          protect ? AbsentMemory::guarded : AbsentMemory::stale);
}

TorchEngine& Job::engine() {
  if (!engine_) throw Error("zeepo: no module is attached");
  return *engine_;
}

void Job::load(const Fill& fill) {
  engine().get().load([&](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
    fill(slice.name, begin, reinterpret_cast<Address>(out.data()), static_cast<std::int64_t>(out.size()));
  });
  engine().get().settle();
}

Job::Address Job::address(std::size_t unit, std::size_t index) {
  return reinterpret_cast<Address>(engine().address({unit, index}));
}

StepResult Job::step(const std::vector<GivenRule>& rules) {
  std::vector<StepRule> taken;
  for (const auto& [rate, beta1, beta2, eps, momentum, decay] : rules) {
    StepRule rule{rate, optimizer_};
    rule.optimizer.beta1 = static_cast<float>(beta1);
    rule.optimizer.beta2 = static_cast<float>(beta2);
    rule.optimizer.eps = static_cast<float>(eps);
    rule.optimizer.momentum = static_cast<float>(momentum);
    rule.optimizer.weight_decay = static_cast<float>(decay);
    taken.push_back(rule);
  }
  return engine().step(taken);
}

void Job::read(const std::string& name, std::int64_t begin, Address to, std::int64_t count) {
  engine().get().settled_io().read(name, begin, {reinterpret_cast<float*>(to), static_cast<std::size_t>(count)});
}

void Job::broadcast(Address address, std::int64_t bytes) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  process_ranks().broadcast(stream, View{reinterpret_cast<std::byte*>(address), DType::u8, {bytes}}, 0,
                            {"what rank 0 starts from", 0});
}

std::string Job::any_of(const std::string& flags) {
  std::string any = flags;
  for (const std::string& others : gather_texts(process_ranks(), flags))
    std::ranges::transform(any, others, any.begin(), [](char a, char b) { return std::max(a, b); });
  return any;
}

bool Job::has_host_room(std::int64_t bytes) { return free_memory_bytes() / process_ranks().local_size() >= bytes; }

SavedTensors& Job::saved() {
  if (SavedTensors* const saved = engine().saved_tensors()) return *saved;
  throw Error("zeepo: activations stay with PyTorch");
}

void Job::drop_saved(std::int64_t number) noexcept {
  if (engine_ && engine_->saved_tensors() != nullptr) engine_->saved_tensors()->drop(number);
}

std::string Job::report() { return report_of(engine().get(), runtime_->session()); }

std::string Job::save(const std::string& directory, const std::string& buffers) {
  return save_checkpoint(engine().get(), runtime_->communicator(), directory, buffers).string();
}

FoundCheckpoint Job::find_saved(const std::string& directory) {
  (void)engine();
  return find_checkpoint(runtime_->communicator(), directory);
}

void Job::load_saved(const std::string& path) { load_checkpoint(engine().get(), runtime_->communicator(), path); }

void Job::write_weights(const std::string& file, const std::string& dtype, const std::vector<GivenBuffer>& buffers) {
  std::vector<SafetensorsWriter::Tensor> given;
  for (const auto& [name, stored, shape, bytes] : buffers) given.push_back({name, DType::f32, shape, stored, bytes});
  export_weights(engine().get(), runtime_->communicator(), file, dtype_named(dtype), shapes_, given);
}

void Job::close() {
  if (engine_) engine_->finish_passes();
  if (runtime_) runtime_->close();
  engine_.reset();
}

void Job::abort(const std::string& message) { process_ranks().abort_job(message); }

}  // namespace zeepo
