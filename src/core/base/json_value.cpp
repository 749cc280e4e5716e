#include "core/base/json_value.h"

#include <charconv>

#include "core/base/printable.h"

namespace nxd {

std::optional<int64_t> JsonValue::integer() const {
  if (kind() != JsonKind::kInteger) return std::nullopt;
  return node().integer;
}

std::optional<uint64_t> JsonValue::natural() const {
  if (kind() == JsonKind::kNatural) return node().natural;
  if (kind() != JsonKind::kInteger || node().integer < 0) return std::nullopt;
  return static_cast<uint64_t>(node().integer);
}

double JsonValue::number() const {
  if (kind() == JsonKind::kReal) return node().real;
  if (kind() == JsonKind::kNatural) return static_cast<double>(node().natural);
  return static_cast<double>(node().integer);
}

std::string_view JsonValue::string() const {
  return std::string_view(document_->strings_).substr(node().string.begin, node().string.size);
}

std::optional<JsonValue> JsonValue::find(std::string_view name) const {
  for (uint32_t i = index_ + 1; i < node().next; i = document_->nodes_[i + 1].next) {
    if (JsonValue(document_, i).string() == name) return JsonValue(document_, i + 1);
  }
  return std::nullopt;
}

std::string JsonValue::shown(size_t limit) const {
  std::string out;
  show(out, limit);
  return printable(out, limit);
}

// No deeper than the document; nothing more once the limit is passed.
void JsonValue::show(std::string& out, size_t limit) const {
  if (out.size() > limit) return;
  const auto quoted = [&](std::string_view text) {
    out.append("\"").append(text.substr(0, limit + 1)).append("\"");
  };
  const char* separator = "";
  switch (kind()) {
    case JsonKind::kNull: out += "null"; return;
    case JsonKind::kBoolean: out += boolean() ? "true" : "false"; return;
    case JsonKind::kInteger: out += std::to_string(node().integer); return;
    case JsonKind::kNatural: out += std::to_string(node().natural); return;
    case JsonKind::kReal: {
      char digits[32];
      out.append(digits, std::to_chars(digits, digits + sizeof digits, node().real).ptr);
      return;
    }
    case JsonKind::kString: quoted(string()); return;
    case JsonKind::kArray:
      out += "[";
      for (uint32_t i = index_ + 1; i < node().next && out.size() <= limit;
           i = document_->nodes_[i].next) {
        out += separator;
        separator = ",";
        JsonValue(document_, i).show(out, limit);
      }
      out += "]";
      return;
    case JsonKind::kObject:
      out += "{";
      for (uint32_t i = index_ + 1; i < node().next && out.size() <= limit;
           i = document_->nodes_[i + 1].next) {
        out += separator;
        separator = ",";
        quoted(JsonValue(document_, i).string());
        out += ":";
        JsonValue(document_, i + 1).show(out, limit);
      }
      out += "}";
      return;
  }
}

}  // namespace nxd
