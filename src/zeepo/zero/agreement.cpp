#include "zeepo/zero/agreement.h"

#include <algorithm>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/base/thread_pool.h"

namespace zeepo {
namespace {

std::vector<std::int32_t> gather(Communicator& communicator, const std::vector<std::int32_t>& own, const Label& label) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const auto n = static_cast<std::int64_t>(own.size()), ranks = static_cast<std::int64_t>(communicator.size());
  std::vector<std::int32_t> all(own.size() * static_cast<std::size_t>(ranks));
  communicator.all_gather(stream, ConstView{own.data(), DType::i32, {n}}, View{all.data(), DType::i32, {ranks * n}},
                          label);
  return all;
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text) {
  const auto sizes = gather(communicator, {static_cast<std::int32_t>(text.size())}, {"sizes of texts", 0});
  const auto largest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::int32_t> padded(largest / sizeof(std::int32_t) + 1);
  std::memcpy(padded.data(), text.data(), text.size());
  const auto all = gather(communicator, padded, {"texts", 0});
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < sizes.size(); ++r)
    texts.emplace_back(reinterpret_cast<const char*>(all.data() + r * padded.size()),
                       static_cast<std::size_t>(sizes[r]));
  return texts;
}

std::int32_t largest_over_ranks(Communicator& communicator, std::int32_t own) {
  const auto all = gather(communicator, {own}, {"a number of each rank", 0});
  return *std::ranges::max_element(all);
}

void check_agreement(Communicator& communicator, const std::vector<std::pair<std::string, std::string>>& values) {
  if (communicator.size() == 1) return;
  for (const auto& [name, value] : values) {
    const auto texts = gather_texts(communicator, value);
    for (std::size_t r = 1; r < texts.size(); ++r)
      if (texts[r] != texts[0])
        throw Error(
            "the ranks differ in {}: rank 0 has {}, rank {} has {}; start all of them with the same command and "
            "files",
            name, texts[0], r, texts[r]);
  }
}

}  // namespace zeepo
