// Integers beyond 64 bits, which Python's are: schoolbook arithmetic on 32-bit limbs, bounded in size.
//
// Rare in templates (an id or a limit in a tool's schema), so plain and small rather than fast. Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace helios::jinja {

class BigInt {
 public:
  /// 16,384 bits: past the 4,300 digits that Python itself prints. Larger results are a Fault (kTooLarge).
  static constexpr size_t kMaxLimbs = 512;

  BigInt() = default;
  explicit BigInt(int64_t value);
  BigInt(bool negative, std::span<const uint32_t> limbs);
  /// Digits of `base` (2 to 36) only, at least one.
  static BigInt parse(std::string_view digits, int base);
  /// Truncates. Precondition: finite.
  static BigInt from_double(double value);

  bool negative() const { return negative_; }
  bool zero() const { return limbs_.empty(); }
  std::span<const uint32_t> limbs() const { return limbs_; }
  std::optional<int64_t> to_int64() const;
  /// Nearest double, ties to even; infinity when out of range.
  double to_double() const;
  /// Lower-case digits of `base`, with a minus sign.
  std::string to_string(int base = 10) const;

  BigInt operator-() const;
  BigInt operator+(const BigInt& other) const;
  BigInt operator-(const BigInt& other) const { return *this + -other; }
  BigInt operator*(const BigInt& other) const;
  /// Floor division, as Python's // and %: the remainder has the divisor's sign. Precondition: divisor is not zero.
  struct DivMod;
  DivMod divmod(const BigInt& divisor) const;
  /// -1, 0, 1.
  int compare(const BigInt& other) const;

 private:
  void trim();
  static int compare_magnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);
  static std::vector<uint32_t> add_magnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);
  static std::vector<uint32_t> subtract_magnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);

  bool negative_ = false;
  std::vector<uint32_t> limbs_;  // least first, no leading zeros
};

struct BigInt::DivMod {
  BigInt quotient, remainder;
};

}  // namespace helios::jinja
