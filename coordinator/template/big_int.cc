#include "coordinator/template/big_int.h"

#include <algorithm>
#include <cmath>

#include "coordinator/template/sandbox.h"

namespace helios::jinja {
namespace {

// Divides in place, returns the remainder.
uint32_t divide_small(std::vector<uint32_t>* limbs, uint32_t divisor) {
  uint64_t rest = 0;
  for (size_t i = limbs->size(); i-- > 0;) {
    rest = rest << 32 | (*limbs)[i];
    (*limbs)[i] = static_cast<uint32_t>(rest / divisor);
    rest %= divisor;
  }
  while (!limbs->empty() && limbs->back() == 0) limbs->pop_back();
  return static_cast<uint32_t>(rest);
}

bool bit_at(std::span<const uint32_t> limbs, size_t bit) { return limbs[bit / 32] >> (bit % 32) & 1; }

}  // namespace

BigInt::BigInt(int64_t value) : negative_(value < 0) {
  uint64_t magnitude = negative_ ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  for (; magnitude != 0; magnitude >>= 32) limbs_.push_back(static_cast<uint32_t>(magnitude));
}

BigInt::BigInt(bool negative, std::span<const uint32_t> limbs)
    : negative_(negative), limbs_(limbs.begin(), limbs.end()) {
  trim();
}

void BigInt::trim() {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  if (limbs_.empty()) negative_ = false;
  if (limbs_.size() > kMaxLimbs) throw Fault{Errc::kTooLarge, "an integer of more than 16384 bits"};
}

BigInt BigInt::parse(std::string_view digits, int base) {
  BigInt out;
  for (const char c : digits) {
    uint64_t carry = static_cast<uint64_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    for (uint32_t& limb : out.limbs_) {
      carry += static_cast<uint64_t>(limb) * static_cast<uint32_t>(base);
      limb = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) out.limbs_.push_back(static_cast<uint32_t>(carry));
    if (out.limbs_.size() > kMaxLimbs) out.trim();
  }
  return out;
}

BigInt BigInt::from_double(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::trunc(std::fabs(value)), &exponent);
  BigInt out;
  if (exponent <= 0) return out;
  auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  int shift = exponent - 53;
  for (; shift < 0; ++shift) mantissa >>= 1;
  out.limbs_.assign(static_cast<size_t>(shift) / 32 + 3, 0);
  for (int bit = 0; bit < 64; ++bit) {
    const size_t to = static_cast<size_t>(shift + bit);
    if (mantissa >> bit & 1) out.limbs_[to / 32] |= 1u << (to % 32);
  }
  out.negative_ = value < 0;
  out.trim();
  return out;
}

std::optional<int64_t> BigInt::to_int64() const {
  if (limbs_.size() > 2) return std::nullopt;
  uint64_t magnitude = 0;
  for (size_t i = limbs_.size(); i-- > 0;) magnitude = magnitude << 32 | limbs_[i];
  const uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (negative_ ? 1 : 0);
  if (magnitude > limit) return std::nullopt;
  return static_cast<int64_t>(negative_ ? 0 - magnitude : magnitude);
}

double BigInt::to_double() const {
  const size_t bits = limbs_.empty() ? 0 : limbs_.size() * 32 - static_cast<size_t>(__builtin_clz(limbs_.back()));
  if (bits <= 64) {
    uint64_t magnitude = 0;
    for (size_t i = limbs_.size(); i-- > 0;) magnitude = magnitude << 32 | limbs_[i];
    const auto rounded = static_cast<double>(magnitude);
    return negative_ ? -rounded : rounded;
  }
  // The highest 64 bits, the last of them sticky: the conversion then rounds as if it saw all.
  uint64_t top = 0;
  for (size_t i = 0; i < 64; ++i) top = top << 1 | (bit_at(limbs_, bits - 1 - i) ? 1 : 0);
  for (size_t bit = 0; bit < bits - 64; ++bit) {
    if (bit_at(limbs_, bit)) {
      top |= 1;
      break;
    }
  }
  const double rounded = std::ldexp(static_cast<double>(top), static_cast<int>(bits - 64));
  return negative_ ? -rounded : rounded;
}

