#include "core/base/config_fields.h"

#include <cmath>

#include "core/base/error.h"

namespace nxd {
namespace {

using nlohmann::json;

// Sizes beyond this overflow products of two of them.
constexpr int64_t kLargestSize = int64_t{1} << 31;

// A value as it stands in the file, short enough for a message.
std::string shown(const json& value) {
  std::string out = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (out.size() > 60) out = out.substr(0, 57) + "...";
  return out;
}

}  // namespace

ConfigFields ConfigFields::parse(const std::string& text) {
  auto document = std::make_shared<json>();
  try {
    *document = json::parse(text);
  } catch (const json::exception& error) {
    fail(NXD_ERROR_INVALID_ARGUMENT, "config_json: expected JSON: ", error.what());
  }
  check_argument(document->is_object(), "config_json: expected an object, got ", shown(*document));
  const json* root = document.get();
  return ConfigFields(std::move(document), root, "");
}

std::string ConfigFields::path(const char* name) const { return prefix_ + name; }

const json* ConfigFields::find(const char* name) const {
  const auto it = node_->find(name);
  return it == node_->end() || it->is_null() ? nullptr : &*it;
}

bool ConfigFields::has(const char* name) const { return find(name) != nullptr; }

void ConfigFields::refuse(const char* name, const char* expected) const {
  const json* value = find(name);
  fail(NXD_ERROR_INVALID_ARGUMENT, "config_json: ", path(name), ": expected ", expected, ", got ",
       value ? shown(*value) : std::string("no such field"));
}

std::optional<int64_t> ConfigFields::integer(const char* name, int64_t low, int64_t high) const {
  const json* value = find(name);
  if (!value) return std::nullopt;
  const std::string expected = text("a whole number of ", low, " to ", high);
  if (!value->is_number_integer()) refuse(name, expected.c_str());
  if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) {
    refuse(name, expected.c_str());
  }
  const auto number = value->get<int64_t>();
  if (number < low || number > high) refuse(name, expected.c_str());
  return number;
}

int64_t ConfigFields::size(const char* name) const {
  const std::optional<int64_t> value = integer(name, 1, kLargestSize);
  if (!value) refuse(name, "a positive whole number");
  return *value;
}

int64_t ConfigFields::size(const char* name, int64_t fallback) const {
  return has(name) ? size(name) : fallback;
}

double ConfigFields::number(const char* name, double fallback) const {
  const json* value = find(name);
  if (!value) return fallback;
  if (!value->is_number()) refuse(name, "a number");
  return value->get<double>();
}

double ConfigFields::checked_positive(const char* name, double value) const {
  if (!std::isfinite(value) || value <= 0) refuse(name, "a positive number");
  return value;
}

double ConfigFields::positive(const char* name) const {
  return checked_positive(name, number(name, 0));
}

double ConfigFields::positive(const char* name, double fallback) const {
  return checked_positive(name, number(name, fallback));
}

bool ConfigFields::boolean(const char* name, bool fallback) const {
  const json* value = find(name);
  if (!value) return fallback;
  if (!value->is_boolean()) refuse(name, "true or false");
  return value->get<bool>();
}

std::string ConfigFields::string(const char* name, const std::string& fallback) const {
  const json* value = find(name);
  if (!value) return fallback;
  if (!value->is_string()) refuse(name, "a string");
  return value->get<std::string>();
}

std::optional<ConfigFields> ConfigFields::object(const char* name) const {
  const json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_object()) refuse(name, "an object");
  return ConfigFields(document_, value, path(name) + ".");
}

void refuse_unknown(const std::string& field, const std::string& value,
                    const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  fail(NXD_ERROR_UNSUPPORTED, "config_json: ", field, ": \"", value,
       "\" is not known; known are: ", list);
}

}  // namespace nxd
