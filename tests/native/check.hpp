// The little that the native tests need: named cases and checks that say what they saw.
#pragma once

#include <cmath>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "driver/status.hpp"

namespace check {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

inline bool enlist(const char* name, void (*body)()) {
  cases().push_back({name, body});
  return true;
}

inline void fail(const char* file, int line, const std::string& text) {
  ++failures();
  std::printf("%s:%d: %s\n", file, line, text.c_str());
}

template <class A, class B>
void equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream seen;
  seen << text << ": " << a << " and " << b;
  fail(file, line, seen.str());
}

inline void within(double seen, double expected, double share, const char* text, const char* file, int line) {
  if (std::abs(seen - expected) <= share * std::abs(expected)) return;
  std::ostringstream words;
  words << text << ": " << seen << ", expected " << expected << " within " << 100 * share << " %";
  fail(file, line, words.str());
}

inline void contains(const std::string& text, const std::string& part, const char* file, int line) {
  if (text.find(part) == std::string::npos) fail(file, line, "'" + part + "' is not in '" + text + "'");
}

inline void succeeded(const stf_places::Status& status, const char* text, const char* file, int line) {
  if (!status) fail(file, line, std::string(text) + ": " + stf_places::text_of(status.failure()));
}

// Checks code and a part of the text.
inline void failed(const stf_places::Status& status, stf_places::Code code, const std::string& part,
                   const char* text, const char* file, int line) {
  if (!status.is(code)) {
    fail(file, line,
         std::string(text) + " did not fail as expected: " +
             (status.ok() ? std::string("it succeeded") : stf_places::text_of(status.failure())));
    return;
  }
  contains(stf_places::text_of(status.failure()), part, file, line);
}

inline int run_all() {
  for (const Case& one : cases()) {
    const int before = failures();
    try {
      one.body();
    } catch (const std::exception& error) {
      fail(one.name, 0, std::string("exception: ") + error.what());
    }
    std::printf("%s %s\n", failures() == before ? "ok  " : "FAIL", one.name);
  }
  return failures() == 0 ? 0 : 1;
}

}  // namespace check

#define TEST(name)                                                                 \
  static void name();                                                              \
  [[maybe_unused]] static const bool name##_enlisted = check::enlist(#name, name); \
  static void name()
#define CHECK(condition) \
  if (!(condition)) check::fail(__FILE__, __LINE__, #condition)
#define CHECK_EQUAL(a, b) check::equal((a), (b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_WITHIN(seen, expected, share) \
  check::within((seen), (expected), (share), #seen, __FILE__, __LINE__)
#define CHECK_CONTAINS(text, part) check::contains((text), (part), __FILE__, __LINE__)
#define CHECK_OK(status) check::succeeded((status), #status, __FILE__, __LINE__)
#define CHECK_FAILS(status, code, part) check::failed((status), (code), (part), #status, __FILE__, __LINE__)
