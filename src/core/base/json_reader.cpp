#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/json_value.h"
#include "core/base/printable.h"

namespace nxd {

// Takes the events of nlohmann's parser, which needs no stack of its own for what is nested. Its
// documents are not used: their destructors allocate, which ends the process where there is no
// memory left.
class JsonBuilder {
 public:
  using Json = nlohmann::json;

  JsonBuilder(JsonDocument& document, const std::string& where, nxd_status_t status,
              const JsonLimits& limits)
      : nodes_(document.nodes_),
        strings_(document.strings_),
        where_(where),
        status_(status),
        limits_(limits) {}

  bool null() { return add(JsonKind::kNull); }
  bool boolean(bool value) { return add_integer(JsonKind::kBoolean, value ? 1 : 0); }
  bool number_integer(int64_t value) { return add_integer(JsonKind::kInteger, value); }
  bool number_unsigned(uint64_t value) {
    if (value <= static_cast<uint64_t>(INT64_MAX)) {
      return add_integer(JsonKind::kInteger, static_cast<int64_t>(value));
    }
    add(JsonKind::kNatural);
    nodes_.back().natural = value;
    return true;
  }
  bool number_float(double value, const std::string&) {
    add(JsonKind::kReal);
    nodes_.back().real = value;
    return true;
  }
  bool string(std::string& value) {
    add(JsonKind::kString);
    keep(value);
    return true;
  }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return open(JsonKind::kObject); }
  bool start_array(size_t) { return open(JsonKind::kArray); }
  bool end_object() {
    check_names();
    return close();
  }
  bool end_array() { return close(); }

  bool key(std::string& value) {
    // The name is not a value of its own: the member is counted where its value comes.
    nodes_.push_back({});
    nodes_.back().kind = JsonKind::kString;
    nodes_.back().next = static_cast<uint32_t>(nodes_.size());
    keep(value);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) {
    constexpr size_t kReasonLimit = 300;
    std::string_view reason = error.what();
    // Before it, the exception's name and number in brackets.
    const size_t end = reason.find("] ");
    if (end != std::string_view::npos) reason.remove_prefix(end + 2);
    fail_parse("expected JSON: ", printable(reason, kReasonLimit));
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail_parse(const Parts&... parts) const {
    fail(status_, where_, ": ", parts...);
  }

  bool add(JsonKind kind) {
    if (!open_.empty()) ++nodes_[open_.back()].natural;
    nodes_.push_back({});
    nodes_.back().kind = kind;
    nodes_.back().next = static_cast<uint32_t>(nodes_.size());
    return true;
  }

  bool add_integer(JsonKind kind, int64_t value) {
    add(kind);
    nodes_.back().integer = value;
    return true;
  }

  void keep(const std::string& value) {
    if (value.find('\0') != std::string::npos) {
      fail_parse("expected strings without NUL, got \"", printable(value), "\"");
    }
    nodes_.back().string = {static_cast<uint32_t>(strings_.size()),
                            static_cast<uint32_t>(value.size())};
    strings_ += value;
  }

  bool open(JsonKind kind) {
    if (open_.size() >= limits_.depth) {
      fail_parse("expected JSON of at most ", limits_.depth, " levels, it is nested deeper");
    }
    add(kind);
    nodes_.back().natural = 0;
    open_.push_back(static_cast<uint32_t>(nodes_.size() - 1));
    return true;
  }

  bool close() {
    nodes_[open_.back()].next = static_cast<uint32_t>(nodes_.size());
    open_.pop_back();
    return true;
  }

  std::string_view name(uint32_t index) const {
    return std::string_view(strings_).substr(nodes_[index].string.begin, nodes_[index].string.size);
  }

  // The names of the object that ends; each is followed by its value.
  void check_names() {
    names_.clear();
    for (uint32_t i = open_.back() + 1; i < nodes_.size(); i = nodes_[i + 1].next) {
      names_.push_back(name(i));
    }
    std::sort(names_.begin(), names_.end());
    const auto twice = std::adjacent_find(names_.begin(), names_.end());
    if (twice != names_.end()) fail_parse("\"", printable(*twice), "\" appears twice in an object");
  }

  std::vector<JsonNode>& nodes_;
  std::string& strings_;
  const std::string& where_;
  const nxd_status_t status_;
  const JsonLimits limits_;
  std::vector<uint32_t> open_;  // containers, outermost first
  std::vector<std::string_view> names_;
};

JsonDocument JsonDocument::parse(std::string_view text, const std::string& where,
                                 nxd_status_t status, const JsonLimits& limits) {
  // Positions in the document are of 32 bits.
  const size_t most = std::min<size_t>(limits.bytes, UINT32_MAX - 1);
  if (text.size() > most) {
    fail(status, where, ": expected at most ", most, " bytes of JSON, got ", text.size());
  }
  if (text.substr(0, 3) == "\xef\xbb\xbf") {
    fail(status, where, ": expected JSON, got a byte-order mark before it");
  }
  // The parser takes a NUL for the end.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos)
    fail(status, where, ": expected JSON, got a NUL at byte ", nul);
  JsonDocument document;
  JsonBuilder builder(document, where, status, limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return document;
}

}  // namespace nxd
