#pragma once

#include <cstring>

#include "capi/struct_size.h"
#include "core/base/error.h"

namespace nxd {

// A struct that a call fills, of a caller that may have an older or a newer header: the first
// struct_size bytes are the caller's to read and ours to write, none behind them. Fields that this
// library does not know are zero.
template <class Struct>
class OutputStruct {
 public:
  // Starts as `empty`, and stays so when the call fails.
  OutputStruct(Struct* out, const char* name, const Struct& empty = {}) : out_(out) {
    check_argument(out, name, ": expected a pointer, got NULL");
    size_ = out->struct_size;
    if (size_ < kFirstSize<Struct> || size_ > kLargestStruct) {
      fail(NXD_ERROR_ABI_MISMATCH, name, "->struct_size: expected ", kFirstSize<Struct>, " to ",
           kLargestStruct, ", such as sizeof *", name, ", got ", size_);
    }
    if (size_ > sizeof(Struct)) {
      std::memset(reinterpret_cast<unsigned char*>(out) + sizeof(Struct), 0,
                  size_ - sizeof(Struct));
    }
    write(empty);
  }

  void write(Struct value) {
    value.struct_size = size_;
    std::memcpy(static_cast<void*>(out_), &value, size_ < sizeof(Struct) ? size_ : sizeof(Struct));
  }

 private:
  Struct* out_;
  size_t size_ = 0;
};

// An array of such structs, as far apart as the caller's header has them; none when out is NULL.
template <class Struct>
class OutputStructs {
 public:
  OutputStructs(Struct* out, size_t count, const char* name) : out_(out), name_(name) {
    if (!out || count == 0) return;
    stride_ = out->struct_size;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0 && at(i)->struct_size != stride_) {
        fail(NXD_ERROR_ABI_MISMATCH, name, "[", i, "].struct_size: expected ", stride_,
             ", as the first has it, got ", at(i)->struct_size);
      }
      OutputStruct<Struct>(at(i), name);
    }
  }

  void write(size_t i, const Struct& value) {
    if (out_) OutputStruct<Struct>(at(i), name_).write(value);
  }

 private:
  Struct* at(size_t i) const {
    return reinterpret_cast<Struct*>(reinterpret_cast<unsigned char*>(out_) + i * stride_);
  }

  Struct* out_;
  const char* name_;
  size_t stride_ = 0;
};

}  // namespace nxd
