#include "zeepo/checkpoint/checkpoint.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/checkpoint/checkpoint_directory.h"
#include "zeepo/checkpoint/sealed_json.h"
#include "zeepo/model/safetensors_writer.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

constexpr std::int64_t kMaxManifestBytes = std::int64_t{1} << 30;
constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;
constexpr std::size_t kMostKinds = 3;  // of tensors of a range: the weight and two moments

struct TensorKey {
  std::string weight;
  std::int64_t begin, end;
  std::size_t kind;
};

std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

// "NAME[begin:end]" or "NAME[begin:end].moment1"
std::optional<TensorKey> parse_key(std::string_view text) {
  const std::size_t bracket = text.rfind('[');
  if (bracket == std::string_view::npos) return std::nullopt;
  TensorKey key{std::string(text.substr(0, bracket)), 0, 0, 0};
  text.remove_prefix(bracket + 1);
  const auto begin = take_number(text);
  if (!begin || !take(text, ":")) return std::nullopt;
  const auto end = take_number(text);
  if (!end || !take(text, "]") || *begin >= *end) return std::nullopt;
  key.begin = *begin, key.end = *end;
  if (text.empty()) return key;
  if (!take(text, ".moment")) return std::nullopt;
  const auto moment = take_number(text);
  if (!moment || *moment < 1 || *moment >= static_cast<std::int64_t>(kMostKinds) || !text.empty()) return std::nullopt;
  key.kind = static_cast<std::size_t>(*moment);
  return key;
}

[[noreturn]] void refuse_without_manifest(const std::filesystem::path& directory) {
  if (!file_exists(directory)) throw Error("{}: there is no such checkpoint", directory.string());
  std::error_code ignored;
  if (std::filesystem::is_directory(directory, ignored))
    if (const auto inside = list_checkpoints(directory); !inside.empty())
      throw Error("{}: a directory of checkpoints, and none itself; name one of them, as {}", directory.string(),
                  inside.back().path.string());
  throw Error("{}: not a checkpoint: it has no {}", directory.string(), kManifestName);
}

}  // namespace

Manifest read_manifest(const std::filesystem::path& directory) {
  const std::filesystem::path manifest = directory / kManifestName;
  if (!file_exists(manifest)) refuse_without_manifest(directory);
  return parse_manifest(read_text(manifest, kMaxManifestBytes), manifest.string());
}

Checkpoint::Checkpoint(const std::filesystem::path& directory) : path_(directory), manifest_(read_manifest(directory)) {
  for (const auto& listed : manifest_.files) open_file(listed);
  check_ranges();
}

std::string Checkpoint::checksum_in(const InputFile& file, std::int64_t offset, std::int64_t bytes) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> sum(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(sum.get());
  for (std::int64_t at = 0; at < bytes; at += kChunkBytes) {
    chunk_.resize(static_cast<std::size_t>(std::min(kChunkBytes, bytes - at)));
    file.read(offset + at, chunk_);
    XXH3_64bits_update(sum.get(), chunk_.data(), chunk_.size());
  }
  return checksum_text(XXH3_64bits_digest(sum.get()));
}

void Checkpoint::open_file(const Manifest::StateFile& listed) {
  const std::filesystem::path path = path_ / listed.name;
  StateFile opened{InputFile(path), 0};
  if (opened.file.bytes() != listed.bytes)
    throw Error("{}: damaged: {} bytes, and the manifest says {}", path.string(), opened.file.bytes(), listed.bytes);
  std::uint64_t length = 0;
  opened.file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<std::uint64_t>(std::min<std::int64_t>(listed.bytes - 8, kMaxManifestBytes)))
    throw Error("{}: damaged: a header of {} bytes", path.string(), length);
  opened.data_offset = 8 + static_cast<std::int64_t>(length);
  if (checksum_in(opened.file, 0, opened.data_offset) != listed.header)
    throw Error("{}: damaged: the checksum of its header is not the manifest's", path.string());
  std::string text(length, ' ');
  opened.file.read(8, std::as_writable_bytes(std::span(text)));
  const auto header = parse_safetensors_header(text, listed.bytes - opened.data_offset, path.string());
  if (header.entries.size() != listed.tensors.size())
    throw Error("{}: {} tensors, and the manifest lists {}", path.string(), header.entries.size(),
                listed.tensors.size());
  for (const auto& [name, sum] : listed.tensors) {
    const SafetensorsEntry* entry = header.find(name);
    if (!entry || (entry->dtype != DType::f32 && entry->dtype != DType::bf16))
      throw Error("{}: tensor {} of the manifest is not there in fp32 or bf16", path.string(), shown(name));
    tensors_.push_back(
        {files_.size(), name, *entry->dtype, opened.data_offset + entry->begin_byte, entry->elements, sum});
    index_tensor(tensors_.size() - 1);
  }
  files_.push_back(std::move(opened));
}

