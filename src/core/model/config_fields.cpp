#include "core/model/config_fields.h"

#include <cmath>

#include "core/base/error.h"
#include "core/base/printable.h"

namespace nxd {
namespace {

// A config.json is a few kilobytes.
constexpr size_t kLargestText = size_t{16} << 20U;

}  // namespace

ConfigFields ConfigFields::parse(const std::string& text) {
  auto document = std::make_shared<const JsonDocument>(
      JsonDocument::parse(text, "config_json", NXD_ERROR_INVALID_ARGUMENT, {kLargestText}));
  const JsonValue root = document->root();
  check_argument(root.is_object(), "config_json: expected an object, got ", root.shown());
  return ConfigFields(std::move(document), root, "");
}

std::string ConfigFields::path(const char* name) const { return prefix_ + name; }

std::optional<JsonValue> ConfigFields::find(const char* name) const {
  const std::optional<JsonValue> value = value_.find(name);
  return value && !value->is_null() ? value : std::nullopt;
}

bool ConfigFields::has(const char* name) const { return find(name).has_value(); }

bool ConfigFields::is_null(const char* name) const {
  const std::optional<JsonValue> value = value_.find(name);
  return value && value->is_null();
}

void ConfigFields::reject(const char* name, const char* expected) const {
  const std::optional<JsonValue> value = value_.find(name);
  fail(NXD_ERROR_INVALID_ARGUMENT, "config_json: ", path(name), ": expected ", expected, ", got ",
       value ? value->shown() : std::string("no such field"));
}

std::optional<int64_t> ConfigFields::integer(const char* name, int64_t low, int64_t high) const {
  const std::optional<JsonValue> value = find(name);
  if (!value) return std::nullopt;
  const std::string expected = text("a whole number of ", low, " to ", high);
  const std::optional<int64_t> number = value->integer();
  if (!number || *number < low || *number > high) reject(name, expected.c_str());
  return number;
}

int64_t ConfigFields::size(const char* name, SizeLimit limit) const {
  const std::optional<int64_t> value = integer(name, 1, limit.most);
  if (!value) reject(name, "a positive whole number");
  return *value;
}

int64_t ConfigFields::size(const char* name, int64_t fallback) const {
  return has(name) ? size(name) : fallback;
}

double ConfigFields::number(const char* name, double fallback) const {
  const std::optional<JsonValue> value = find(name);
  if (!value) return fallback;
  if (!value->is_number()) reject(name, "a number");
  return value->number();
}

const char* ConfigFields::either(const char* name, const char* alias) const {
  const std::optional<JsonValue> value = find(name), other = find(alias);
  if (!other) return name;
  if (value && value->shown() != other->shown()) {
    fail(NXD_ERROR_INVALID_ARGUMENT, "config_json: ", path(name), " and ", path(alias),
         " are names of one field: expected one value, got ", value->shown(), " and ",
         other->shown());
  }
  return alias;
}

double ConfigFields::not_negative(const char* name, double fallback) const {
  const double value = number(name, fallback);
  if (!std::isfinite(value) || value < 0) reject(name, "a number of at least 0");
  return value;
}

double ConfigFields::checked_positive(const char* name, double value) const {
  if (!std::isfinite(value) || value <= 0) reject(name, "a positive number");
  return value;
}

double ConfigFields::positive(const char* name) const {
  return checked_positive(name, number(name, 0));
}

double ConfigFields::positive(const char* name, double fallback) const {
  return checked_positive(name, number(name, fallback));
}

bool ConfigFields::boolean(const char* name, bool fallback) const {
  // To transformers a null is false, whatever an absent field means.
  if (fallback && is_null(name)) reject(name, "true or false");
  const std::optional<JsonValue> value = find(name);
  if (!value) return fallback;
  if (!value->is_boolean()) reject(name, "true or false");
  return value->boolean();
}

std::string ConfigFields::string(const char* name, const std::string& fallback) const {
  const std::optional<JsonValue> value = find(name);
  if (!value) return fallback;
  if (!value->is_string()) reject(name, "a string");
  return std::string(value->string());
}

std::optional<std::vector<std::string>> ConfigFields::strings(const char* name) const {
  const std::optional<JsonValue> value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_array()) reject(name, "a list of strings");
  std::vector<std::string> out;
  value->for_each([&](const JsonValue& element) {
    if (!element.is_string()) reject(name, "a list of strings");
    out.emplace_back(element.string());
  });
  return out;
}

std::optional<ConfigFields> ConfigFields::object(const char* name) const {
  const std::optional<JsonValue> value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_object()) reject(name, "an object");
  return ConfigFields(document_, *value, path(name) + ".");
}

void ConfigFields::reject_unless_empty(const char* name, const char* reason) const {
  const std::optional<JsonValue> value = find(name);
  if (!value) return;
  const bool nothing = (value->is_boolean() && !value->boolean()) ||
                       (value->is_number() && value->number() == 0) ||
                       (value->is_string() && value->string().empty()) ||
                       ((value->is_array() || value->is_object()) && value->size() == 0);
  if (nothing) return;
  fail(NXD_ERROR_UNSUPPORTED, "config_json: ", path(name), ": ", reason, ", got ", value->shown());
}

void ConfigFields::reject_objects(const char* reason) const {
  value_.for_each_member([&](std::string_view name, const JsonValue& value) {
    if (!value.is_object()) return;
    fail(NXD_ERROR_UNSUPPORTED, "config_json: ", prefix_, printable(name), ": ", reason, ", got ",
         value.shown());
  });
}

void reject_unknown(const std::string& field, const std::string& value,
                    const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  fail(NXD_ERROR_UNSUPPORTED, "config_json: ", field, ": \"", printable(value),
       "\" is not known; known are: ", list);
}

}  // namespace nxd
