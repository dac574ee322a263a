#include "common/launch/cpu_binding.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "common/base/cpu_affinity.h"

namespace helios {
namespace {

constexpr int kHighestCpu = 65535;

Error refuse(std::string message) { return Error{Errc::kInvalidArgument, std::move(message), {}}; }

/// -1 unless all of `text` is a number of a CPU.
int cpu_number(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc{} && end == text.data() + text.size() && text.front() != '-';
  return whole && number <= kHighestCpu ? number : -1;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Appends "3" or "0-3" to `list`; false if `text` is neither.
bool append_range(std::string_view text, std::vector<int>* list) {
  const size_t dash = text.find('-');
  const int first = text.empty() ? -1 : cpu_number(text.substr(0, dash));
  const std::string_view behind = dash == std::string_view::npos ? text : text.substr(dash + 1);
  const int last = behind.empty() ? -1 : dash == std::string_view::npos ? first : cpu_number(behind);
  if (first < 0 || last < first) return false;
  for (int cpu = first; cpu <= last; ++cpu) list->push_back(cpu);
  return true;
}

std::vector<int> read_list(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const Result<std::vector<std::vector<int>>> lists = parse_cpu_lists(line);
  return lists.ok() ? lists->front() : std::vector<int>{};
}

/// Node of each CPU.
std::map<int, int> read_nodes(const std::filesystem::path& sys) {
  std::map<int, int> nodes;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(sys / "devices/system/node", none)) {
    const std::string name = entry.path().filename();
    const int node = name.starts_with("node") && name.size() > 4 ? cpu_number(name.substr(4)) : -1;
    if (node < 0) continue;
    for (const int cpu : read_list(entry.path() / "cpulist")) nodes[cpu] = node;
  }
  return nodes;
}

Result<CpuBinding> bind_to_list(const std::vector<int>& cpus, int threads, const std::vector<HostCpu>& host) {
  std::vector<int> allowed;
  for (const HostCpu& cpu : host) allowed.push_back(cpu.cpu);
  for (const int cpu : cpus) {
    if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end()) {
      return refuse(fmt::format("this process may not use CPU {}: expected some of {}", cpu, print_cpu_list(allowed)));
    }
  }
  if (threads == 0) threads = static_cast<int>(cpus.size());
  if (static_cast<int>(cpus.size()) < threads) {
    return refuse(fmt::format("{} is too few CPUs for --threads-per-rank {}", print_cpu_list(cpus),
                               threads));
  }
  return CpuBinding{.cpus = cpus, .each_thread = static_cast<int>(cpus.size()) == threads};
}

}  // namespace

std::vector<HostCpu> host_cpus(std::span<const int> cpus, const std::string& sys) {
  const std::map<int, int> nodes = read_nodes(sys);
  std::vector<HostCpu> host;
  for (const int cpu : cpus) {
    const std::vector<int> siblings =
        read_list(fmt::format("{}/devices/system/cpu/cpu{}/topology/thread_siblings_list", sys, cpu));
    const auto node = nodes.find(cpu);
    host.push_back({.cpu = cpu,
                    .node = node == nodes.end() ? 0 : node->second,
                    .core = siblings.empty() ? cpu : *std::min_element(siblings.begin(), siblings.end())});
  }
  return host;
}

Result<std::vector<std::vector<int>>> parse_cpu_lists(const std::string& text) {
  std::vector<std::vector<int>> lists;
  std::set<int> seen;
  for (const std::string_view part : split(text, '|')) {
    std::vector<int>& list = lists.emplace_back();
    for (const std::string_view range : split(part, ',')) {
      if (!append_range(range, &list)) {
        return refuse(fmt::format("'{}' is no list of CPUs: expected such as 0-3,8, and | between two ranks", text));
      }
    }
    for (const int cpu : list) {
      if (!seen.insert(cpu).second) return refuse(fmt::format("CPU {} is named twice", cpu));
    }
  }
  return lists;
}

std::vector<std::vector<int>> share_cpus(std::vector<HostCpu> host, int ranks) {
  const auto place = [](const HostCpu& cpu) { return std::tuple(cpu.node, cpu.core, cpu.cpu); };
  std::sort(host.begin(), host.end(), [&](const HostCpu& a, const HostCpu& b) { return place(a) < place(b); });
  std::vector<std::vector<int>> cores;  // each with its hyperthreads
  for (size_t i = 0; i < host.size(); ++i) {
    if (i == 0 || host[i].core != host[i - 1].core || host[i].node != host[i - 1].node) cores.emplace_back();
    cores.back().push_back(host[i].cpu);
  }
  // Fewer cores than ranks: their hyperthreads are shared out instead.
  if (cores.size() < static_cast<size_t>(ranks)) {
    cores.clear();
    for (const HostCpu& cpu : host) cores.push_back({cpu.cpu});
  }
  std::vector<std::vector<int>> shares(static_cast<size_t>(ranks));
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    const size_t begin = cores.size() * rank / shares.size(), end = cores.size() * (rank + 1) / shares.size();
    for (size_t thread = 0, added = 1; added > 0; ++thread) {  // all first hyperthreads, then all second ones, ...
      added = 0;
      for (size_t core = begin; core < end; ++core) {
        if (thread >= cores[core].size()) continue;
        shares[rank].push_back(cores[core][thread]);
        ++added;
      }
    }
  }
  return shares;
}

Result<CpuBinding> bind_rank(const std::string& how, int local_rank, int local_ranks, int threads,
                             const std::vector<HostCpu>& host) {
  if (how == "none") return CpuBinding{};
  if (how != "auto") {
    const Result<std::vector<std::vector<int>>> lists = parse_cpu_lists(how);
    if (!lists.ok()) return lists.error();
    if (lists->size() > 1 && static_cast<size_t>(local_rank) >= lists->size()) {
      return refuse(fmt::format("{} lists, but this is number {} of its host's ranks", lists->size(), local_rank));
    }
    return bind_to_list((*lists)[lists->size() > 1 ? static_cast<size_t>(local_rank) : 0], threads, host);
  }
  if (local_rank < 0 || local_rank >= local_ranks) {
    return refuse(fmt::format("auto: this is number {} of {} ranks of its host", local_rank, local_ranks));
  }
  const std::vector<int> share = share_cpus(host, local_ranks)[static_cast<size_t>(local_rank)];
  if (static_cast<int>(share.size()) < threads || share.empty()) {
    return CpuBinding{.why_unbound = fmt::format("{} ranks of {} threads on {} CPUs", local_ranks, threads,
                                                 host.size())};
  }
  return CpuBinding{.cpus = share, .each_thread = static_cast<int>(share.size()) == threads};
}

}  // namespace helios
