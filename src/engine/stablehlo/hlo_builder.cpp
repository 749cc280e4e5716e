#include "engine/stablehlo/hlo_builder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/error.h"
#include "engine/dtype.h"

namespace nxd {
namespace {

const char* element_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return "f32";
    case at::kDouble: return "f64";
    case at::kBFloat16: return "bf16";
    case at::kHalf: return "f16";
    case at::kChar: return "i8";
    case at::kShort: return "i16";
    case at::kInt: return "i32";
    case at::kLong: return "i64";
    case at::kByte: return "ui8";
    case at::kBool: return "i1";
    default: fail(NXD_ERROR_UNSUPPORTED, "StableHLO has no dtype ", dtype_text(dtype));
  }
}

std::string bracketed(const HloSizes& numbers) {
  std::string out = "[";
  for (size_t i = 0; i < numbers.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  }
  return out + "]";
}

std::string replica_groups(const HloGroups& groups) {
  std::string list;
  for (const HloSizes& group : groups) list += (list.empty() ? "" : ", ") + bracketed(group);
  return text("replica_groups = dense<[", list, "]> : tensor<", groups.size(), "x",
              groups.at(0).size(), "xi64>");
}

// MLIR's literals of floats have a point; infinities, and what is no number, are bits.
std::string float_literal(double value, at::ScalarType dtype) {
  if (std::isnan(value)) {
    switch (dtype) {
      case at::kDouble: return "0x7FF8000000000000";
      case at::kBFloat16: return "0x7FC0";
      case at::kHalf: return "0x7E00";
      default: return "0x7FC00000";
    }
  }
  if (std::isinf(value)) {
    const bool is_negative = value < 0;
    switch (dtype) {
      case at::kDouble: return is_negative ? "0xFFF0000000000000" : "0x7FF0000000000000";
      case at::kBFloat16: return is_negative ? "0xFF80" : "0x7F80";
      case at::kHalf: return is_negative ? "0xFC00" : "0x7C00";
      default: return is_negative ? "0xFF800000" : "0x7F800000";
    }
  }
  char digits[40];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific, 17).ptr;
  return {digits, end};
}

int64_t greatest_integer(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool: return 1;
    case at::kByte: return std::numeric_limits<uint8_t>::max();
    case at::kChar: return std::numeric_limits<int8_t>::max();
    case at::kShort: return std::numeric_limits<int16_t>::max();
    case at::kInt: return std::numeric_limits<int32_t>::max();
    default: return std::numeric_limits<int64_t>::max();
  }
}

// A float that 8 or 16 bits do not hold gives the last bits of its integer on the CPU, and the
// nearest that they hold by a conversion of StableHLO's. The dtype that it goes through first; the
// float's own where it goes through none.
at::ScalarType integer_between(at::ScalarType from, at::ScalarType to) {
  if (!at::isFloatingType(from)) return from;
  switch (to) {
    case at::kByte: return at::kLong;
    case at::kChar:
    case at::kShort: return at::kInt;
    default: return from;
  }
}

std::string names_of(const std::vector<HloValue>& values) {
  std::string out;
  for (const HloValue& value : values) out += (out.empty() ? "" : ", ") + value.name;
  return out;
}

// StableHLO's gather takes an element of its operand, even for a result without any.
bool are_empty(const HloSizes& sizes) {
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

}  // namespace

std::string hlo_type(at::ScalarType dtype, const HloSizes& sizes) {
  std::string out = "tensor<";
  for (const int64_t size : sizes) out += std::to_string(size) + "x";
  return out + element_type(dtype) + ">";
}

std::string hlo_array(const HloSizes& numbers) {
  if (numbers.empty()) return "array<i64>";
  const std::string list = bracketed(numbers);
  return "array<i64: " + list.substr(1, list.size() - 2) + ">";
}

std::string hlo_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

at::ScalarType dtype_on_device(const PjrtTarget& target, at::ScalarType dtype) {
  if (!target.is_neuron()) return dtype;
  element_type(dtype);
  return to_scalar_type(target.on_device(to_nxd_dtype(dtype)));
}

at::ScalarType wide_dtype(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf ? at::kFloat : dtype;
}