std::string BigInt::to_string(int base) const {
  if (limbs_.empty()) return "0";
  std::string out;
  std::vector<uint32_t> rest = limbs_;
  while (!rest.empty()) {
    // Several digits a division: base^5 <= 36^5 fits 32 bits.
    const auto b = static_cast<uint32_t>(base);
    uint32_t chunk = divide_small(&rest, b * b * b * b * b);
    for (int i = 0; i < 5 && (chunk != 0 || !rest.empty()); ++i) {
      out.push_back("0123456789abcdefghijklmnopqrstuvwxyz"[chunk % b]);
      chunk /= b;
    }
  }
  if (negative_) out.push_back('-');
  std::reverse(out.begin(), out.end());
  return out;
}

BigInt BigInt::operator-() const {
  BigInt out = *this;
  out.negative_ = !out.limbs_.empty() && !negative_;
  return out;
}

int BigInt::compare_magnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

std::vector<uint32_t> BigInt::add_magnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> out;
  uint64_t carry = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()) || carry != 0; ++i) {
    carry += (i < a.size() ? a[i] : 0) + static_cast<uint64_t>(i < b.size() ? b[i] : 0);
    out.push_back(static_cast<uint32_t>(carry));
    carry >>= 32;
  }
  return out;
}

// Precondition: a >= b.
std::vector<uint32_t> BigInt::subtract_magnitude(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> out = a;
  int64_t borrow = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t limb = static_cast<int64_t>(a[i]) - (i < b.size() ? b[i] : 0) - borrow;
    borrow = limb < 0 ? 1 : 0;
    if (limb < 0) limb += int64_t{1} << 32;
    out[i] = static_cast<uint32_t>(limb);
  }
  return out;
}

BigInt BigInt::operator+(const BigInt& other) const {
  BigInt out;
  if (negative_ == other.negative_) {
    out.limbs_ = add_magnitude(limbs_, other.limbs_);
    out.negative_ = negative_;
  } else if (compare_magnitude(limbs_, other.limbs_) >= 0) {
    out.limbs_ = subtract_magnitude(limbs_, other.limbs_);
    out.negative_ = negative_;
  } else {
    out.limbs_ = subtract_magnitude(other.limbs_, limbs_);
    out.negative_ = other.negative_;
  }
  out.trim();
  return out;
}

BigInt BigInt::operator*(const BigInt& other) const {
  BigInt out;
  if (limbs_.size() + other.limbs_.size() > kMaxLimbs + 1) {
    throw Fault{Errc::kTooLarge, "an integer of more than 16384 bits"};
  }
  out.limbs_.assign(limbs_.size() + other.limbs_.size(), 0);
  for (size_t i = 0; i < limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < other.limbs_.size() || carry != 0; ++j) {
      carry += out.limbs_[i + j] + static_cast<uint64_t>(limbs_[i]) * (j < other.limbs_.size() ? other.limbs_[j] : 0);
      out.limbs_[i + j] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  out.negative_ = negative_ != other.negative_;
  out.trim();
  return out;
}

BigInt::DivMod BigInt::divmod(const BigInt& divisor) const {
  // Bit by bit: at most 16,384 rounds over 512 limbs, and only for integers that hardly ever occur.
  BigInt magnitude(false, divisor.limbs_), quotient, rest;
  quotient.limbs_.assign(limbs_.size(), 0);
  for (size_t bit = limbs_.size() * 32; bit-- > 0;) {
    rest.limbs_ = add_magnitude(rest.limbs_, rest.limbs_);
    if (bit_at(limbs_, bit)) rest.limbs_ = add_magnitude(rest.limbs_, {1});
    if (compare_magnitude(rest.limbs_, magnitude.limbs_) >= 0) {
      rest.limbs_ = subtract_magnitude(rest.limbs_, magnitude.limbs_);
      while (!rest.limbs_.empty() && rest.limbs_.back() == 0) rest.limbs_.pop_back();
      quotient.limbs_[bit / 32] |= 1u << (bit % 32);
    }
  }
  quotient.trim();
  rest.trim();
  const bool signs_differ = negative_ != divisor.negative_;
  if (signs_differ) quotient = -quotient;
  if (negative_) rest = -rest;
  if (signs_differ && !rest.zero()) {
    quotient = quotient - BigInt(1);
    rest = rest + divisor;
  }
  return {std::move(quotient), std::move(rest)};
}

int BigInt::compare(const BigInt& other) const {
  if (negative_ != other.negative_) return negative_ ? -1 : 1;
  const int order = compare_magnitude(limbs_, other.limbs_);
  return negative_ ? -order : order;
}

}  // namespace helios::jinja
