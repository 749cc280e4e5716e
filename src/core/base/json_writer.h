#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace nxd {

// Writes JSON from left to right, on one line. Bytes of a string that are no UTF-8 become U+FFFD.
class JsonWriter {
 public:
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }
  // The name of an object's member; its value is next.
  void key(std::string_view name);
  void string(std::string_view value);
  void number(int64_t value);
  void natural(uint64_t value);
  // The shortest that reads as the same number; null for NaN and infinities.
  void real(double value);
  // Thousandths, exact: 1234 is 1.234.
  void thousandths(int64_t value);

  const std::string& text() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void separate();
  void open(char bracket);
  void close(char bracket);
  void quote(std::string_view text);

  std::string out_;
  bool first_ = true;  // of its container: no comma before it
};

}  // namespace nxd
