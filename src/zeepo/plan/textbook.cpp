#include "zeepo/plan/textbook.h"

#include "zeepo/base/error.h"
#include "zeepo/plan/count.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

ActivationFigures activations_of(const TextbookQuestion& question) {
  const TransformerShape& shape = *question.shape;
  const TokenBatchShape& gpu = question.batch;
  const TokenBatchShape node{checked_product("samples of a node", {gpu.samples, question.gpus_per_node}), gpu.seq_len};
  const std::int64_t interval = question.checkpoint_interval;
  return {.checkpoint_bytes_per_node = activation_checkpoint_bytes(shape, node, interval),
          .full_bytes_per_node = activation_bytes(shape, node),
          .checkpoint_bytes_per_gpu = activation_checkpoint_bytes(shape, gpu, interval),
          .full_bytes_per_gpu = activation_bytes(shape, gpu),
          .model_state_working_bytes = model_state_working_bytes(shape.hidden),
          .working_bytes = activation_working_bytes(shape, gpu, interval)};
}

BandwidthFigures bandwidth_of(const TextbookQuestion& question, const char* what, double intensity) {
  BandwidthFigures figures{.what = what,
                           .intensity = intensity,
                           .bytes_per_second_for_50 = bandwidth_for(0.5, intensity, question.peak_flops),
                           .bytes_per_second_for_90 = bandwidth_for(0.9, intensity, question.peak_flops),
                           .efficiency = std::nullopt};
  if (question.bytes_per_second)
    figures.efficiency = efficiency_at(*question.bytes_per_second, intensity, question.peak_flops);
  return figures;
}

Json json_of(const StageFigures& figures) {
  return {{"stage", figures.stage},
          {"bytes_per_rank", figures.bytes.total},
          {"comm_elements_per_step", figures.comm_elements},
          {"params_bytes", figures.bytes.params},
          {"grads_bytes", figures.bytes.grads},
          {"optimizer_bytes", figures.bytes.optimizer}};
}

Json json_of(const BandwidthFigures& figures) {
  Json json{{"for", figures.what},
            {"ait", figures.intensity},
            {"gbps_for_50", figures.bytes_per_second_for_50 / 1e9},
            {"gbps_for_90", figures.bytes_per_second_for_90 / 1e9}};
  if (figures.efficiency) json["efficiency"] = *figures.efficiency;
  return json;
}

}  // namespace

TextbookQuestion TextbookQuestion::of(const TransformerShape& shape) {
  TextbookQuestion question;
  question.params = transformer_params(shape);
  question.shape = shape;
  return question;
}

Textbook textbook_of(const TextbookQuestion& question) {
  if (question.gpus_per_node < 1)
    throw UsageError("plan: --gpus-per-node {}: must be at least 1", question.gpus_per_node);
  Textbook textbook{.question = question,
                    .embedding_params = 0,
                    .flops_per_step = work_per_iteration(question.params, question.batch),
                    .stages = {},
                    .activations = std::nullopt,
                    .bandwidth = {}};
  for (int stage = 0; stage < kZeroStages; ++stage)
    textbook.stages[static_cast<std::size_t>(stage)] = {
        .stage = stage,
        .bytes = state_bytes(stage, question.params, question.ranks, question.bytes),
        .comm_elements = comm_elements(stage, question.params)};
  textbook.bandwidth.push_back(bandwidth_of(question, "params+grads", intensity_of_params_and_grads(question.batch)));
  textbook.bandwidth.push_back(
      bandwidth_of(question, "optimizer states", intensity_of_optimizer_states(question.batch)));
  if (question.shape) {
    textbook.activations = activations_of(question);
    textbook.embedding_params =
        checked_product("parameters of the embedding", {question.vocab, question.shape->hidden});
    textbook.bandwidth.push_back(
        bandwidth_of(question, "activation checkpoints",
                     intensity_of_activation_checkpoints(question.shape->hidden, question.checkpoint_interval)));
  }
  return textbook;
}

Json to_json(const Textbook& textbook) {
  const TextbookQuestion& question = textbook.question;
  Json json{{"params", question.params}};
  if (textbook.embedding_params > 0) json["embedding_params"] = textbook.embedding_params;
  json["ranks"] = question.ranks;
  json["gpus_per_node"] = question.gpus_per_node;
  json["bytes_per_param"] = question.bytes.total();
  json["seq_len"] = question.batch.seq_len;
  json["micro_batch"] = question.batch.samples;
  json["flops_per_rank_per_step"] = textbook.flops_per_step;
  json["share"] = {{"most", plain_share(question.params, question.ranks, 0)},
                   {"least", plain_share(question.params, question.ranks, question.ranks - 1)}};
  json["stages"] = Json::array();
  for (const StageFigures& figures : textbook.stages) json["stages"].push_back(json_of(figures));
  json["activations"] = nullptr;
  json["working"] = nullptr;
  if (const auto& figures = textbook.activations) {
    json["activations"] = {{"checkpoint_bytes_per_node", figures->checkpoint_bytes_per_node},
                           {"full_bytes_per_node", figures->full_bytes_per_node},
                           {"checkpoint_interval", question.checkpoint_interval}};
    json["working"] = {{"model_state_bytes", figures->model_state_working_bytes},
                       {"activation_bytes", figures->working_bytes}};
  }
  json["bandwidth"] = Json::array();
  for (const BandwidthFigures& figures : textbook.bandwidth) json["bandwidth"].push_back(json_of(figures));
  return json;
}

}  // namespace zeepo