HloSizes all_dims(int64_t n) {
  HloSizes dims(static_cast<size_t>(n));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

std::string HloBuilder::types_of(const std::vector<HloValue>& values) const {
  std::string out;
  for (const HloValue& value : values) {
    out += (out.empty() ? "" : ", ") + type(value.dtype, value.sizes);
  }
  return out;
}

// Names in a region differ from all outside it.
std::string HloBuilder::combining(std::string_view operation, at::ScalarType dtype) const {
  const std::string one = type(dtype, {});
  const std::string head = "{ ^bb0(%ra: " + one + ", %rb: " + one + "): ";
  if (operation.empty()) return head + "\"stablehlo.return\"(%rb) : (" + one + ") -> () }";
  return head + "%rc = \"stablehlo." + std::string(operation) + "\"(%ra, %rb) : (" + one + ", " +
         one + ") -> " + one + " \"stablehlo.return\"(%rc) : (" + one + ") -> () }";
}

HloValue HloBuilder::add(std::string_view operation, const std::vector<HloValue>& operands,
                         at::ScalarType dtype, HloSizes sizes, const std::string& attributes,
                         const std::string& region) {
  HloValue out{next_name(), dtype, std::move(sizes)};
  const bool is_whole_name = operation.find('.') != std::string_view::npos;
  body_ += "    " + out.name + " = \"" + (is_whole_name ? "" : "stablehlo.");
  body_ += operation;
  body_ += "\"(" + names_of(operands) + ")";
  if (!region.empty()) body_ += " (" + region + ")";
  if (!attributes.empty()) body_ += " {" + attributes + "}";
  body_ += " : (" + types_of(operands) + ") -> " + type(dtype, out.sizes) + "\n";
  return out;
}

HloValue HloBuilder::literal(const std::string& text, at::ScalarType dtype, const HloSizes& sizes) {
  return add("constant", {}, dtype, sizes, "value = dense<" + text + "> : " + type(dtype, sizes));
}

HloValue HloBuilder::constant(double value, at::ScalarType dtype, const HloSizes& sizes) {
  if (!at::isFloatingType(dtype)) return constant(static_cast<int64_t>(value), dtype, sizes);
  const at::ScalarType there = dtype_on_device(target_, dtype);
  // A bound that nothing reaches stays one.
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (there != dtype && std::isfinite(value)) value = std::clamp(value, -kLargest, kLargest);
  return literal(float_literal(value, there), dtype, sizes);
}

HloValue HloBuilder::constant(int64_t value, at::ScalarType dtype, const HloSizes& sizes) {
  if (at::isFloatingType(dtype)) return constant(static_cast<double>(value), dtype, sizes);
  if (dtype == at::kBool) return literal(value != 0 ? "true" : "false", dtype, sizes);
  const at::ScalarType there = dtype_on_device(target_, dtype);
  const int64_t largest = greatest_integer(there);
  if (there != dtype) value = std::clamp(value, -largest - 1, largest);
  return literal(std::to_string(value), dtype, sizes);
}

HloValue HloBuilder::lowest(at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) {
    return constant(-std::numeric_limits<double>::infinity(), dtype);
  }
  const bool is_signed = dtype != at::kBool && dtype != at::kByte;
  return constant(is_signed ? -greatest_integer(dtype) - 1 : 0, dtype);
}

HloValue HloBuilder::highest(at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return constant(std::numeric_limits<double>::infinity(), dtype);
  return constant(greatest_integer(dtype), dtype);
}

HloValue HloBuilder::iota(at::ScalarType dtype, const HloSizes& sizes, int64_t dim) {
  return add("iota", {}, dtype, sizes, "iota_dimension = " + std::to_string(dim) + " : i64");
}

// A number is true where it is not 0, also one between 0 and 1.
HloValue HloBuilder::convert(const HloValue& x, at::ScalarType dtype) {
  if (x.dtype == dtype) return x;
  if (dtype == at::kBool) return compare("NE", x, filled_like(x, 0));
  if (dtype_on_device(target_, x.dtype) == dtype_on_device(target_, dtype)) {
    return {x.name, dtype, x.sizes};
  }
  // XLA makes a choice of a product with a converted boolean, and its 0 would hide what is no
  // number.
  if (x.dtype == at::kBool && at::isFloatingType(dtype)) {
    return select(x, constant(1.0, dtype, x.sizes), constant(0.0, dtype, x.sizes));
  }
  const at::ScalarType between = integer_between(x.dtype, dtype);
  return add("convert", {convert(x, between)}, dtype, x.sizes);
}

