#include "zeepo/torch/torch_engine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/device/devices.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/torch/torch_plan.h"
#include "zeepo/zero/rank_talk.h"

namespace zeepo {
namespace {

std::vector<std::size_t> bytes_of_units(const UnitPlan& plan, int ranks, DType dtype) {
  std::vector<std::size_t> bytes;
  for (const Unit& unit : plan.units) {
    const std::int64_t shard = shard_of(unit.elements, 0, ranks, Unit::kAlignment).elements();
    bytes.push_back(static_cast<std::size_t>(shard * ranks) * size_of(dtype));
  }
  return bytes;
}

std::int64_t trained_parameters(const Unit& unit) {
  return std::ranges::count_if(unit.parameters, &UnitParameter::trainable);
}

}  // namespace

TorchEngine::TorchEngine(Runtime& runtime, UnitPlan units, const EngineOptions& options, AbsentMemory absent)
    : Attachment(runtime), session_(runtime.session()), factor_(1.0f / static_cast<float>(runtime.size())) {
  units = with_own_visits(std::move(units));
  memory_ = std::make_unique<FixedMemory>(bytes_of_units(units, runtime.size(), options.dtype), absent,
                                          session_.compute(), session_.memory());
  for (const Unit& unit : units.units) has_gradient_.emplace_back(unit.parameters.size());
  engine_ = std::make_unique<Engine>(std::move(units), runtime.session().communicator(), options, memory_.get());
  find_addresses();
  if (const Place place = options.placement.activations; place != Place::device)
    saved_ = std::make_unique<SavedTensors>(session_.lower(), place);
  if (options.use == Use::train) {
    no_loss_ = Tensor({1}, DType::f32, Kind::working);
    launch([&](auto& s) { fill(s, no_loss_.view(), 0); });
  }
  join();
}

Engine& TorchEngine::get() {
  if (!engine_) throw Error("engine: it ended when zeepo was closed");
  return *engine_;
}

void TorchEngine::end() noexcept {
  saved_.reset();
  engine_.reset();
  no_loss_ = {};
}

void TorchEngine::find_addresses() {
  const UnitPlan& plan = get().units();
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    auto& of_unit = addresses_.emplace_back();
    for (std::size_t i = 0; i < plan.units[u].parameters.size(); ++i) {
      const auto offset = static_cast<std::size_t>(plan.units[u].parameters[i].offset);
      of_unit.push_back(always_there(u) ? static_cast<std::byte*>(get().parameter({u, i}).view().data)
                                        : memory_->address(u) + offset * size_of(get().plan().options.dtype));
    }
  }
}

DeviceScope TorchEngine::here() {
  (void)get();
  return DeviceScope(session_.compute(), session_.memory(), &session_.lower());
}

void TorchEngine::follow(std::uintptr_t stream) {
  (void)get();
  if (session_.compute().backend() == Backend::cuda) follow_stream(session_.compute(), stream);
}

void TorchEngine::begin_call(Recorded recorded) {
  const DeviceScope scope = here();
  if (pass_ == Pass::inference) end_call();
  if (recorded == Recorded::no || get().plan().options.use != Use::train) return;
  const bool another = get().plan().options.accumulation > 1 && pass_ == Pass::training && in_backward_;
  if (another) end_micro_step();
  open_training();
}

void TorchEngine::end_call() {
  const DeviceScope scope = here();
  if (pass_ != Pass::inference) return;
  pass_ = Pass::none;
  const bool only_infers = get().plan().options.use == Use::infer;
  get().end_inference(only_infers ? Engine::Then::another : Engine::Then::nothing);
}

void TorchEngine::open_training() {
  if (pass_ == Pass::training) return;
  end_call();
  get().begin_micro_step();
  pass_ = Pass::training;
  in_backward_ = false;
  sent_.assign(get().units().units.size(), false);
  await_all_gradients();
}

void TorchEngine::await_all_gradients() {
  missing_.clear();
  for (const Unit& unit : get().units().units) missing_.push_back(trained_parameters(unit));
  for (auto& parameters : has_gradient_) parameters.assign(parameters.size(), false);
}

void TorchEngine::set_passes(Passes passes) {
  if (std::exchange(passes_, passes) != passes) await_all_gradients();  // of another pass
}

