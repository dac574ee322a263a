// The part of GoogleTest that the kernels' and the executor's tests use, for a machine with a GPU and without
// GoogleTest: the same test bodies compile against either. Used by tests/gpu alone.
//
// What is missing does not compile: death tests, matchers, typed tests. A test may also end by throwing SkipTest.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace testing {

class Message {
 public:
  template <class T>
  Message& operator<<(const T& value) {
    text_ << value;
    return *this;
  }
  std::string str() const { return text_.str(); }
  friend std::ostream& operator<<(std::ostream& out, const Message& m) { return out << m.str(); }

 private:
  std::ostringstream text_;
};

/// Thrown out of a test that this machine cannot run; says why.
class SkipTest : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Test {
 public:
  virtual ~Test() = default;
  virtual void SetUp() {}
  virtual void TearDown() {}
  virtual void TestBody() = 0;
  static bool HasFailure();
  static bool HasFatalFailure();
};

template <class T>
class TestWithParam : public Test {
 public:
  using ParamType = T;
  static const T& GetParam() { return *param; }
  static inline const T* param = nullptr;
};

namespace standin {

enum class Kind { kFailure, kFatal, kSkip };

/// Takes a failure with what was streamed behind it.
struct Recorder {
  Kind kind;
  const char* file;
  int line;
  std::string text;
  void operator=(const Message& more) const;
};
struct Trace {
  Trace(const char* file, int line, const std::string& text);
  ~Trace();
};

struct Case {
  std::string suite, name;
  std::function<std::unique_ptr<Test>()> make;
};
/// All that were registered, in order; parametrised ones once their values are known.
void add(Case one);
void add_later(std::function<void()> expansion);

struct Counts {
  int passed = 0, failed = 0, skipped = 0;
};
/// Runs every case whose "suite.name" holds `filter`; prints failures to stderr. `after` is called behind each test and
/// says what went wrong on the device, or nothing.
Counts run_all(const std::string& filter, const std::function<std::string()>& after);

struct Outcome {
  bool ok;
  std::string text;
};

template <class T>
void print(std::ostream& out, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<int64_t>(value);
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (requires { value.begin(), value.end(); }) {
    out << '{';
    int shown = 0;
    for (const auto& item : value) {
      if (++shown > 24) {
        out << " ...";
        break;
      }
      out << ' ';
      print<std::decay_t<decltype(item)>>(out, item);
    }
    out << " }";
  } else {
    out << "(" << sizeof value << " bytes)";
  }
}

template <class A, class B>
Outcome judge(bool ok, const char* relation, const char* a_text, const char* b_text, const A& a, const B& b) {
  if (ok) return {true, {}};
  std::ostringstream out;
  out << a_text << ' ' << relation << ' ' << b_text << ", but found ";
  print(out, a);
  out << " and ";
  print(out, b);
  return {false, out.str()};
}
#define HELIOS_STANDIN_RELATION(name, op)                                                       \
  template <class A, class B>                                                                   \
  Outcome name(const char* a_text, const char* b_text, const A& a, const B& b) {                \
    return judge(static_cast<bool>(a op b), #op, a_text, b_text, a, b);                         \
  }
HELIOS_STANDIN_RELATION(eq, ==)
HELIOS_STANDIN_RELATION(ne, !=)
HELIOS_STANDIN_RELATION(lt, <)
HELIOS_STANDIN_RELATION(le, <=)
HELIOS_STANDIN_RELATION(gt, >)
HELIOS_STANDIN_RELATION(ge, >=)
#undef HELIOS_STANDIN_RELATION
inline Outcome near(const char* a_text, const char* b_text, double a, double b, double tolerance) {
  Outcome out = judge(std::fabs(a - b) <= tolerance, "near", a_text, b_text, a, b);
  if (!out.ok) out.text += ", " + std::to_string(std::fabs(a - b) / tolerance) + " tolerances apart";
  return out;
}

template <class... T>
struct ValueList {
  std::tuple<T...> values;
  template <class P>
  std::vector<P> as() const {
    return std::apply([](const auto&... value) { return std::vector<P>{static_cast<P>(value)...}; }, values);
  }
};
template <class C>
struct RangeList {
  C values;
  template <class P>
  std::vector<P> as() const {
    return {values.begin(), values.end()};
  }
};
template <class... G>
struct Product {
  std::tuple<G...> lists;
  template <class P>
  std::vector<P> as() const {
    std::vector<P> out(1);
    extend<P, 0>(out);
    return out;
  }
  template <class P, size_t kAt>
  void extend(std::vector<P>& out) const {
    if constexpr (kAt < sizeof...(G)) {
      std::vector<P> longer;
      for (const P& begun : out) {
        for (auto& value : std::get<kAt>(lists).template as<std::tuple_element_t<kAt, P>>()) {
          longer.push_back(begun);
          std::get<kAt>(longer.back()) = value;
        }
      }
      out = std::move(longer);
      extend<P, kAt + 1>(out);
    }
  }
};

/// A fixture's parametrised tests, wanted when its values come.
template <class Fixture>
std::vector<Case>& parametrised() {
  static std::vector<Case> tests;
  return tests;
}
template <class Fixture, class Values>
bool instantiate(const char* suite, const Values& values) {
  add_later([=] {
    using P = typename Fixture::ParamType;
    const auto all = std::make_shared<const std::vector<P>>(values.template as<P>());
    for (const Case& test : parametrised<Fixture>()) {
      for (size_t i = 0; i < all->size(); ++i) {
        add({suite, test.name + "/" + std::to_string(i), [=] {
               Fixture::param = &(*all)[i];
               return test.make();
             }});
      }
    }
  });
  return true;
}
inline bool register_case(std::vector<Case>* to, Case one) {
  if (to) {
    to->push_back(std::move(one));
  } else {
    add(std::move(one));
  }
  return true;
}

}  // namespace standin

template <class... T>
standin::ValueList<T...> Values(T... values) {
  return {{values...}};
}
template <class C>
standin::RangeList<C> ValuesIn(C values) {
  return {std::move(values)};
}
template <class... G>
standin::Product<G...> Combine(G... lists) {
  return {{lists...}};
}

}  // namespace testing

