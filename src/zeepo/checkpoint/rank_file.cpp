#include "zeepo/checkpoint/rank_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/checkpoint/sealed_json.h"
#include "zeepo/model/safetensors_writer.h"
#include "zeepo/zero/state_values.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kElementsAtOnce = 1 << 18;  // on their way to the file
constexpr std::size_t kHeaderAlignment = 4096;     // of what follows

void check_finite(const std::string& name, std::int64_t begin, std::span<const float> values) {
  const std::size_t at = first_past(DType::f32, values);
  if (at < values.size())
    throw Error("element {} of the weight {} is {}: not a number that training can go on from",
                begin + static_cast<std::int64_t>(at), name, values[at]);
}

}  // namespace

StateFormat format_of(const EngineOptions& options) {
  return {.moments = static_cast<std::size_t>(state_count(options.optimizer)),
          .moment_dtype = options.optimizer.moments == MomentType::fp32 ? DType::f32 : DType::bf16};
}

std::string tensor_name(const std::string& weight, std::int64_t begin, std::int64_t end, std::size_t kind) {
  return fmt::format("{}[{}:{}]{}", weight, begin, end, kind == 0 ? "" : fmt::format(".moment{}", kind));
}

std::string RankFile::name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }
std::string RankFile::list_name(int rank) { return fmt::format("rank-{:05}.json", rank); }

RankFile::RankFile(FileOperations& operations, std::filesystem::path directory, int rank,
                   const std::vector<SnapshotPart>& parts, const StateFormat& format)
    : operations_(operations),
      directory_(std::move(directory)),
      rank_(rank),
      parts_(parts),
      format_(format),
      left_(parts.size()) {
  try {
    lay_out();
    make_file();
    if (parts.empty()) finish();
  } catch (const std::exception& error) {
    fail(error.what());
  }
  done_ = parts.empty();
}

void RankFile::lay_out() {
  std::vector<SafetensorsWriter::Tensor> table;
  std::int64_t at = 0;
  for (const SnapshotPart& part : parts_) {
    first_.push_back(tensors_.size());
    for (const auto& slice : part.slices)
      for (std::size_t kind = 0; kind <= (part.piece ? format_.moments : 0); ++kind) {
        const DType dtype = kind == 0 ? DType::f32 : format_.moment_dtype;
        std::string name = tensor_name(slice.name, slice.begin, slice.begin + slice.elements, kind);
        table.push_back({name, dtype, {slice.elements}});
        tensors_.push_back({std::move(name), dtype, slice.elements, at});
        at += slice.elements * static_cast<std::int64_t>(size_of(dtype));
      }
  }
  header_ = SafetensorsWriter::header(table, {{"format", "zeepo checkpoint"}}, kHeaderAlignment);
  for (Tensor& tensor : tensors_) tensor.offset += static_cast<std::int64_t>(header_.size());
  bytes_ = at + static_cast<std::int64_t>(header_.size());
}

void RankFile::make_file() {
  file_ = std::make_unique<SaveFile>(operations_, directory_ / name(rank_));
  file_->allocate(bytes_);
  file_->write(0, std::as_bytes(std::span(header_)));
}

void RankFile::write(std::size_t part, const StateViews& states, const View& param) noexcept {
  try {
    if (!failed_) write_part(part, states, param);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  if (left_.fetch_sub(1) > 1) return;
  try {
    if (!failed_) finish();
  } catch (const std::exception& error) {
    fail(error.what());
  }
  done_ = true;
}

void RankFile::write_part(std::size_t index, const StateViews& states, const View& param) {
  const SnapshotPart& part = parts_[index];
  std::size_t tensor = first_[index];
  for (const auto& slice : part.slices) {
    write_tensor(tensors_[tensor++], [&](std::int64_t begin, std::span<float> out) {
      load_weights(param, states.remainder, slice.at + begin, out);
      if (format_.finite_weights) check_finite(slice.name, slice.begin + begin, out);
    });
    for (std::size_t i = 0; i < states.moments.size(); ++i)
      write_tensor(tensors_[tensor++], [&](std::int64_t begin, std::span<float> out) {
        load_moment(i == 0 ? MomentOrder::first : MomentOrder::second, states.moments[i], slice.at + begin, out);
      });
  }
}

template <class Load>
void RankFile::write_tensor(Tensor& tensor, const Load& load) {
  thread_local std::vector<float> values;
  thread_local std::vector<bf16> narrow;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> sum(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(sum.get());
  std::int64_t at = tensor.offset;
  for (std::int64_t begin = 0; begin < tensor.elements; begin += kElementsAtOnce) {
    const auto count = static_cast<std::size_t>(std::min(kElementsAtOnce, tensor.elements - begin));
    values.resize(count);
    load(begin, std::span(values));
    std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    if (tensor.dtype == DType::bf16) {
      narrow.resize(count);
      std::ranges::transform(values, narrow.begin(), from_float<bf16>);
      bytes = std::as_bytes(std::span(narrow));
    }
    XXH3_64bits_update(sum.get(), bytes.data(), bytes.size());
    file_->write(at, bytes);
    at += static_cast<std::int64_t>(bytes.size());
  }
  tensor.checksum = XXH3_64bits_digest(sum.get());
}

void RankFile::finish() {
  file_->sync();
  Json sums = Json::array();
  for (const Tensor& tensor : tensors_) sums.push_back({tensor.name, checksum_text(tensor.checksum)});
  const Json list{{"name", name(rank_)},
                  {"bytes", bytes_},
                  {"header", checksum_of(std::as_bytes(std::span(header_)))},
                  {"tensors", std::move(sums)}};
  save_text(operations_, directory_ / list_name(rank_), seal(list));
}

void RankFile::fail(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  if (!failed_) failure_ = cause;
  failed_ = true;
}

std::string RankFile::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace zeepo
