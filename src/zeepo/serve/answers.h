// Answers as JSON, and the numbers of a server for people and for Prometheus.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "zeepo/http/http_server.h"
#include "zeepo/serve/text_queue.h"

namespace zeepo {

// JSON as text; bytes that are not UTF-8 become U+FFFD.
std::string text_of(const nlohmann::ordered_json& json);
HttpResponse json_answer(const nlohmann::ordered_json& json, int status = 200);

// {"error":{"message":..,"type":..}}, with the type that OpenAI has for the status.
nlohmann::ordered_json error_json(const std::string& type, const std::string& message);
HttpResponse error_answer(int status, const std::string& message);
// What went wrong before a request could be read.
HttpResponse fault_answer(int status);

std::string prometheus_text(const ServeCounts& counts);
nlohmann::ordered_json counts_json(const ServeCounts& counts);

// The page to chat on and to watch the tiers.
std::string_view serve_page();

}  // namespace zeepo