#define HELIOS_STANDIN_FAIL(kind, text) \
  ::testing::standin::Recorder{::testing::standin::Kind::kind, __FILE__, __LINE__, text} = ::testing::Message()
#define HELIOS_STANDIN_CHECK(way, kind, outcome)                                              \
  switch (0)                                                                                  \
  case 0:                                                                                     \
  default:                                                                                    \
    if (const ::testing::standin::Outcome standin_outcome = (outcome); standin_outcome.ok)    \
      ;                                                                                       \
    else                                                                                      \
      way HELIOS_STANDIN_FAIL(kind, standin_outcome.text)
#define HELIOS_STANDIN_TRUE(x, want) \
  (::testing::standin::Outcome{static_cast<bool>(x) == want, want ? #x " is false" : #x " is true"})

#define EXPECT_TRUE(x) HELIOS_STANDIN_CHECK(, kFailure, HELIOS_STANDIN_TRUE(x, true))
#define EXPECT_FALSE(x) HELIOS_STANDIN_CHECK(, kFailure, HELIOS_STANDIN_TRUE(x, false))
#define ASSERT_TRUE(x) HELIOS_STANDIN_CHECK(return, kFatal, HELIOS_STANDIN_TRUE(x, true))
#define ASSERT_FALSE(x) HELIOS_STANDIN_CHECK(return, kFatal, HELIOS_STANDIN_TRUE(x, false))
#define HELIOS_STANDIN_EXPECT(name, a, b) HELIOS_STANDIN_CHECK(, kFailure, ::testing::standin::name(#a, #b, a, b))
#define HELIOS_STANDIN_ASSERT(name, a, b) HELIOS_STANDIN_CHECK(return, kFatal, ::testing::standin::name(#a, #b, a, b))
#define EXPECT_EQ(a, b) HELIOS_STANDIN_EXPECT(eq, a, b)
#define EXPECT_NE(a, b) HELIOS_STANDIN_EXPECT(ne, a, b)
#define EXPECT_LT(a, b) HELIOS_STANDIN_EXPECT(lt, a, b)
#define EXPECT_LE(a, b) HELIOS_STANDIN_EXPECT(le, a, b)
#define EXPECT_GT(a, b) HELIOS_STANDIN_EXPECT(gt, a, b)
#define EXPECT_GE(a, b) HELIOS_STANDIN_EXPECT(ge, a, b)
#define ASSERT_EQ(a, b) HELIOS_STANDIN_ASSERT(eq, a, b)
#define ASSERT_NE(a, b) HELIOS_STANDIN_ASSERT(ne, a, b)
#define ASSERT_LT(a, b) HELIOS_STANDIN_ASSERT(lt, a, b)
#define ASSERT_LE(a, b) HELIOS_STANDIN_ASSERT(le, a, b)
#define ASSERT_GT(a, b) HELIOS_STANDIN_ASSERT(gt, a, b)
#define ASSERT_GE(a, b) HELIOS_STANDIN_ASSERT(ge, a, b)
#define EXPECT_NEAR(a, b, t) HELIOS_STANDIN_CHECK(, kFailure, ::testing::standin::near(#a, #b, a, b, t))
#define ASSERT_NEAR(a, b, t) HELIOS_STANDIN_CHECK(return, kFatal, ::testing::standin::near(#a, #b, a, b, t))
#define EXPECT_THROW(statement, type)                                        \
  HELIOS_STANDIN_CHECK(, kFailure, ([&]() -> ::testing::standin::Outcome {   \
                         try {                                               \
                           statement;                                        \
                         } catch (const type&) {                             \
                           return {true, {}};                                \
                         }                                                   \
                         return {false, #statement " did not throw " #type}; \
                       }()))
#define ADD_FAILURE() HELIOS_STANDIN_FAIL(kFailure, "failed")
#define FAIL() return HELIOS_STANDIN_FAIL(kFatal, "failed")
#define GTEST_SKIP() return HELIOS_STANDIN_FAIL(kSkip, "")
#define HELIOS_STANDIN_JOIN2(a, b) a##b
#define HELIOS_STANDIN_JOIN(a, b) HELIOS_STANDIN_JOIN2(a, b)
#define SCOPED_TRACE(text)                                                                  \
  const ::testing::standin::Trace HELIOS_STANDIN_JOIN(standin_trace_, __LINE__)(__FILE__, __LINE__, \
                                                                                (::testing::Message() << (text)).str())

#define HELIOS_STANDIN_TEST(base, suite, name, list)                                                         \
  class suite##_##name##_Test : public base {                                                                \
    void TestBody() override;                                                                                \
  };                                                                                                         \
  [[maybe_unused]] static const bool suite##_##name##_registered = ::testing::standin::register_case(        \
      list, {#suite, #name, [] { return std::unique_ptr<::testing::Test>(new suite##_##name##_Test); }});    \
  void suite##_##name##_Test::TestBody()
#define TEST(suite, name) HELIOS_STANDIN_TEST(::testing::Test, suite, name, nullptr)
#define TEST_F(fixture, name) HELIOS_STANDIN_TEST(fixture, fixture, name, nullptr)
#define TEST_P(fixture, name) \
  HELIOS_STANDIN_TEST(fixture, fixture, name, &::testing::standin::parametrised<fixture>())
#define INSTANTIATE_TEST_SUITE_P(prefix, fixture, ...)                   \
  [[maybe_unused]] static const bool prefix##_##fixture##_instantiated = \
      ::testing::standin::instantiate<fixture>(#prefix "/" #fixture, __VA_ARGS__)
