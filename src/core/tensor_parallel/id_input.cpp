#include "core/tensor_parallel/id_input.h"

#include "core/base/dtype.h"
#include "core/base/hash.h"

namespace nxd {
namespace {

template <class T, class Visit>
void visit_rows(const kernels::StridedRows& rows, const Visit& visit) {
  const kernels::RowExtent extent = kernels::extent_of(rows);
  for (int64_t row = 0; row < extent.rows; ++row) {
    const T* ids = kernels::row_at<const T>(rows, row);
    for (int64_t i = 0; i < extent.cols; ++i) visit(static_cast<int64_t>(ids[i * extent.stride]));
  }
}

// Calls visit with every id, in C order.
template <class Visit>
void each_id(const Array& array, const Visit& visit) {
  if (!array.data || array.count() == 0) return;
  if (array.dtype == NXD_DTYPE_I32) return visit_rows<int32_t>(array.rows(), visit);
  visit_rows<int64_t>(array.rows(), visit);
}

}  // namespace

std::string id_range(int64_t count) {
  return count > 0 ? text("0 to ", count - 1) : "none (the vocabulary is empty)";
}

IdInput::IdInput(const Array& array, const char* name, Scratch& scratch)
    : array_(array), name_(name), copies_(array.dtype != NXD_DTYPE_I64 || !array.is_dense()) {
  check_argument(array.dtype == NXD_DTYPE_I32 || array.dtype == NXD_DTYPE_I64, name,
                 ": expected i32 or i64, got ", dtype_name(array.dtype));
  if (copies_) block_ = scratch.reserve(array.count(), 1, NXD_DTYPE_I64, Scratch::Use::kOwn);
}

void IdInput::check_range(int64_t count, std::optional<int64_t> besides) const {
  each_id(array_, [&](int64_t id) {
    if ((id >= 0 && id < count) || (besides && id == *besides)) return;
    const std::string ignored = besides ? text(", or ", *besides, " to ignore") : "";
    fail(NXD_ERROR_INVALID_ARGUMENT, name_, ": expected ", id_range(count), ignored, ", got ", id);
  });
}

uint32_t IdInput::digest() const {
  Hash hash;
  each_id(array_, [&](int64_t id) { hash.add(static_cast<uint64_t>(id)); });
  return hash.folded();
}

const int64_t* IdInput::read(const Scratch& scratch) const {
  if (!copies_) return reinterpret_cast<const int64_t*>(array_.data);
  auto* const ids = reinterpret_cast<int64_t*>(scratch.at(block_));
  int64_t* next = ids;
  each_id(array_, [&](int64_t id) { *next++ = id; });
  return ids;
}

}  // namespace nxd