HloValue HloBuilder::bits_as(const HloValue& x, at::ScalarType dtype) {
  return add("bitcast_convert", {x}, dtype, x.sizes);
}

HloValue HloBuilder::unary(std::string_view operation, const HloValue& x) {
  return add(operation, {x}, x.dtype, x.sizes);
}

HloValue HloBuilder::binary(std::string_view operation, const HloValue& a, const HloValue& b) {
  check_internal(a.dtype == b.dtype && a.sizes == b.sizes, "stablehlo.", operation, ": operands ",
                 hlo_type(a.dtype, a.sizes), " and ", hlo_type(b.dtype, b.sizes));
  return add(operation, {a, b}, a.dtype, a.sizes);
}

HloValue HloBuilder::compare(std::string_view direction, const HloValue& a, const HloValue& b) {
  return add(
      "compare", {a, b}, at::kBool, a.sizes,
      "comparison_direction = #stablehlo<comparison_direction " + std::string(direction) + ">");
}

HloValue HloBuilder::select(const HloValue& condition, const HloValue& a, const HloValue& b) {
  return add("select", {condition, a, b}, a.dtype, a.sizes);
}

HloValue HloBuilder::reshape(const HloValue& x, const HloSizes& sizes) {
  return x.sizes == sizes ? x : add("reshape", {x}, x.dtype, sizes);
}

HloValue HloBuilder::transpose(const HloValue& x, const HloSizes& permutation) {
  HloSizes sizes;
  for (const int64_t d : permutation) sizes.push_back(x.size(d));
  if (permutation == all_dims(x.dim())) return x;
  return add("transpose", {x}, x.dtype, sizes, "permutation = " + hlo_array(permutation));
}

HloValue HloBuilder::broadcast_in_dim(const HloValue& x, const HloSizes& dims,
                                      const HloSizes& sizes) {
  const bool is_integer = at::isIntegralType(x.dtype, /*includeBool=*/false);
  const bool is_splat = is_integer && x.sizes.empty() && !sizes.empty();
  const bool is_kept_apart = is_splat && target_.has(PjrtQuirk::kIntegerSplats);
  const HloValue given = is_kept_apart ? add("optimization_barrier", {x}, x.dtype, {}) : x;
  return add("broadcast_in_dim", {given}, x.dtype, sizes,
             "broadcast_dimensions = " + hlo_array(dims));
}

HloValue HloBuilder::broadcast(const HloValue& x, const HloSizes& sizes) {
  if (x.sizes == sizes) return x;
  HloSizes dims = all_dims(x.dim());
  for (int64_t& d : dims) d += static_cast<int64_t>(sizes.size()) - x.dim();
  return broadcast_in_dim(x, dims, sizes);
}

HloValue HloBuilder::slice(const HloValue& x, int64_t dim, int64_t begin, int64_t end,
                           int64_t step) {
  if (begin == 0 && end == x.size(dim) && step == 1) return x;
  const auto at = static_cast<size_t>(dim);
  HloSizes starts(x.sizes.size(), 0), limits = x.sizes, steps(x.sizes.size(), 1), sizes = x.sizes;
  starts[at] = begin;
  limits[at] = end;
  steps[at] = step;
  sizes[at] = std::max<int64_t>((end - begin + step - 1) / step, 0);
  return add("slice", {x}, x.dtype, sizes,
             "start_indices = " + hlo_array(starts) + ", limit_indices = " + hlo_array(limits) +
                 ", strides = " + hlo_array(steps));
}

HloValue HloBuilder::pad(const HloValue& x, int64_t dim, int64_t low, int64_t high,
                         int64_t between) {
  const auto at = static_cast<size_t>(dim);
  HloSizes lows(x.sizes.size(), 0), highs = lows, inner = lows, sizes = x.sizes;
  lows[at] = low;
  highs[at] = high;
  inner[at] = between;
  sizes[at] += low + high + std::max<int64_t>(sizes[at] - 1, 0) * between;
  return add("pad", {x, constant(int64_t{0}, x.dtype)}, x.dtype, sizes,
             "edge_padding_low = " + hlo_array(lows) + ", edge_padding_high = " + hlo_array(highs) +
                 ", interior_padding = " + hlo_array(inner));
}

