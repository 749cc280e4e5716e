// JSON: what is read, what is rejected and how it is shown, and what is written.
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/json_value.h"
#include "core/base/json_writer.h"
#include "core/base/printable.h"
#include "core/model/config_fields.h"
#include "support/check.h"

using nxd::JsonDocument;
using nxd::JsonValue;

namespace {

JsonDocument parse(std::string_view text, const nxd::JsonLimits& limits = {}) {
  return JsonDocument::parse(text, "file.json", NXD_ERROR_CORRUPT, limits);
}

void refused(std::string_view text, const char* part, const nxd::JsonLimits& limits = {}) {
  try {
    parse(text, limits);
  } catch (const nxd::Error& e) {
    if (e.status() != NXD_ERROR_CORRUPT || !strstr(e.what(), part) ||
        !strstr(e.what(), "file.json: "))
      fail_msg("expected \"%s\", got %d \"%s\"", part, e.status(), e.what());
    return;
  }
  fail_msg("not refused: %s", part);
}

void test_values(void**) {
  const JsonDocument document = parse(
      R"({"z": [1, -2, 18446744073709551615, 0.5, 1e3], "a": {"t": true, "n": null, "e": {}},
          "s": "é\n\"", "l": []})");
  const JsonValue root = document.root();
  assert_true(root.is_object());
  assert_int_equal(root.size(), 4);
  std::string order;
  root.for_each_member([&](std::string_view name, const JsonValue&) { order += name; });
  assert_string_equal(order.c_str(), "zasl");
  const JsonValue list = *root.find("z");
  assert_int_equal(list.size(), 5);
  std::vector<JsonValue> values;
  list.for_each([&](const JsonValue& value) { values.push_back(value); });
  assert_int_equal(*values[0].integer(), 1);
  assert_int_equal(*values[1].integer(), -2);
  assert_false(values[1].natural().has_value());
  assert_true(values[2].is_whole() && !values[2].integer() && *values[2].natural() == UINT64_MAX);
  assert_true(!values[3].is_whole() && values[3].number() == 0.5);
  assert_true(!values[4].integer() && values[4].number() == 1000);
  const JsonValue object = *root.find("a");
  assert_true(object.find("t")->boolean() && object.find("n")->is_null());
  assert_int_equal(object.find("e")->size(), 0);
  assert_false(object.find("x").has_value());
  assert_true(root.find("s")->string() == "é\n\"");
  assert_int_equal(root.find("l")->size(), 0);
}

void test_refusals(void**) {
  refused("", "expected JSON: ");
  refused("{\"a\": 1,}", "expected JSON: ");
  refused("{} x", "expected JSON: ");
  refused("{}{}", "expected JSON: ");
  refused("[1e999]", "expected JSON: ");
  refused("[NaN]", "expected JSON: ");
  refused("\xef\xbb\xbf{}", "byte-order mark");
  refused(std::string_view("{}\0x", 4), "NUL at byte 2");
  refused("[\"a\\u0000b\"]", "strings without NUL, got \"a\\u0000b\"");
  refused("{\"a\\u0000b\": 1}", "strings without NUL");
  refused("[\"a\tb\"]", "expected JSON: ");
  refused("[\"\xff\"]", "expected JSON: ");
  refused(R"({"b": 1, "a": {"x": 1, "y": 2, "x": 3}})", "\"x\" appears twice");
  refused("[1, 2]", "at most 5 bytes of JSON, got 6", {5});
  refused("\"" + std::string(100000, 'a'), "...");
}

// However deep a text is, it is rejected by the limit, and no stack is used up.
void test_depth(void**) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  parse(nested(100));
  parse("[[]]", {1000, 2});
  refused("[[[]]]", "at most 2 levels", {1000, 2});
  for (const size_t depth : {size_t{101}, size_t{70000}, size_t{5000000}}) {
    refused(nested(depth), "at most 100 levels");
    refused(std::string(depth, '['), "at most 100 levels");
  }
  std::string objects;
  for (int i = 0; i < 70000; ++i) objects += "{\"a\":";
  refused(objects, "at most 100 levels");
  // A level that has ended does not count.
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "[],";
  assert_int_equal(parse(wide + "[]]").root().size(), 1001);
}

void test_shown(void**) {
  const auto shown = [](const char* text) { return parse(text).root().shown(); };
  assert_string_equal(shown("{ \"a\" : [1, 2.5, null], \"b\": true }").c_str(),
                      "{\"a\":[1,2.5,null],\"b\":true}");
  assert_string_equal(shown("\"\\u001b[31m\\n\"").c_str(), "\"\\u001b[31m\\u000a\"");
  const std::string cut = parse("[\"" + std::string(5000, 'a') + "\"]").root().shown();
  assert_int_equal(cut.size(), 60);
  assert_string_equal(cut.substr(55).c_str(), "aa...");
  const std::string deep = std::string(99, '[') + std::string(99, ']');
  assert_int_equal(parse(deep).root().shown().size(), 60);
  assert_string_equal(nxd::printable("a\xff\x7f\xc2\x85é").c_str(), "a\\xff\\u007f\\u0085é");
  assert_string_equal(nxd::printable("éé", 3).c_str(), "...");
}

// A config.json is shown in messages that reject it.
void test_config(void**) {
  for (const std::string& text : {std::string(70000, '['), "[" + std::string(70000, '[')}) {
    try {
      nxd::ConfigFields::parse(text);
      fail_msg("not refused");
    } catch (const nxd::Error& e) {
      assert_int_equal(e.status(), NXD_ERROR_INVALID_ARGUMENT);
      assert_non_null(strstr(e.what(), "config_json: expected JSON of at most 100 levels"));
    }
  }
}

void test_written(void**) {
  nxd::JsonWriter out;
  out.begin_object();
  out.key("a \"\\\n\x01");
  out.begin_array();
  out.number(INT64_MIN);
  out.natural(UINT64_MAX);
  out.thousandths(-1);
  out.thousandths(INT64_MIN);
  out.real(0.1);
  out.real(-1e300);
  out.real(NAN);
  out.end_array();
  out.key("b");
  out.begin_object();
  out.end_object();
  out.key("c");
  out.string("\xff é");
  out.end_object();
  const auto read = nlohmann::json::parse(out.text());
  assert_int_equal(read.size(), 3);
  const auto& list = read["a \"\\\n\x01"];
  assert_true(list[0] == INT64_MIN && list[1] == UINT64_MAX && list[2] == -0.001);
  assert_true(out.text().find("-9223372036854775.808,0.1,-1e+300,null]") != std::string::npos);
  assert_true(read["b"].is_object() && read["c"] == "\xef\xbf\xbd é");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_values), cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_depth),  cmocka_unit_test(test_shown),
      cmocka_unit_test(test_config), cmocka_unit_test(test_written),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
