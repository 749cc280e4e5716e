// The hash of 128 bits gives the recorded values (test_checksum has those of xxh128sum) however the
// bytes come, around the room in which it keeps short inputs.
#include "core/base/hash128.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

extern "C" {
#include <cmocka.h>
}

using nxd::Hash128;

namespace {

std::string content(size_t size) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>((i * i + 3 * i) % 251);
  return out;
}

void pieces_and_the_whole_are_one(void**) {
  for (const size_t size : {0, 1, 7, 240, 241, 511, 512, 513, 520, 1024, 5000}) {
    const std::string all = content(size);
    const Hash128::Value expected = Hash128().add(all).value();
    for (const size_t piece : {1, 8, 100, 512, 600}) {
      Hash128 hash;
      for (size_t at = 0; at < size; at += piece) {
        hash.add(std::string_view(all).substr(at, piece));
        (void)hash.value();  // reads, and changes nothing
      }
      assert_true(hash.value() == expected);
    }
  }
}

void words_are_their_bytes(void**) {
  std::string bytes;
  Hash128 hash;
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t word = i * 0x0123456789abcdefU;
    hash.add(word);
    bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
    assert_true(hash.value() == Hash128().add(bytes).value());
  }
}

void the_upper_half_comes_first(void**) {
  const Hash128::Value nothing = Hash128().value();
  assert_true(nothing[0] == 0x99aa06d3014798d8U);
  assert_true(nothing[1] == 0x6001c324468d497fU);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(pieces_and_the_whole_are_one),
                              cmocka_unit_test(words_are_their_bytes),
                              cmocka_unit_test(the_upper_half_comes_first)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