HloValue HloBuilder::concatenate(const std::vector<HloValue>& parts, int64_t dim) {
  HloSizes sizes = parts.at(0).sizes;
  for (size_t i = 1; i < parts.size(); ++i) sizes[static_cast<size_t>(dim)] += parts[i].size(dim);
  return add("concatenate", parts, parts[0].dtype, sizes,
             "dimension = " + std::to_string(dim) + " : i64");
}

HloValue HloBuilder::overwritten(const HloValue& x, const HloValue& part, int64_t dim,
                                 const HloValue& begin) {
  std::vector<HloValue> operands{x, part};
  for (int64_t d = 0; d < x.dim(); ++d) {
    operands.push_back(d == dim ? begin : constant(int64_t{0}, begin.dtype));
  }
  return add("dynamic_update_slice", operands, x.dtype, x.sizes);
}

HloValue HloBuilder::window(const HloValue& x, int64_t dim, const HloValue& begin, int64_t size) {
  std::vector<HloValue> operands{x};
  for (int64_t d = 0; d < x.dim(); ++d) {
    operands.push_back(d == dim ? begin : constant(int64_t{0}, begin.dtype));
  }
  HloSizes sizes = x.sizes;
  sizes[static_cast<size_t>(dim)] = size;
  return add("dynamic_slice", operands, x.dtype, sizes, "slice_sizes = " + hlo_array(sizes));
}

HloValue HloBuilder::part_at(const HloValue& x, const HloValue& index) {
  return reshape(window(x, 0, index, 1), HloSizes(x.sizes.begin() + 1, x.sizes.end()));
}

HloValue HloBuilder::reduce(std::string_view operation, const HloValue& initial, const HloValue& x,
                            HloSizes dims, bool keep) {
  std::sort(dims.begin(), dims.end());
  HloSizes left, kept = x.sizes;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (std::binary_search(dims.begin(), dims.end(), d)) {
      kept[static_cast<size_t>(d)] = 1;
    } else {
      left.push_back(x.size(d));
    }
  }
  const HloValue out = dims.empty()
                           ? x
                           : add("reduce", {x, initial}, x.dtype, left,
                                 "dimensions = " + hlo_array(dims), combining(operation, x.dtype));
  return keep ? reshape(out, kept) : out;
}

HloValue HloBuilder::sum(const HloValue& x, const HloSizes& dims, bool keep) {
  return reduce("add", constant(int64_t{0}, x.dtype), x, dims, keep);
}

HloValue HloBuilder::maximum_of(const HloValue& x, const HloSizes& dims, bool keep) {
  return reduce("maximum", lowest(x.dtype), x, dims, keep);
}

HloValue HloBuilder::dot(const HloValue& a, const HloValue& b, int64_t batch_dims,
                         int64_t contracted_of_a, int64_t contracted_of_b) {
  if (at::isIntegralType(a.dtype, /*includeBool=*/true) &&
      target_.has(PjrtQuirk::kIntegerProducts)) {
    fail(NXD_ERROR_UNSUPPORTED, "device xla: a product of ", dtype_text(a.dtype),
         ": expected a dtype of floats, as the plug-in's compiler has no products of integers");
  }
  HloSizes sizes;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (d != contracted_of_a) sizes.push_back(a.size(d));
  }
  for (int64_t d = batch_dims; d < b.dim(); ++d) {
    if (d != contracted_of_b) sizes.push_back(b.size(d));
  }
  const std::string batch = bracketed(all_dims(batch_dims));
  return add("dot_general", {a, b}, wide_dtype(a.dtype), sizes,
             "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = " + batch +
                 ", rhs_batching_dimensions = " + batch +
                 ", lhs_contracting_dimensions = " + bracketed({contracted_of_a}) +
                 ", rhs_contracting_dimensions = " + bracketed({contracted_of_b}) + ">");
}

HloBuilder::Inside HloBuilder::inside(const HloValue& index, const HloValue& last) {
  const HloValue first = filled_like(index, 0);
  const HloValue was = binary("and", compare("GE", index, first), compare("LE", index, last));
  return {binary("minimum", binary("maximum", index, first), last), was};
}

