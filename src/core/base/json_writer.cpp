#include "core/base/json_writer.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace nxd {

void JsonWriter::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

void JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  out_ += bracket;
  first_ = false;
}

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  out_ += ':';
  first_ = true;
}

void JsonWriter::string(std::string_view value) {
  separate();
  quote(value);
}

void JsonWriter::number(int64_t value) {
  separate();
  out_ += std::to_string(value);
}

void JsonWriter::natural(uint64_t value) {
  separate();
  out_ += std::to_string(value);
}

void JsonWriter::real(double value) {
  separate();
  out_ += nlohmann::json(value).dump();
}

void JsonWriter::thousandths(int64_t value) {
  separate();
  const auto magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  char digits[32];
  std::snprintf(digits, sizeof digits, "%s%llu.%03llu", value < 0 ? "-" : "",
                static_cast<unsigned long long>(magnitude / 1000),
                static_cast<unsigned long long>(magnitude % 1000));
  out_ += digits;
}

// nlohmann's documents are not used for more than a string or a number: the destructors of
// containers allocate.
void JsonWriter::quote(std::string_view text) {
  using Json = nlohmann::json;
  out_ += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nxd
