#include "zeepo/elastic/host_list.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"

namespace zeepo {
namespace {

constexpr int kMostSlots = 4096;
constexpr std::int64_t kLargestFile = 1 << 20;

// Names go to ssh and mpirun as words of a command.
bool is_name(const std::string& text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  return !text.empty() && letter(text[0]) &&
         std::ranges::all_of(text, [&](char c) { return letter(c) || c == '.' || c == '-' || c == '_'; });
}

int parse_slots(const std::string& entry, const std::string& text) {
  int slots = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, slots);
  if (error != std::errc{} || stop != end || slots < 1 || slots > kMostSlots)
    throw UsageError("train: --hosts: \"{}\": ranks must be a number from 1 to {}", entry, kMostSlots);
  return slots;
}

void add(std::vector<HostSlots>& hosts, const std::string& entry, const std::string& name, int slots) {
  if (!is_name(name))
    throw UsageError("train: --hosts: \"{}\": must be names of hosts as node1,node2:4, or a file with one a line",
                     entry);
  if (std::ranges::find(hosts, name, &HostSlots::name) != hosts.end())
    throw UsageError("train: --hosts: {} is there twice; name it once, as {}:2", name, name);
  hosts.push_back({name, slots});
}

std::vector<HostSlots> parse_list(const std::string& text, int ranks_per_host) {
  std::vector<HostSlots> hosts;
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::size_t colon = entry.find(':');
    const int slots = colon == std::string::npos ? ranks_per_host : parse_slots(entry, entry.substr(colon + 1));
    add(hosts, entry, entry.substr(0, colon), slots);
  }
  return hosts;
}

std::vector<HostSlots> parse_file(const std::string& text, int ranks_per_host) {
  constexpr std::string_view kSlots = "slots=";
  std::vector<HostSlots> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, word;
    if (!(words >> name)) continue;
    int slots = ranks_per_host;
    while (words >> word) {
      if (!word.starts_with(kSlots))
        throw UsageError("train: --hosts: \"{}\": a line of the file is a host and slots=N", line);
      slots = parse_slots(line, word.substr(kSlots.size()));
    }
    add(hosts, line, name, slots);
  }
  return hosts;
}

}  // namespace

std::vector<HostSlots> read_hosts(const std::string& text, int ranks_per_host) {
  if (text.empty()) return {{"localhost", ranks_per_host}};
  std::error_code none;  // a long list is no path that a file system takes
  const bool is_file = std::filesystem::is_regular_file(text, none);
  auto hosts = is_file ? parse_file(read_text(text, kLargestFile), ranks_per_host) : parse_list(text, ranks_per_host);
  if (hosts.empty()) throw UsageError("train: --hosts {}: names no host", text);
  return hosts;
}

bool is_this_machine(const std::string& host) {
  std::array<char, 256> own{};
  return host == "localhost" || host == "127.0.0.1" ||
         (::gethostname(own.data(), own.size() - 1) == 0 && host == own.data());
}

int slots_of(const std::vector<HostSlots>& hosts) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return slots;
}

std::string names_of(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) text += (text.empty() ? "" : ", ") + host.name;
  return text;
}

}  // namespace zeepo
