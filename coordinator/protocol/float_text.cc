// Schubfach (Raffaello Giulietti, "The Schubfach way to render doubles"), with exact arithmetic: count in the largest
// power of ten that is not above the double's spacing. The interval of what rounds to the value then holds a multiple
// of ten of these units, and that is the shortest decimal, or it holds none, and the nearest unit is.
#include "coordinator/protocol/float_text.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>

namespace helios {
namespace {

using Wide = unsigned __int128;

constexpr int kMantissaBits = 23, kBias = 150;
constexpr int kSpareBits = 29;     // of a double's significand behind a float's
constexpr int kMaxPower = 31;      // 2^24 * 10^31 < 2^128
constexpr int kMinExponent = -73;  // of two, behind an integer significand: what kMaxPower allows; values from 2^-50
constexpr int kMaxExponent = -10;  // values below 2^14

struct Power {
  Wide ten;   // 10^q
  Wide half;  // half the double's spacing, where the value is its significand * 10^q
};
constexpr std::array<Power, kMaxPower + 1> powers() {
  std::array<Power, kMaxPower + 1> out{};
  Wide ten = 1;
  for (Power& power : out) {
    power = {ten, ten >> (kSpareBits + 1)};
    ten *= 10;
  }
  return out;
}
constexpr std::array<Power, kMaxPower + 1> kPowers = powers();

/// Eight decimal digits as eight bytes 0 to 9, the first in the lowest: each step halves all groups at once.
uint64_t eight_digits(uint32_t value) {
  const uint64_t fours = value / 10000 | uint64_t{value % 10000} << 32;
  const uint64_t hundreds = (fours * 10486 >> 20) & 0x0000'007F'0000'007F;
  const uint64_t pairs = hundreds | (fours - 100 * hundreds) << 16;
  const uint64_t tens = (pairs * 103 >> 10) & 0x000F'000F'000F'000F;
  return tens | (pairs - 10 * tens) << 8;
}

void put_eight(char* at, uint64_t digits) {
  static_assert(std::endian::native == std::endian::little);
  digits |= 0x3030'3030'3030'3030;
  std::memcpy(at, &digits, 8);
}

struct Decimal {
  uint64_t digits;
  int exponent;  // of ten
};

/// value = significand * 2^exponent, the shortest decimal that is nearer to it than to its neighbours as doubles.
Decimal shortest(uint32_t significand, int exponent) {
  const int power = -(((exponent - kSpareBits) * 315653) >> 20);  // -floor(log10(the double's spacing))
  const Power& scale = kPowers[static_cast<size_t>(power)];
  const int shift = -exponent;
  const Wide scaled = scale.ten * significand;
  const auto units = static_cast<uint64_t>(scaled >> shift);  // 2^52 <= units < 10 * 2^53
  const uint64_t tens = units / 10 * 10;
  const Wide above = scaled - (Wide{tens} << shift);
  if (above <= scale.half) return {tens, -power};
  if ((Wide{10} << shift) - above <= scale.half) return {tens + 10, -power};
  const Wide rest = scaled - (Wide{units} << shift), middle = Wide{1} << (shift - 1);
  const bool up = rest > middle || (rest == middle && units % 2 == 1);
  return {units + (up ? 1 : 0), -power};
}

/// The digits behind those zeros that say nothing.
int trailing_zeros(uint64_t high, uint64_t low) {
  if (low != 0) return std::countl_zero(low) / 8;
  return 8 + (high != 0 ? std::countl_zero(high) / 8 : 8);
}

struct Digits {
  char first = 0;  // 0 to 9; seventeen digits when it is not zero
  uint64_t high = 0, low = 0;
  int all = 0, count = 0;  // how many there are, and how many of them say something

  explicit Digits(uint64_t value) {
    constexpr uint64_t kSixteenDigits = 10'000'000'000'000'000;
    first = static_cast<char>(value / kSixteenDigits);
    if (first) value %= kSixteenDigits;
    high = eight_digits(static_cast<uint32_t>(value / 100'000'000));
    low = eight_digits(static_cast<uint32_t>(value % 100'000'000));
    all = first ? 17 : 16;
    count = all - trailing_zeros(high, low);
  }
  void put_all(char* at) const {
    if (first) *at++ = static_cast<char>('0' + first);
    put_eight(at, high);
    put_eight(at + 8, low);
  }
};

char* put_scientific(char* out, const Digits& digits, int exponent) {
  digits.put_all(out + 1);
  out[0] = out[1];
  out[1] = '.';
  out += digits.count > 1 ? digits.count + 1 : 1;
  const int size = exponent < 0 ? -exponent : exponent;
  out[0] = 'e';
  out[1] = exponent < 0 ? '-' : '+';
  out[2] = static_cast<char>('0' + size / 10);
  out[3] = static_cast<char>('0' + size % 10);
  return out + 4;
}

/// Fixed or with an exponent, whichever is shorter. All digits are written; the end is where those end that count.
char* put_decimal(char* out, Decimal decimal) {
  const Digits digits(decimal.digits);
  const int count = digits.count;
  const int leading = decimal.exponent + digits.all - 1;  // the first digit's exponent
  const int scientific = count + (count > 1 ? 1 : 0) + 4;
  const int fixed = leading < 0 ? count + 1 - leading : count > leading + 1 ? count + 1 : leading + 1;
  if (fixed > scientific) return put_scientific(out, digits, leading);
  if (leading < 0) {
    std::memcpy(out, "0.000000", 8);
    digits.put_all(out + 1 - leading);
    return out + 1 - leading + count;
  }
  const int whole = leading + 1;
  digits.put_all(out + 1);
  for (int i = 0; i < whole; ++i) out[i] = out[i + 1];
  out[whole] = '.';
  return out + (count > whole ? count + 1 : whole + 2);  // one digit behind the point if none counts
}

char* put_general(char* out, double value) {
  char* const end = std::to_chars(out, out + kFloatTextRoom, value).ptr;
  for (const char* at = out; at != end; ++at) {
    if (*at == '.' || *at == 'e') return end;
  }
  std::memcpy(end, ".0", 2);
  return end + 2;
}

}  // namespace

char* write_float(char* out, float value) {
  const auto bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0.0 + 0.0 is 0.0
  const uint32_t fraction = bits & ((1u << kMantissaBits) - 1);
  const int exponent = static_cast<int>(bits >> kMantissaBits & 0xFF) - kBias;
  // A power of two has a narrower interval below it: rare enough for the general way.
  if (fraction == 0 || exponent < kMinExponent || exponent > kMaxExponent) {
    return put_general(out, static_cast<double>(std::bit_cast<float>(bits)));
  }
  if (bits >> 31) *out++ = '-';
  return put_decimal(out, shortest(fraction | 1u << kMantissaBits, exponent));
}

}  // namespace helios
