#include "zeepo/infer/coded_cache.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

constexpr std::size_t kHashedAtOnce = std::size_t{1} << 22;

std::string text_of(const XXH128_hash_t& hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

std::string hash_of(const std::filesystem::path& path) {
  const InputFile file(path);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<std::byte> bytes;
  for (std::int64_t at = 0; at < file.bytes(); at += static_cast<std::int64_t>(bytes.size())) {
    bytes.resize(std::min(kHashedAtOnce, static_cast<std::size_t>(file.bytes() - at)));
    file.read(at, bytes);
    XXH3_128bits_update(state.get(), bytes.data(), bytes.size());
  }
  return text_of(XXH3_128bits_digest(state.get()));
}

// What changes when somebody writes to the file, even where its time is put back afterwards. Empty where it cannot be
// told.
std::string state_of(const std::filesystem::path& path) {
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) return "";
  return fmt::format("{} {} {} {}.{:09} {}.{:09}", state.st_dev, state.st_ino, state.st_size, state.st_mtim.tv_sec,
                     state.st_mtim.tv_nsec, state.st_ctim.tv_sec, state.st_ctim.tv_nsec);
}

// What a note says. Nothing where it is damaged: it is written anew.
std::string text_of_note(const std::filesystem::path& note) {
  constexpr std::int64_t kLongest = 1 << 12;
  try {
    return file_exists(note) ? read_text(note, kLongest) : "";
  } catch (const Error&) {
    return "";
  }
}

// The hash of a file, from a note in the directory where the file is as it was then.
std::string known_hash_of(const std::filesystem::path& file, const std::filesystem::path& directory) {
  const std::string path = std::filesystem::absolute(file).string(), state = state_of(file);
  const std::filesystem::path note =
      directory / fmt::format("source-{}.txt", text_of(XXH3_128bits(path.data(), path.size())));
  const std::string noted = text_of_note(note);
  if (!state.empty() && noted.starts_with(state + "\n"))
    if (const std::string hash = noted.substr(state.size() + 1); hash.size() == 32) return hash;
  const std::string hash = hash_of(file);
  if (state_of(file) != state) throw Error("{}: was written to while it was read; run again", file.string());
  OutputFile out(note);
  out.write(state + "\n" + hash);
  out.commit(OutputFile::Sync::no);
  return hash;
}

// The file's path once it is whole.
std::string made(const std::string& command, const std::filesystem::path& directory, const WeightFiles& files,
                 CodedType type, const UnitPlan& units, const WeightSource& weights, CpuStream& stream) {
  try {
    std::filesystem::create_directories(directory);
    const std::string source = content_of(files, directory);
    const std::filesystem::path path = directory / fmt::format("{}-{}.codes", source, name_of(type));
    if (file_exists(path)) {
      try {
        const CodedFile whole(path, type, source, CodedFile::Check::all);
        return path.string();
      } catch (const Error& fault) {
        say("{}: quantised weights are made again: {}\n", command, fault.what());
      }
    }
    CodedFile::write(path, type, source, units, weights, stream);
    return path.string();
  } catch (const std::exception& fault) {
    say("{}: quantised weights are not kept: {}; name another directory with --cache-dir\n", command, fault.what());
    return "";
  }
}

}  // namespace

std::filesystem::path default_cache_directory() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return std::filesystem::path(cache) / "zeepo";
  if (const char* home = std::getenv("HOME"); home && *home) return std::filesystem::path(home) / ".cache" / "zeepo";
  return {};
}

std::string content_of(const WeightFiles& files, const std::filesystem::path& directory) {
  std::string all;
  for (const SafetensorsFile& file : files.files())
    all += file.path().filename().string() + " " + known_hash_of(file.path(), directory) + "\n";
  return text_of(XXH3_128bits(all.data(), all.size()));
}

CodedSource cached_codes(const std::string& command, const std::filesystem::path& directory, const WeightFiles& files,
                         CodedType type, const UnitPlan& units, const WeightSource& weights, CpuStream& stream,
                         Communicator& communicator) {
  const bool makes = communicator.local_rank() == 0;
  const std::string own = makes ? made(command, directory, files, type, units, weights, stream) : "";
  const std::vector<std::string> paths = gather_texts(communicator, own);
  const std::vector<int> nodes = communicator.nodes();
  const auto rank = static_cast<std::size_t>(communicator.rank());
  for (std::size_t r = 0; r < paths.size(); ++r) {
    if (nodes[r] != nodes[rank] || paths[r].empty()) continue;
    const std::filesystem::path path = paths[r];
    const std::string name = path.filename().string();
    const auto file = std::make_shared<CodedFile>(path, type, name.substr(0, name.find('-')), CodedFile::Check::table);
    return [file](const UnitParameter& parameter, CodedType wanted, std::int64_t first, std::span<std::byte> rows) {
      return file->read(parameter, wanted, first, rows);
    };
  }
  return {};
}

}  // namespace zeepo
