// A real process of a cluster test: started, watched through files, and never left behind.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace helios::testing {

using std::chrono::milliseconds;

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline bool wait_until(const std::function<bool()>& condition, milliseconds patience = milliseconds(60000)) {
  for (const auto end = std::chrono::steady_clock::now() + patience; std::chrono::steady_clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return false;
}

/// A directory for one test's logs, which also marks its processes: they carry it in their environment.
class Scene {
 public:
  Scene() {
    std::string pattern = (std::filesystem::temp_directory_path() / "helios-scene-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("cannot make a directory for the test");
    dir_ = pattern;
  }
  ~Scene() { std::filesystem::remove_all(dir_); }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  const std::filesystem::path& dir() const { return dir_; }

  /// Command lines of the processes that this test has started, directly or not, and that still run.
  std::vector<std::string> left_running() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos || std::stoi(name) == ::getpid()) continue;
      if (read_file(entry.path() / "environ").find(dir_.string()) == std::string::npos) continue;
      const std::string stat = read_file(entry.path() / "stat");
      const size_t end = stat.rfind(')');
      if (end == std::string::npos || stat.size() < end + 3 || stat[end + 2] == 'Z') continue;
      std::string command = read_file(entry.path() / "cmdline");
      for (char& c : command) c = c ? c : ' ';
      found.push_back(name + " " + command);
    }
    return found;
  }

 private:
  std::filesystem::path dir_;
};

class RealProcess {
 public:
  using Variables = std::map<std::string, std::string>;

  /// Variables that launchers set are taken out of the environment first: the test may itself run under one.
  RealProcess(const Scene& scene, const std::string& name, std::vector<std::string> command,
              const Variables& variables = {})
      : out_(scene.dir() / (name + ".out")), err_(scene.dir() / (name + ".err")) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    for (const char* prefix : {"OMPI_", "PMI", "SLURM_", "HELIOS_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_"}) {
      drop_variables(prefix);
    }
    ::setenv("HELIOS_TEST_SCENE", scene.dir().c_str(), 1);
    for (const auto& [key, value] : variables) ::setenv(key.c_str(), value.c_str(), 1);
    ::dup2(::open(out_.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600), 1);
    ::dup2(::open(err_.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600), 2);
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    ::_exit(126);
  }
  RealProcess(const RealProcess&) = delete;
  RealProcess& operator=(const RealProcess&) = delete;
  ~RealProcess() {
    if (pid_ <= 0) return;
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  std::string output() const { return read_file(out_); }
  std::string errors() const { return read_file(err_); }

  /// Exit code, 128 + signal, or -1 when it does not end in time.
  int wait_for_exit(milliseconds patience = milliseconds(60000)) {
    int status = 0;
    if (!wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, patience)) return -1;
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// The port of `ready http://HOST:PORT`, or 0 when the process ends or says nothing in time.
  int wait_for_ready_port() {
    int port = 0;
    wait_until([&] {
      const std::string text = output();
      const size_t line = text.find("ready http://");
      const size_t end = text.find('\n', line == std::string::npos ? 0 : line);
      if (line != std::string::npos && end != std::string::npos) port = std::atoi(&text[text.rfind(':', end) + 1]);
      siginfo_t info{};
      return port > 0 ||
             (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_);
    });
    return port;
  }

 private:
  static void drop_variables(const std::string& prefix) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry; ++entry) {
      const std::string text = *entry;
      if (text.starts_with(prefix)) names.push_back(text.substr(0, text.find('=')));
    }
    for (const std::string& name : names) ::unsetenv(name.c_str());
  }

  const std::filesystem::path out_, err_;
  pid_t pid_ = 0;
};

/// Where the built programs and the demo model are; the environment may name others.
inline std::string bin_dir() {
  const char* given = std::getenv("HELIOS_BIN");
  return given && *given ? given : HELIOS_BIN_DEFAULT;
}
inline std::string demo_model() {
  const char* given = std::getenv("HELIOS_DEMO");
  return given && *given ? given : HELIOS_DEMO_DEFAULT;
}

/// A TCP port that was free a moment ago.
inline int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  int port = 0;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    port = ntohs(address.sin_port);
  }
  ::close(fd);
  return port;
}

struct HttpReply {
  int status = 0;  // 0: no answer
  std::string body;
};

/// One request on a connection of its own to 127.0.0.1; `body` empty means GET.
inline HttpReply http(int port, const std::string& path, const std::string& body = "") {
  HttpReply reply;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  timeval limit{60, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    std::string request = (body.empty() ? "GET " : "POST ") + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n";
    if (!body.empty()) {
      request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    }
    request += "\r\n" + body;
    std::string text;
    if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
      char buffer[8192];
      for (ssize_t count; (count = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) text.append(buffer, count);
    }
    const size_t end = text.find("\r\n\r\n");
    if (text.starts_with("HTTP/1.1 ") && end != std::string::npos) {
      reply.status = std::atoi(text.c_str() + 9);
      reply.body = text.substr(end + 4);
    }
  }
  ::close(fd);
  return reply;
}

/// The text after `"key":` up to the next separator; for flat pieces of JSON only.
inline std::string json_value(const std::string& json, const std::string& key, size_t from = 0) {
  const size_t at = json.find("\"" + key + "\":", from);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size() + 3;
  if (json[begin] == '[') return json.substr(begin, json.find(']', begin) + 1 - begin);
  return json.substr(begin, json.find_first_of(",}", begin) - begin);
}

inline constexpr const char* kCompletion = R"({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0,
  "logprobs": 3})";

/// Asks for a short completion and returns its tokens and logprobs as text; empty, and a test failure, without one.
inline std::string completion_logprobs(int port) {
  const HttpReply reply = http(port, "/v1/completions", kCompletion);
  EXPECT_EQ(reply.status, 200) << reply.body;
  const std::string tokens = json_value(reply.body, "tokens");
  const std::string logprobs = json_value(reply.body, "token_logprobs");
  EXPECT_NE(logprobs.find('-'), std::string::npos) << reply.body;
  return reply.status == 200 ? tokens + logprobs : "";
}

}  // namespace helios::testing
