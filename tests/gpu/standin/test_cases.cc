#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include <gtest/gtest.h>

namespace testing {
namespace standin {
namespace {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
std::vector<std::function<void()>>& expansions() {
  static std::vector<std::function<void()>> all;
  return all;
}

/// Of the running test; ranks of a test run in threads.
struct Running {
  std::mutex mutex;
  std::string name, skipped;
  bool failed = false, fatal = false, skip = false;
};
Running& running() {
  static Running one;
  return one;
}
std::vector<std::string>& traces() {
  thread_local std::vector<std::string> all;
  return all;
}

void run(const Case& one, const std::function<std::string()>& after) {
  Running& r = running();
  r.name = one.suite + "." + one.name;
  r.failed = r.fatal = r.skip = false;
  try {
    const std::unique_ptr<Test> test = one.make();
    test->SetUp();
    if (!r.fatal && !r.skip) test->TestBody();
    test->TearDown();
  } catch (const SkipTest& e) {
    r.skip = true;
    r.skipped = e.what();
  } catch (const std::exception& e) {
    Recorder{Kind::kFatal, "thrown", 0, e.what()} = Message();
  }
  if (const std::string trouble = after(); !trouble.empty()) Recorder{Kind::kFatal, "device", 0, trouble} = Message();
}

}  // namespace

void Recorder::operator=(const Message& more) const {
  Running& r = running();
  const std::lock_guard lock(r.mutex);
  if (kind == Kind::kSkip) {
    r.skip = true;
    r.skipped = more.str();
    return;
  }
  r.failed = true;
  r.fatal |= kind == Kind::kFatal;
  std::fprintf(stderr, "%s: %s:%d: %s %s\n", r.name.c_str(), file, line, text.c_str(), more.str().c_str());
  for (const std::string& trace : traces()) std::fprintf(stderr, "    %s\n", trace.c_str());
}

Trace::Trace(const char* file, int line, const std::string& text) {
  traces().push_back(std::string(file) + ":" + std::to_string(line) + ": " + text);
}
Trace::~Trace() { traces().pop_back(); }

void add(Case one) { cases().push_back(std::move(one)); }
void add_later(std::function<void()> expansion) { expansions().push_back(std::move(expansion)); }

Counts run_all(const std::string& filter, const std::function<std::string()>& after) {
  for (const auto& expand : expansions()) expand();
  expansions().clear();
  Counts counts;
  for (const Case& one : cases()) {
    if ((one.suite + "." + one.name).find(filter) == std::string::npos) continue;
    run(one, after);
    const Running& r = running();
    ++(r.failed ? counts.failed : r.skip ? counts.skipped : counts.passed);
    if (r.skip && !r.failed) std::fprintf(stderr, "%s: skipped: %s\n", r.name.c_str(), r.skipped.c_str());
  }
  return counts;
}

}  // namespace standin

bool Test::HasFailure() { return standin::running().failed; }
bool Test::HasFatalFailure() { return standin::running().fatal; }

}  // namespace testing