void Checkpoint::index_tensor(std::size_t index) {
  const Tensor& tensor = tensors_[index];
  const auto key = parse_key(tensor.name);
  if (!key || key->end - key->begin != tensor.elements)
    throw Error("{}: tensor {}: not a range of a weight", path_.string(), shown(tensor.name));
  auto& ranges = weights_[key->weight];
  const bool follows = !ranges.empty() && ranges.back().begin == key->begin && ranges.back().end == key->end;
  if (!follows) ranges.push_back({key->begin, key->end, {}});
  if (ranges.back().tensors.size() != key->kind)
    throw Error("{}: tensor {}: out of order", path_.string(), shown(tensor.name));
  ranges.back().tensors.push_back(index);
}

// Each weight of the manifest is there whole, each element once.
void Checkpoint::check_ranges() {
  std::size_t known = 0;
  for (const auto& [name, shape] : manifest_.weights) {
    const auto found = weights_.find(name);
    if (found == weights_.end()) throw Error("{}: no file has weight {}", path_.string(), shown(name));
    ++known;
    auto& ranges = found->second;
    std::ranges::sort(ranges, {}, &Range::begin);
    std::int64_t at = 0;
    for (const Range& range : ranges) {
      if (range.begin != at)
        throw Error("{}: weight {}: elements from {} on are {}", path_.string(), shown(name), std::min(at, range.begin),
                    range.begin > at ? "missing" : "there twice");
      at = range.end;
    }
    if (const std::int64_t elements = elements_of(name, shape); at != elements)
      throw Error("{}: weight {}: {} of {} elements are there", path_.string(), shown(name), at, elements);
  }
  if (known != weights_.size()) throw Error("{}: files have weights that the manifest does not know", path_.string());
}

std::int64_t Checkpoint::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& file : manifest_.files) bytes += file.bytes;
  return bytes;
}

void Checkpoint::check_tensor(Tensor& tensor) {
  if (tensor.verified) return;
  const InputFile& file = files_[tensor.file].file;
  const std::int64_t bytes = tensor.elements * static_cast<std::int64_t>(size_of(tensor.dtype));
  if (checksum_in(file, tensor.offset, bytes) != tensor.checksum)
    throw Error("{}: tensor {} is damaged: its checksum is not the manifest's", file.path().string(),
                shown(tensor.name));
  tensor.verified = true;
}

void Checkpoint::read(const std::string& weight, std::size_t kind, std::int64_t begin, std::span<float> out) {
  const auto found = weights_.find(weight);
  if (found == weights_.end()) throw Error("{}: has no weight {}", path_.string(), shown(weight));
  const std::vector<Range>& ranges = found->second;
  auto range = std::ranges::upper_bound(ranges, begin, {}, &Range::begin);
  for (--range; !out.empty(); ++range) {
    if (range == ranges.end())
      throw Error("{}: weight {} ends before element {}", path_.string(), shown(weight), begin);
    const auto count =
        static_cast<std::size_t>(std::min<std::int64_t>(range->end - begin, static_cast<std::int64_t>(out.size())));
    const std::span<float> part = out.first(count);
    if (kind < range->tensors.size()) {
      Tensor& tensor = tensors_[range->tensors[kind]];
      check_tensor(tensor);
      const std::int64_t offset =
          tensor.offset + (begin - range->begin) * static_cast<std::int64_t>(size_of(tensor.dtype));
      if (tensor.dtype == DType::f32) {
        files_[tensor.file].file.read(offset, std::as_writable_bytes(part));
      } else {
        std::vector<bf16> narrow(count);
        files_[tensor.file].file.read(offset, std::as_writable_bytes(std::span(narrow)));
        std::ranges::transform(narrow, part.begin(), [](bf16 x) { return to_float(x); });
      }
    } else {
      std::ranges::fill(part, 0.0f);
    }
    out = out.subspan(count);
    begin += static_cast<std::int64_t>(count);
  }
}

void Checkpoint::verify_model_files() {
  for (const auto& listed : manifest_.model_files) {
    const InputFile file(model_folder() / listed.name);
    if (file.bytes() != listed.bytes || checksum_in(file, 0, file.bytes()) != listed.checksum)
      throw Error("{}: damaged: size or checksum is not the manifest's", file.path().string());
  }
}

void Checkpoint::verify(const std::function<void(std::int64_t bytes)>& progress) {
  verify_model_files();
  std::int64_t done = 0;
  for (Tensor& tensor : tensors_) {
    check_tensor(tensor);
    done += tensor.elements * static_cast<std::int64_t>(size_of(tensor.dtype));
    if (progress) progress(done);
  }
}

}  // namespace zeepo
