#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace nxd {

enum class JsonKind : uint8_t {
  kNull,
  kBoolean,
  kInteger,
  kNatural,
  kReal,
  kString,
  kArray,
  kObject
};

// The place of a string within those of its document.
struct JsonSpan {
  uint32_t begin, size;
};

// A value and all that it contains lie in one array, in the order of the text; the value after a
// container is a number away. So a document costs two allocations, and its end none.
struct JsonNode {
  JsonKind kind = JsonKind::kNull;
  uint32_t next = 0;  // of the node after this value
  union {
    int64_t integer = 0;  // also of a boolean
    uint64_t natural;     // whole numbers beyond int64_t, and how many values a container has
    double real;
    JsonSpan string;
  };
};

// Bounds on a text.
struct JsonLimits {
  size_t bytes = size_t{1} << 30U;
  size_t depth = 100;
};

class JsonValue;

// A text of JSON, read. Members keep their order.
class JsonDocument {
 public:
  // Fails with the status, and with `where` before the reason, for text that is no JSON (RFC 8259)
  // or beyond the limits. Also rejected are a byte-order mark, a NUL in the text or in a string,
  // and a name that an object has twice. Takes time as the text's length.
  static JsonDocument parse(std::string_view text, const std::string& where, nxd_status_t status,
                            const JsonLimits& limits = {});

  JsonValue root() const;

 private:
  friend class JsonValue;
  friend class JsonBuilder;

  std::vector<JsonNode> nodes_;
  std::string strings_;
};

// A value of a document, which must outlive it.
class JsonValue {
 public:
  JsonKind kind() const { return node().kind; }
  bool is_null() const { return kind() == JsonKind::kNull; }
  bool is_object() const { return kind() == JsonKind::kObject; }
  bool is_array() const { return kind() == JsonKind::kArray; }
  bool is_string() const { return kind() == JsonKind::kString; }
  bool is_boolean() const { return kind() == JsonKind::kBoolean; }
  bool is_whole() const { return kind() == JsonKind::kInteger || kind() == JsonKind::kNatural; }
  bool is_number() const { return is_whole() || kind() == JsonKind::kReal; }

  // Nothing for what is no such value.
  std::optional<int64_t> integer() const;
  std::optional<uint64_t> natural() const;

  // Only for values of the kind.
  bool boolean() const { return node().integer != 0; }
  double number() const;
  std::string_view string() const;
  // Values of an array, members of an object.
  size_t size() const { return static_cast<size_t>(node().natural); }

  template <class Visit>
  void for_each(const Visit& visit) const {
    for (uint32_t i = index_ + 1; i < node().next; i = document_->nodes_[i].next) {
      visit(JsonValue(document_, i));
    }
  }
  template <class Visit>
  void for_each_member(const Visit& visit) const {
    for (uint32_t i = index_ + 1; i < node().next; i = document_->nodes_[i + 1].next) {
      visit(JsonValue(document_, i).string(), JsonValue(document_, i + 1));
    }
  }
  // The value of an object's member; in the time of reading over those before it.
  std::optional<JsonValue> find(std::string_view name) const;

  // As it stands in the text, short enough for a message, with control characters escaped.
  std::string shown(size_t limit = 60) const;

 private:
  friend class JsonDocument;
  JsonValue(const JsonDocument* document, uint32_t index) : document_(document), index_(index) {}

  const JsonNode& node() const { return document_->nodes_[index_]; }
  void show(std::string& out, size_t limit) const;

  const JsonDocument* document_;
  uint32_t index_;
};

inline JsonValue JsonDocument::root() const { return JsonValue(this, 0); }

}  // namespace nxd
