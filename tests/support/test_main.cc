// The main of every test program. A program may hold the tests of several source files, which then share one parse of
// their headers; CTest runs each by name: `PROGRAM --of=a_test.cc,b_test.cc` runs what those files define.
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <string_view>

namespace {

// Empty if a file defines no test.
std::string filter_of(const std::string& files) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string filter;
  std::istringstream list(files);
  for (std::string wanted; std::getline(list, wanted, ',');) {
    const size_t before = filter.size();
    for (int s = 0; s < all.total_test_suite_count(); ++s) {
      const testing::TestSuite& suite = *all.GetTestSuite(s);
      for (int t = 0; t < suite.total_test_count(); ++t) {
        const testing::TestInfo& test = *suite.GetTestInfo(t);
        const std::string_view path = test.file();
        if (path.substr(path.rfind('/') + 1) == wanted) filter += std::string(suite.name()) + "." + test.name() + ":";
      }
    }
    if (filter.size() == before) return "";
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kOf = "--of=";
  const bool of = argc == 2 && std::string_view(argv[1]).substr(0, kOf.size()) == kOf;
  if (argc > 1 && !of) {
    std::fprintf(stderr, "%s: unknown argument %s: GoogleTest's own or --of=FILE[,FILE]\n", argv[0], argv[1]);
    return 2;
  }
  if (of && GTEST_FLAG_GET(filter) == "*") {  // a filter given wins: the child of a death test has one
    const std::string filter = filter_of(argv[1] + kOf.size());
    if (filter.empty()) {
      std::fprintf(stderr, "%s: a file of %s has no tests here\n", argv[0], argv[1]);
      return 1;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
