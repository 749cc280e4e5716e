#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json_value.h"

namespace nxd {

// The most that a size of a configuration may be, so that products of two do not overflow, and
// how many layers a model may have: the same for the planner and for the models.
constexpr int64_t kLargestSize = int64_t{1} << 24;
constexpr int64_t kMostLayers = 1024;

struct SizeLimit {
  int64_t most = kLargestSize;
};

// Reads the fields of a Hugging Face config.json. A field that is null counts as absent. Failures
// are INVALID_ARGUMENT and name the field with its path, what was expected and what was given.
class ConfigFields {
 public:
  // INVALID_ARGUMENT when the text is not a JSON object.
  static ConfigFields parse(const std::string& text);

  bool has(const char* name) const;
  // True if it is there and null, where that means something else than its absence.
  bool is_null(const char* name) const;

  // Whole numbers of at least 1 that a size can have.
  int64_t size(const char* name, SizeLimit limit = {}) const;
  int64_t layers(const char* name) const { return size(name, SizeLimit{kMostLayers}); }
  int64_t size(const char* name, int64_t fallback) const;
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const;
  double number(const char* name, double fallback) const;
  double not_negative(const char* name, double fallback) const;
  double positive(const char* name) const;
  double positive(const char* name, double fallback) const;
  bool boolean(const char* name, bool fallback) const;
  std::string string(const char* name, const std::string& fallback) const;
  std::optional<std::vector<std::string>> strings(const char* name) const;

  // The value that a name stands for; UNSUPPORTED for a name that is not in the table.
  template <class Value>
  Value choice(const char* name, const std::string& fallback,
               const std::vector<std::pair<std::string, Value>>& table) const;

  // The name of the two that the file uses for one field; INVALID_ARGUMENT when both are there and
  // differ.
  const char* either(const char* name, const char* alias) const;

  // UNSUPPORTED with the reason for a field that is neither absent nor false, 0 or empty.
  void reject_unless_empty(const char* name, const char* reason) const;
  // The same for fields of any name that are objects.
  void reject_objects(const char* reason) const;
  bool empty() const { return value_.size() == 0; }

  // The object of that name; nothing when it is absent.
  std::optional<ConfigFields> object(const char* name) const;

  // The field's full name, for messages.
  std::string path(const char* name) const;

 private:
  ConfigFields(std::shared_ptr<const JsonDocument> document, JsonValue value, std::string prefix)
      : document_(std::move(document)), value_(value), prefix_(std::move(prefix)) {}

  std::optional<JsonValue> find(const char* name) const;
  [[noreturn]] void reject(const char* name, const char* expected) const;
  double checked_positive(const char* name, double value) const;

  std::shared_ptr<const JsonDocument> document_;
  JsonValue value_;
  std::string prefix_;
};

// UNSUPPORTED for a value that none of the names stands for; the message lists the names.
[[noreturn]] void reject_unknown(const std::string& field, const std::string& value,
                                 const std::vector<std::string>& known);

template <class Value>
Value ConfigFields::choice(const char* name, const std::string& fallback,
                           const std::vector<std::pair<std::string, Value>>& table) const {
  const std::string value = string(name, fallback);
  std::vector<std::string> known;
  for (const auto& [key, meaning] : table) {
    if (key == value) return meaning;
    known.push_back(key);
  }
  reject_unknown(path(name), value, known);
}

}  // namespace nxd
