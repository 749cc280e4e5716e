// Reads the .npy files of the oracles: format 1.0, little-endian. Values come in C order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace nxd_test {

template <class T>
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<T> values;
};

namespace npy_detail {

inline std::string field(const std::string& header, const std::string& name) {
  const size_t at = header.find("'" + name + "':");
  if (at == std::string::npos) throw std::runtime_error("npy: no field " + name);
  size_t begin = header.find_first_not_of(' ', at + name.size() + 3);
  const char close = header[begin] == '(' ? ')' : ',';
  return header.substr(begin, header.find(close, begin) - begin);
}

template <class From, class T>
void convert(const char* data, std::vector<T>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    From value;
    std::memcpy(&value, data + i * sizeof value, sizeof value);
    out[i] = static_cast<T>(value);
  }
}

// From the first index running fastest to the last.
template <class T>
void to_c_order(NpyArray<T>& array) {
  const std::vector<T> source = array.values;
  std::vector<int64_t> index(array.shape.size(), 0);
  for (T& value : array.values) {
    int64_t offset = 0;
    for (size_t d = index.size(); d-- > 0;) offset = offset * array.shape[d] + index[d];
    value = source[static_cast<size_t>(offset)];
    for (size_t d = index.size(); d-- > 0 && ++index[d] == array.shape[d];) index[d] = 0;
  }
}

}  // namespace npy_detail

// T is the type wanted; the file may hold f4, f8 or i8, of which only exact conversions are done.
template <class T>
NpyArray<T> read_npy(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("npy: cannot open " + path);
  const std::string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (file.size() < 10 || file.compare(0, 6, "\x93NUMPY") != 0 || file[6] != 1)
    throw std::runtime_error("npy: not a file of format 1: " + path);
  const size_t length = static_cast<unsigned char>(file[8]) +
                        256 * static_cast<size_t>(static_cast<unsigned char>(file[9]));
  const std::string header = file.substr(10, length);
  NpyArray<T> array;
  size_t count = 1;
  const std::string shape = npy_detail::field(header, "shape");
  for (size_t at = 1; at < shape.size();) {
    const size_t end = std::min(shape.find(',', at), shape.size());
    const std::string extent = shape.substr(at, end - at);
    if (extent.find_first_not_of(' ') != std::string::npos) {
      array.shape.push_back(std::stoll(extent));
      count *= static_cast<size_t>(array.shape.back());
    }
    at = end + 1;
  }
  array.values.resize(count);
  const std::string type = npy_detail::field(header, "descr").substr(1, 3);
  const size_t item = type == "<f4" || type == "<i4" ? 4 : 8;
  if (file.size() != 10 + length + count * item)
    throw std::runtime_error("npy: wrong size: " + path);
  const char* data = file.data() + 10 + length;
  const bool wants_float = std::is_floating_point_v<T>;
  if (type == "<f4" && wants_float) {
    npy_detail::convert<float>(data, array.values);
  } else if (type == "<f8" && std::is_same_v<T, double>) {
    npy_detail::convert<double>(data, array.values);
  } else if (type == "<i8" && std::is_same_v<T, int64_t>) {
    npy_detail::convert<int64_t>(data, array.values);
  } else {
    throw std::runtime_error("npy: type " + type + " is not what was asked for: " + path);
  }
  if (npy_detail::field(header, "fortran_order") == "True") npy_detail::to_c_order(array);
  return array;
}

}  // namespace nxd_test
