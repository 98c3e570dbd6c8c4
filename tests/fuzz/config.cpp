// Any bytes as config.json and as generation_config.json: an Error at worst, and a config that loads must be usable.
#include "zeepo/model/config.h"

#include <cmath>
#include <cstdlib>

#include "zeepo/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const zeepo::ModelConfig config = zeepo::parse_config(json);
    if (config.windows.size() != static_cast<std::size_t>(config.layers)) std::abort();
    if (config.heads % config.kv_heads != 0 || !std::isfinite(config.attention_scale(config.layers - 1))) std::abort();
    if (config.architecture != zeepo::Architecture::gpt2)
      if (zeepo::inverse_frequencies(config.rope, config.head_dim).size() * 2 !=
          static_cast<std::size_t>(config.head_dim))
        std::abort();
  } catch (const zeepo::Error&) {
  }
  try {
    zeepo::parse_generation_eos(json, "generation_config.json");
  } catch (const zeepo::Error&) {
  }
  return 0;
}
