// Checksums of files against those of xxh128sum 0.8.1, however the content comes.
#include "core/checkpoint/checksum.h"

#include <fstream>
#include <string>

#include "core/checkpoint/file.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using nxd::Checksum;

constexpr const char* kOfLong = "ed7b795f55463dfa57462f7627eb499d";

// More than three parts of a file that is read in parts, and no whole number of them.
std::string long_content() {
  std::string content((size_t{3} << 20) + 5, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>((i * i + 7 * i) % 251);
  return content;
}

void recorded_values(void**) {
  assert_string_equal(Checksum().hex().c_str(), "99aa06d3014798d86001c324468d497f");
  assert_string_equal(Checksum().add("nxd").hex().c_str(), "cdb498c8157cdbe0a332ee92a643f8a0");
  assert_string_equal(Checksum().add(long_content()).hex().c_str(), kOfLong);
}

void parts_and_files(void**) {
  const std::string content = long_content();
  Checksum by_parts;
  for (size_t at = 0; at < content.size(); at += 100003)
    by_parts.add(std::string_view(content).substr(at, 100003));
  assert_string_equal(by_parts.hex().c_str(), kOfLong);
  const nxd_test::TempDir dir;
  const std::string path = dir.path() + "/content";
  std::ofstream(path, std::ios::binary) << content;
  assert_string_equal(Checksum().add(nxd::InputFile(path)).hex().c_str(), kOfLong);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(recorded_values), cmocka_unit_test(parts_and_files)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