HloValue HloBuilder::last_of_each(const HloSizes& sizes, const HloValue& coordinates) {
  HloSizes last = sizes;
  for (int64_t& size : last) --size;
  const HloValue row =
      literal(bracketed(last), coordinates.dtype, {static_cast<int64_t>(last.size())});
  return broadcast(row, coordinates.sizes);
}

HloValue HloBuilder::gather_slices(const HloValue& x, int64_t dim, const HloValue& given) {
  const HloValue index =
      target_.has(PjrtQuirk::kIndicesOutOfRange)
          ? inside(given, filled_like(given, static_cast<double>(x.size(dim) - 1))).index
          : given;
  HloSizes sizes(x.sizes.begin(), x.sizes.begin() + dim), offsets = all_dims(dim);
  sizes.insert(sizes.end(), index.sizes.begin(), index.sizes.end());
  for (int64_t d = dim + 1; d < x.dim(); ++d) {
    offsets.push_back(static_cast<int64_t>(sizes.size()));
    sizes.push_back(x.size(d));
  }
  if (are_empty(sizes)) return constant(int64_t{0}, x.dtype, sizes);
  HloSizes one = x.sizes;
  one[static_cast<size_t>(dim)] = 1;
  const std::string at = bracketed({dim});
  return add("gather", {x, index}, x.dtype, sizes,
             "dimension_numbers = #stablehlo.gather<offset_dims = " + bracketed(offsets) +
                 ", collapsed_slice_dims = " + at + ", start_index_map = " + at +
                 ", index_vector_dim = " + std::to_string(index.dim()) +
                 ">, slice_sizes = " + hlo_array(one) + ", indices_are_sorted = false");
}

HloValue HloBuilder::gather_elements(const HloValue& x, const HloValue& given) {
  const HloSizes sizes(given.sizes.begin(), given.sizes.end() - 1);
  if (are_empty(sizes)) return constant(int64_t{0}, x.dtype, sizes);
  const HloValue indices = target_.has(PjrtQuirk::kIndicesOutOfRange)
                               ? inside(given, last_of_each(x.sizes, given)).index
                               : given;
  const std::string dims = bracketed(all_dims(x.dim()));
  return add("gather", {x, indices}, x.dtype, sizes,
             "dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = " +
                 dims + ", start_index_map = " + dims +
                 ", index_vector_dim = " + std::to_string(indices.dim() - 1) + ">, slice_sizes = " +
                 hlo_array(HloSizes(x.sizes.size(), 1)) + ", indices_are_sorted = false");
}

HloValue HloBuilder::scatter_elements(std::string_view operation, const HloValue& x,
                                      const HloValue& given_indices,
                                      const HloValue& given_updates) {
  HloValue indices = given_indices, updates = given_updates;
  if (target_.has(PjrtQuirk::kIndicesOutOfRange)) {
    const Inside in_x = inside(indices, last_of_each(x.sizes, indices));
    const HloValue all = constant(int64_t{1}, at::kBool);
    indices = in_x.index;
    if (operation == "add") {
      updates = select(reduce("and", all, in_x.was, {indices.dim() - 1}, false), updates,
                       filled_like(updates, 0));
    }
  }
  const std::string dims = bracketed(all_dims(x.dim()));
  return add("scatter", {x, indices, updates}, x.dtype, x.sizes,
             "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [], "
             "inserted_window_dims = " +
                 dims + ", scatter_dims_to_operand_dims = " + dims +
                 ", index_vector_dim = " + std::to_string(indices.dim() - 1) +
                 ">, indices_are_sorted = false, unique_indices = false",
             combining(operation, x.dtype));
}

HloValue HloBuilder::scatter_rows(std::string_view operation, const HloValue& x,
                                  const HloValue& given_index, const HloValue& given_updates) {
  HloValue index = given_index, updates = given_updates;
  if (target_.has(PjrtQuirk::kIndicesOutOfRange)) {
    const Inside in_x = inside(index, filled_like(index, static_cast<double>(x.size(0) - 1)));
    index = in_x.index;
    if (operation == "add") {
      updates = select(broadcast_in_dim(in_x.was, all_dims(index.dim()), updates.sizes), updates,
                       filled_like(updates, 0));
    }
  }
  HloSizes window;
  for (int64_t d = 1; d < x.dim(); ++d) window.push_back(index.dim() + d - 1);
  return add(
      "scatter", {x, index, updates}, x.dtype, x.sizes,
      "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = " + bracketed(window) +
          ", inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
          "index_vector_dim = " +
          std::to_string(index.dim()) + ">, indices_are_sorted = false, unique_indices = false",
      combining(operation, x.dtype));
}

