// Messages that are cut to a room: what is left, of any text and room, and no part of a character.
#include "core/base/shortened.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/utf8.h"

extern "C" {
#include <cmocka.h>
}

namespace {

std::string shortened(const std::string& text, size_t room) {
  std::string out(room + 1, '#');
  const size_t size = nxd::copy_shortened(text, out.data(), room);
  assert_true(size <= room);
  assert_int_equal(out[room], '#');
  return out.substr(0, size);
}

void fitting_texts_stay(void**) {
  for (const std::string text : {"", "a", "a reason"}) {
    assert_string_equal(shortened(text, text.size()).c_str(), text.c_str());
    assert_string_equal(shortened(text, 100).c_str(), text.c_str());
  }
}

void both_ends_stay(void**) {
  const std::string name(3000, 'n');
  const std::string out = shortened("file \"" + name + "\": no such file", 100);
  assert_int_equal(out.size(), 100);
  assert_true(out.starts_with("file \"nnn"));
  assert_true(out.ends_with("nnn\": no such file"));
  assert_true(out.find("n ... n") != std::string::npos);
}

void characters_stay_whole(void**) {
  const std::string characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
  for (const std::string& character : characters) {
    for (size_t shift = 0; shift < 4; ++shift) {
      std::string text(shift, '-');
      for (int i = 0; i < 60; ++i) text += character;
      for (size_t room = 0; room <= text.size(); ++room) {
        const std::string out = shortened(text, room);
        assert_true(nxd::is_utf8(out));
        assert_true(out.size() + 2 * character.size() > room);
      }
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(fitting_texts_stay),
                              cmocka_unit_test(both_ends_stay),
                              cmocka_unit_test(characters_stay_whole)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
