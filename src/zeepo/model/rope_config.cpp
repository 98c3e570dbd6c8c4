#include "zeepo/model/rope_config.h"

#include <cmath>
#include <numbers>

#include "zeepo/model/config_parsers.h"

namespace zeepo {
namespace {

// `rope_scaling` wins over `rope_parameters` unless it is null or empty, as in transformers.
const char* section_of(const ConfigFields& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json* section = config.find(key);
    if (section == nullptr) continue;
    if (!section->is_object()) config.refuse(key, "must be an object");
    if (!section->empty()) return key;
  }
  return nullptr;
}

void refuse_partial_rotation(const ConfigFields& fields) {
  if (fields.optional_number("partial_rotary_factor").value_or(1.0) != 1.0)
    fields.refuse("partial_rotary_factor", "only whole heads are rotated, must be 1");
}

double positive(const ConfigFields& fields, const char* key) {
  const auto value = fields.optional_number(key);
  if (!value || !(*value > 0)) fields.refuse(key, "must be a number above 0");
  return *value;
}

double theta_of(const ConfigFields& fields, double absent) {
  return fields.find("rope_theta") == nullptr ? absent : positive(fields, "rope_theta");
}

void parse_llama3(const ConfigFields& config, const ConfigFields& section, std::int64_t max_positions,
                  RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::llama3;
  rope.factor = positive(section, "factor");
  rope.low_freq_factor = positive(section, "low_freq_factor");
  rope.high_freq_factor = positive(section, "high_freq_factor");
  if (!(rope.high_freq_factor > rope.low_freq_factor))
    section.refuse("high_freq_factor", fmt::format("must be above low_freq_factor, {}", rope.low_freq_factor));
  const char* key = "original_max_position_embeddings";
  rope.original_max_positions = config.optional_size(key, kMaxPositions)
                                    .value_or(section.optional_size(key, kMaxPositions).value_or(max_positions));
}

}  // namespace

RopeConfig parse_rope(const nlohmann::json& config, std::int64_t max_positions, const std::string& what) {
  const ConfigFields top(config, what);
  refuse_partial_rotation(top);
  RopeConfig rope;
  rope.theta = theta_of(top, rope.theta);
  const char* key = section_of(top);
  if (key == nullptr) return rope;

  const ConfigFields section(config.at(key), what, std::string(key) + ".");
  for (const char* layers : {"full_attention", "sliding_attention"})
    if (section.has(layers)) section.fail(layers, "a rotation of its own for each kind of layer is not supported");
  refuse_partial_rotation(section);
  rope.theta = theta_of(section, rope.theta);
  const char* type_key = section.has("rope_type") || !section.has("type") ? "rope_type" : "type";
  const std::string type = section.text(type_key, "default");
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::linear;
    rope.factor = positive(section, "factor");
  } else if (type == "llama3") {
    parse_llama3(top, section, max_positions, rope);
  } else if (type != "default") {
    section.refuse(type_key, "not supported, must be default, linear or llama3");
  }
  return rope;
}

std::vector<float> inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  const auto theta = static_cast<float>(rope.theta);
  const auto factor = static_cast<float>(rope.factor);
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    // The power is rounded once, from double; every other step is a step of an fp32 tensor, divisions by a tensor
    // being products with its reciprocal.
    const auto power = static_cast<float>(std::pow(double{theta}, double{exponent}));
    float frequency = 1.0f / power;
    if (rope.scaling == RopeConfig::Scaling::linear) frequency /= factor;
    if (rope.scaling == RopeConfig::Scaling::llama3) {
      const auto old_positions = static_cast<double>(rope.original_max_positions);
      const auto low_wavelength = static_cast<float>(old_positions / rope.low_freq_factor);
      const auto high_wavelength = static_cast<float>(old_positions / rope.high_freq_factor);
      const float wavelength = 1.0f / frequency * static_cast<float>(2 * std::numbers::pi);
      if (wavelength > low_wavelength) {
        frequency /= factor;
      } else if (!(wavelength < high_wavelength)) {
        const float smooth =
            (1.0f / wavelength * static_cast<float>(old_positions) - static_cast<float>(rope.low_freq_factor)) /
            static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
        frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
      }
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace zeepo