HloValue HloBuilder::all_reduce(std::string_view operation, const HloValue& x,
                                const HloGroups& groups) {
  return add("all_reduce", {x}, x.dtype, x.sizes, replica_groups(groups),
             combining(operation, x.dtype));
}

HloValue HloBuilder::all_gather(const HloValue& x, int64_t dim, const HloGroups& groups) {
  HloSizes sizes = x.sizes;
  sizes[static_cast<size_t>(dim)] *= static_cast<int64_t>(groups.at(0).size());
  return add("all_gather", {x}, x.dtype, sizes,
             text("all_gather_dim = ", dim, " : i64, ", replica_groups(groups)));
}

HloValue HloBuilder::reduce_scatter(std::string_view operation, const HloValue& x, int64_t dim,
                                    const HloGroups& groups) {
  HloSizes sizes = x.sizes;
  sizes[static_cast<size_t>(dim)] /= static_cast<int64_t>(groups.at(0).size());
  return add("reduce_scatter", {x}, x.dtype, sizes,
             text("scatter_dimension = ", dim, " : i64, ", replica_groups(groups)),
             combining(operation, x.dtype));
}

std::vector<HloValue> HloBuilder::together(const std::vector<HloValue>& values) {
  check_internal(values.size() > 1, "stablehlo.optimization_barrier: expected two values or more");
  const std::string name = next_name(), types = types_of(values);
  body_ += text("    ", name, ":", values.size(), " = \"stablehlo.optimization_barrier\"(",
                names_of(values), ") : (", types, ") -> (", types, ")\n");
  std::vector<HloValue> results = values;
  for (size_t i = 0; i < results.size(); ++i) results[i].name = text(name, "#", i);
  return results;
}

HloValue HloBuilder::replica() {
  const std::string name = next_name(), number = next_name();
  body_ += text("    ", name, " = \"stablehlo.replica_id\"() : () -> tensor<ui32>\n    ", number,
                " = \"stablehlo.convert\"(", name, ") : (tensor<ui32>) -> tensor<i64>\n");
  return {number, at::kLong, {}};
}

// XLA keeps no order between calls that depend on nothing of each other, and ranks that call
// collectives in different orders wait for ever: one token goes through all ordered calls.
std::vector<HloValue> HloBuilder::host_call(std::string_view target, const std::string& config,
                                            const std::vector<HloValue>& operands,
                                            const std::vector<HloValue>& result_types,
                                            bool is_ordered) {
  constexpr const char* kToken = "!stablehlo.token";
  if (is_ordered && token_.empty()) {
    token_ = next_name();
    body_ += "    " + token_ + " = \"stablehlo.create_token\"() : () -> " + kToken + "\n";
  }
  std::string names = names_of(operands), types = types_of(operands),
              given = types_of(result_types);
  if (is_ordered) {
    names += (names.empty() ? "" : ", ") + token_;
    types += (types.empty() ? "" : ", ") + std::string(kToken);
    given += (given.empty() ? "" : ", ") + std::string(kToken);
  }
  const std::string name = next_name();
  const size_t count = result_types.size() + (is_ordered ? 1 : 0);
  const auto result = [&](size_t i) { return count == 1 ? name : text(name, "#", i); };
  body_ += text("    ", name, count == 1 ? "" : text(":", count), " = \"stablehlo.custom_call\"(",
                names, ") {call_target_name = \"", target,
                "\", api_version = 4 : i32, has_side_effect = ", is_ordered ? "true" : "false",
                ", backend_config = {", config, "}} : (", types, ") -> ",
                count == 1 ? given : "(" + given + ")", "\n");
  std::vector<HloValue> results = result_types;
  for (size_t i = 0; i < results.size(); ++i) results[i].name = result(i);
  if (is_ordered) token_ = result(results.size());
  return results;
}

}  // namespace nxd
