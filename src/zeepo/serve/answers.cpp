#include "zeepo/serve/answers.h"

#include <fmt/format.h>

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 500:
    case 503: return "server_error";
    default: return "invalid_request_error";
  }
}

}  // namespace

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

HttpResponse json_answer(const Json& json, int status) { return {status, "application/json", text_of(json)}; }

Json error_json(const std::string& type, const std::string& message) {
  return {{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", nullptr}}}};
}

HttpResponse error_answer(int status, const std::string& message) {
  return json_answer(error_json(type_of(status), message), status);
}

HttpResponse fault_answer(int status) {
  switch (status) {
    case 404: return error_answer(status, "there is no such path, or not for this method");
    case 408: return error_answer(status, "the request has not come to its end in time");
    case 413: return error_answer(status, "the body is larger than this server takes");
    case 500: return error_answer(status, "the server failed");
    default: return error_answer(status, "the request cannot be read as HTTP");
  }
}

std::string prometheus_text(const ServeCounts& counts) {
  std::string text;
  const auto describe = [&](const char* name, const char* type, const char* help) {
    text += fmt::format("# HELP zeepo_{} {}\n# TYPE zeepo_{} {}\n", name, help, name, type);
  };
  const auto add = [&](const char* name, const char* type, const char* help, auto value, const char* labels = "") {
    if (*help != '\0') describe(name, type, help);
    text += fmt::format("zeepo_{}{} {}\n", name, labels, value);
  };
  add("requests_running", "gauge", "Texts in the batch.", counts.running);
  add("requests_waiting", "gauge", "Texts that wait for a place.", counts.waiting);
  add("requests_ended_total", "counter", "Texts that came to their end.", counts.ended);
  add("requests_refused_total", "counter", "Requests that found no place.", counts.refused);
  add("requests_abandoned_total", "counter", "Texts whose client has gone.", counts.abandoned);
  add("prompt_tokens_total", "counter", "Tokens of prompts.", counts.prompt_tokens);
  add("generated_tokens_total", "counter", "Tokens made.", counts.new_tokens);
  add("drafted_tokens_total", "counter", "Tokens drafted ahead of a pass.", counts.drafted.tokens);
  add("accepted_tokens_total", "counter", "Drafted tokens that were right.", counts.drafted.accepted);
  add("kv_pages", "gauge", "Pages of the KV cache.", counts.kv_pages);
  add("kv_pages_free", "gauge", "Pages that no text has.", counts.kv_free_pages);
  add("passes_total", "counter", "Passes through the model.", counts.passes);
  add("pass_seconds_total", "counter", "Seconds of all passes.", counts.pass_seconds);
  describe("time_to_first_token_seconds", "summary", "Seconds until first tokens.");
  add("time_to_first_token_seconds_sum", "", "", counts.first_token_seconds);
  add("time_to_first_token_seconds_count", "", "", counts.first_tokens);
  add("stall_seconds_total", "counter", "Seconds that passes waited, by what for.", counts.stalls.gather,
      "{tier=\"gather\"}");
  add("stall_seconds_total", "counter", "", counts.stalls.host, "{tier=\"host\"}");
  add("stall_seconds_total", "counter", "", counts.stalls.nvme, "{tier=\"nvme\"}");
  add("streamed_bytes_total", "counter", "Bytes of weights moved, by link.", counts.moved.carried.to_device,
      "{link=\"host_to_device\"}");
  add("streamed_bytes_total", "counter", "", counts.moved.carried.read, "{link=\"files\"}");
  add("streamed_bytes_total", "counter", "", counts.moved.sent.all_gather, "{link=\"ranks\"}");
  return text;
}

Json counts_json(const ServeCounts& counts) {
  const PassReport& pass = counts.last_pass;
  return {{"running", counts.running},
          {"waiting", counts.waiting},
          {"ended", counts.ended},
          {"refused", counts.refused},
          {"abandoned", counts.abandoned},
          {"prompt_tokens", counts.prompt_tokens},
          {"generated_tokens", counts.new_tokens},
          {"passes", counts.passes},
          {"speculation", {{"drafted", counts.drafted.tokens}, {"accepted", counts.drafted.accepted}}},
          {"seconds_to_first_token",
           counts.first_tokens > 0 ? counts.first_token_seconds / static_cast<double>(counts.first_tokens) : 0.0},
          {"kv_pages", {{"all", counts.kv_pages}, {"free", counts.kv_free_pages}}},
          {"last_pass",
           {{"seconds", pass.seconds},
            {"tokens", counts.last_pass_tokens},
            {"stall_seconds", {{"gather", pass.stalls.gather}, {"host", pass.stalls.host}, {"nvme", pass.stalls.nvme}}},
            {"bytes",
             {{"host_to_device", pass.moved.carried.to_device},
              {"files", pass.moved.carried.read},
              {"ranks", pass.moved.sent.all_gather}}}}}};
}

}  // namespace zeepo
