// The hosts that a run may use, as --hosts names them.
#pragma once

#include <string>
#include <vector>

namespace zeepo {

struct HostSlots {
  std::string name;
  int slots = 1;  // ranks that it takes
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// "node1,node2:4", or the path of a file with a host a line, "node2 slots=4", where # begins a comment. Empty: this
// machine. Throws UsageError for a name that is none, or twice there.
std::vector<HostSlots> read_hosts(const std::string& text, int ranks_per_host);

// Needs no network: localhost, or the machine's own name.
bool is_this_machine(const std::string& host);

int slots_of(const std::vector<HostSlots>& hosts);
// "node1, node2"
std::string names_of(const std::vector<HostSlots>& hosts);

}  // namespace zeepo