void TorchEngine::use(const std::vector<std::size_t>& units, Recorded recorded, Visit::Direction direction) {
  const DeviceScope scope = here();
  if (recorded == Recorded::yes && get().plan().options.use == Use::train) {
    open_training();
  } else if (pass_ == Pass::none) {
    get().begin_inference();
    pass_ = Pass::inference;
  }
  get().use(units, direction);
}

void TorchEngine::begin_backward() {
  open_training();
  if (std::exchange(in_backward_, true)) return;
  get().begin_backward(no_loss_);
}

void TorchEngine::add_gradient(const ParameterId& id, std::byte* data) {
  const DeviceScope scope = here();
  begin_backward();
  const Unit& unit = get().units().units[id.unit];
  if (sent_[id.unit])
    throw Error(
        "backward: {} has a gradient that comes after those of {} were sent to the other ranks: a second backward pass "
        "before optimizer.step(). Run all but the last of them under `with zeepo.accumulate():`, or give "
        "zeepo.init(grad_accum=)",
        unit.parameters[id.index].weights[0].slice.name, unit.name);
  const GradientTarget target = get().gradient(id);
  const View gradient{data, get().plan().options.dtype, target.tensor.shape()};
  launch([&](auto& s) {
    if (target.write == Write::overwrite) {
      scale(s, gradient, factor_, target.tensor.view());
    } else {
      if (factor_ != 1) scale(s, gradient, factor_, gradient);
      add(s, target.tensor.view(), gradient, target.tensor.view());
    }
  });
  if (!has_gradient_[id.unit][id.index]) --missing_[id.unit];
  has_gradient_[id.unit][id.index] = true;
  const bool kept_whole = get().plan().units[id.unit].gradients == GradientsKept::whole;
  if (kept_whole || passes_ == Passes::several || missing_[id.unit] > 0) return;
  sent_[id.unit] = true;
  get().reduce(id.unit);
}

void TorchEngine::end_micro_step() {
  begin_backward();  // where no gradient came
  get().end_micro_step();
  pass_ = Pass::none;
  in_backward_ = false;
  ++micro_steps_;
}

bool TorchEngine::finish_passes() {
  const DeviceScope scope = here();
  end_call();
  if (pass_ == Pass::training && in_backward_) end_micro_step();
  if (pass_ == Pass::training && micro_steps_ == 0) {  // a forward pass that nobody went back through
    get().abandon_pass();
    pass_ = Pass::none;
  }
  return micro_steps_ > 0;
}

bool TorchEngine::is_on_any_rank(bool here_too) {
  finish_passes();
  const DeviceScope scope = here();
  std::array ranks{here_too ? 1.0f : 0.0f};
  sum_over_ranks(get().collectives(), ranks);
  return ranks[0] > 0;
}

void TorchEngine::check_micro_steps(const char* call) {
  const std::int64_t wanted = get().plan().options.accumulation;
  if (micro_steps_ == wanted) return;
  throw Error(
      "{}: after {} of the {} backward passes that zeepo.init(grad_accum={}) has announced; run the others before, or "
      "drop these by optimizer.zero_grad()",
      call, micro_steps_, wanted, wanted);
}

float TorchEngine::unscale(float scale) {
  const DeviceScope scope = here();
  if (!finish_passes()) return 0;
  check_micro_steps("GradScaler");
  given_scale_ = scale;
  return get().clip_to(get().plan().options.clip, scale);
}

float TorchEngine::clip_to(float norm) {
  const DeviceScope scope = here();
  if (!finish_passes()) return 0;
  check_micro_steps("clip_grad_norm_");
  return get().clip_to(norm, given_scale_);
}

StepResult TorchEngine::step(const std::vector<StepRule>& rules) {
  if (!finish_passes()) return {};
  check_micro_steps("optimizer.step()");
  const DeviceScope scope = here();
  micro_steps_ = 0;  // the engine drops them also where it throws
  given_scale_ = 1;
  const StepResult result = get().step(StepRules(rules));
  get().settle(Engine::Settled::weights);
  return result;
}

void TorchEngine::drop_gradients() {
  if (micro_steps_ == 0 && !(pass_ == Pass::training && in_backward_)) return;
  const DeviceScope scope = here();
  end_call();
  get().abandon_pass();
  pass_ = Pass::none;
  in_backward_ = false;
  micro_steps_ = 0;
  given_scale_ = 1;
}

}  // namespace zeepo
