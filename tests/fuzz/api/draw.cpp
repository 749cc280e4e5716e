#include "draw.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "watch.h"

namespace nxd_fuzz {
namespace {

thread_local Random* callback_random = nullptr;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

nxd_status_t callback_status() {
  static constexpr nxd_status_t kFailures[] = {NXD_ERROR_USER, NXD_ERROR_IO, NXD_ERROR_TIMEOUT};
  // Threads of the library's own call back too.
  if (!callback_random || !callback_random->once_in(10)) return NXD_OK;
  return callback_random->of(kFailures);
}

void on_destroy(void*) {}
void on_log(nxd_log_level_t, const char* message, void*) {
  if (message && std::strlen(message) == SIZE_MAX) std::abort();
}

Draw::~Draw() {
  callback_random = nullptr;
  for (void* block : memory_) std::free(block);
}

void Draw::forget_borrowed(const void* owner) {
  for (auto& [type, slots] : pools_) {
    for (size_t i = 0; i < slots.size();) {
      if (slots[i].owner != owner) {
        ++i;
        continue;
      }
      const void* gone = slots[i].handle;
      slots.erase(slots.begin() + static_cast<ptrdiff_t>(i));
      forget_borrowed(gone);
      i = 0;
    }
  }
}

int64_t Draw::whole(std::string_view name, int64_t low, int64_t high) {
  // Waits end soon, and nothing is started or measured that takes long: a store's default timeout,
  // 0, is minutes.
  static constexpr int64_t kTimeouts[] = {2, 1, 20, 100, 300, 300, -1, INT64_MIN};
  static constexpr int64_t kPorts[] = {0, 0, 0, 1, 65535, 65536, -1, INT_MAX};
  static constexpr int64_t kFew[] = {0, 1, 1, 2, 2, -1, INT_MIN};
  static constexpr int64_t kSignals[] = {0, 1, 9, 15, -1, 65, INT_MAX};
  static constexpr int64_t kEdges[] = {
      INT_MAX,          INT_MIN,   int64_t{1} << 31, int64_t{1} << 32,
      int64_t{1} << 60, INT64_MAX, INT64_MIN,        -1};
  if (has(name, "timeout_ms")) return random_.of(kTimeouts);
  if (name == "port") return random_.of(kPorts);
  if (name == "num_processes" || name == "virtual_size") return random_.of(kFew);
  if ((name == "to" || name == "from") && !random_.once_in(4)) return 1 - rank_;
  if (name == "ndim") return random_.below(6) - 1;
  if (name == "signal_number") return random_.of(kSignals);
  if (name == "world_size" || name == "batch_size") return random_.below(40) - 1;
  const int which = random_.below(16);
  int64_t value = random_.below(5);
  if (which >= 10) value = random_.below(1 << random_.below(11)) - 1;
  if (which == 15) value = random_.of(kEdges);
  return std::clamp(value, low, high);
}

double Draw::real(std::string_view) {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kEdges[] = {
      -1, 1e-300, 1e300, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
  if (random_.once_in(8)) return random_.of(kEdges);
  return random_.below(2) ? random_.below(4) : random_.below(1000) / 1000.0;
}

size_t Draw::count(std::string_view name, bool may_be_impossible) {
  const auto known = counts_.find(name);
  if (known != counts_.end()) return known->second;
  static constexpr size_t kNone[] = {size_t{PTRDIFF_MAX} + 1, SIZE_MAX};
  size_t n = random_.once_in(3) ? static_cast<size_t>(random_.below(64)) : random_.next() % 5;
  if (name == "num_ranks" && random_.once_in(2)) n = static_cast<size_t>(ranks_);
  // A model's: tokens and labels, and a loss.
  if (name == "num_inputs" && random_.once_in(2)) n = 2;
  if (name == "num_outputs" && random_.once_in(2)) n = 1;
  if (may_be_impossible && random_.once_in(20)) n = random_.of(kNone);
  counts_.emplace(name, n);
  return n;
}

void* Draw::memory(size_t bytes) {
  // malloc and not calloc, but of a content that is the seed's.
  void* block = std::malloc(bytes > 0 ? bytes : 1);
  if (!block) std::abort();
  memory_.push_back(block);
  std::memset(block, random_.once_in(2) ? 0 : 0x3c, bytes);
  return block;
}

size_t* Draw::few(size_t n, int most, bool may_be_impossible) {
  size_t* out = room<size_t>(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<size_t>(random_.below(most));
  if (random_.once_in(2)) std::fill(out, out + n, size_t{0});
  if (may_be_impossible && random_.once_in(12)) out[0] = kImpossible;
  return or_null(out);
}

const char* Draw::string(std::string_view name) {
  static constexpr const char* kPlain[] = {"a", "weight",         "bias", "tensor",       "group",
                                           "0", "model.layers.0", "w*",   "\xff\xfe\x80", "%s%n%d"};
  static constexpr const char* kPaths[] = {
      "file", "file",          "state.safetensors", "",      "none/file",
      ".",    "timeline.json", "timeline.svg",      "model", "\xff\xfe"};
  static constexpr const char* kHosts[] = {"127.0.0.1", "127.0.0.1", "", "::1"};
  static constexpr const char* kInterfaces[] = {"lo", "127.0.0.1", ""};
  static constexpr const char* kConfigs[] = {
      "{}", "[", R"({"model_type":"llama","hidden_size":16,"num_hidden_layers":2,
        "num_attention_heads":2,"intermediate_size":16,"vocab_size":16})",
      R"({"model_type":"gpt2","n_embd":16,"n_layer":1,"n_head":2,"vocab_size":16})"};
  // Operators that look at what they are given.
  static constexpr const char* kOperators[] = {"aten::add", "aten::mul", "aten::relu",
                                               "aten::mm",  "aten::sum", "aten::none",
                                               "cat",       "aten::view"};
  static constexpr const char* kArguments[] = {"self", "other", "alpha", "dim", "tensors"};
  static constexpr const char* kOverloads[] = {"", "Tensor", "Scalar", "dim_IntList"};
  static constexpr const char* kKeys[] = {"a", "b", "counter"};
  static constexpr const char* kPrograms[] = {"/bin/true", "/bin/false", "/none", ""};
  if (random_.once_in(16)) return nullptr;
  if (has(name, "path") || name == "directory") return random_.of(kPaths);
  // Nothing is asked of a name server.
  if (name == "host") return random_.of(kHosts);
  if (name == "interface_name") return random_.of(kInterfaces);
  if (name == "config_json") return random_.of(kConfigs);
  if (name == "op" && !random_.once_in(6)) return random_.of(kOperators);
  if (name == "argument" && !random_.once_in(6)) return random_.of(kArguments);
  if (name == "overload" && !random_.once_in(6)) return random_.of(kOverloads);
  if (name == "key" && !random_.once_in(4)) return random_.of(kKeys);
  if (name == "argv") return random_.of(kPrograms);
  if (random_.once_in(12)) {
    const size_t size = random_.once_in(4) ? 70000 : 1 + random_.next() % 300;
    auto* out = static_cast<char*>(memory(size + 1));
    std::memset(out, 'a' + random_.below(26), size);
    out[size] = '\0';
    return out;
  }
  if (random_.once_in(12)) return "";
  const char* plain = random_.of(kPlain);
  // On the heap, so that a read past its end is seen.
  auto* out = static_cast<char*>(memory(std::strlen(plain) + 1));
  std::memcpy(out, plain, std::strlen(plain) + 1);
  return out;
}

const char* const* Draw::strings(std::string_view name, size_t n, bool ends_with_null) {
  const size_t size = elements(n);
  auto** out = room<const char*>(size + (ends_with_null ? 1 : 0));
  const bool are_names = !ends_with_null && !random_.once_in(4);
  for (size_t i = 0; i < size; ++i) {
    auto* number = are_names ? static_cast<char*>(memory(24)) : nullptr;
    if (number) std::snprintf(number, 24, "p%zu", i);
    out[i] = number ? number : string(name);
  }
  if (ends_with_null) out[size] = nullptr;
  return or_null(out);
}

DLTensor* Draw::tensor(size_t index) {
  if (random_.once_in(40)) return nullptr;
  auto* out = room<DLTensor>(1);
  auto* shape = room<int64_t>(2);
  shape[0] = static_cast<int64_t>(index % 4) + 1;
  shape[1] = 3;
  constexpr size_t kBytes = 4 * 3 * kElementBytes;
  static constexpr DLDataType kDtypes[] = {{kDLFloat, 32, 1}, {kDLBfloat, 16, 1}, {kDLInt, 32, 1},
                                           {kDLFloat, 64, 1}, {kDLFloat, 32, 4},  {99, 7, 0}};
  const DLDataType dtype = random_.once_in(12) ? random_.of(kDtypes) : kDtypes[index % 5 == 4];
  *out = {memory(kBytes), {kDLCPU, 0}, 2, dtype, shape, nullptr, 0};
  switch (random_.below(60)) {
    case 0: out->data = nullptr; break;
    case 1: out->device.device_type = kDLCUDA; break;
    case 2: out->ndim = random_.once_in(2) ? -1 : 0; break;
    case 3: out->shape = nullptr; break;
    case 4: shape[random_.below(2)] = whole("extent", INT64_MIN, 3); break;
    case 5: {
      out->strides = room<int64_t>(2);
      out->strides[0] = random_.once_in(2) ? 3 : 1;
      out->strides[1] = 1;
      break;
    }
    case 6: shape[0] = int64_t{1} << 60; break;
    default: break;
  }
  return out;
}

DLTensor* Draw::layer_tensor(const char* fitting) {
  if (random_.once_in(24)) return tensor(random_.next() % 4);
  static constexpr DLDataType kElements[] = {
      {kDLFloat, 32, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 64, 1}, {kDLFloat, 16, 1}};
  static constexpr DLDataType kLabel{kDLInt, 64, 1}, kF32{kDLFloat, 32, 1};
  DLDataType dtype = kElements[count("dtype of a layer", false) % std::size(kElements)];
  auto* out = room<DLTensor>(1);
  auto* shape = room<int64_t>(2);
  size_t elements = 1;
  int ndim = 0;
  for (; *fitting != ' '; ++fitting) {
    const char extent[] = {*fitting, '\0'};
    const size_t n = *fitting == '2' ? 2 : count(extent, false);
    shape[ndim++] = static_cast<int64_t>(n);
    elements *= n;
  }
  if (fitting[1] == 'i') dtype = kLabel;
  if (fitting[1] == 's' && dtype.bits != 64) dtype = kF32;
  void* data = elements > 0 || random_.once_in(2) ? memory(elements * dtype.bits / 8) : nullptr;
  *out = {data, {kDLCPU, 0}, ndim, dtype, shape, nullptr, 0};
  return out;
}

DLTensor** Draw::layer_tensors(const char* fitting, size_t n) {
  auto** out = room<DLTensor*>(n);
  for (size_t i = 0; i < elements(n); ++i) out[i] = layer_tensor(fitting);
  return or_null(out);
}

DLTensor** Draw::tensors(size_t n) {
  auto** out = room<DLTensor*>(n);
  for (size_t i = 0; i < elements(n); ++i) out[i] = tensor(i);
  return or_null(out);
}

void Draw::check_text(const char* text) {
  if (!text) complain("a text", "is NULL after success");
  // All of it is read, for a sanitizer to see.
  if (std::strlen(text) > (size_t{1} << 24)) complain("a text", "has no end");
}

void Draw::begin(const char* function) {
  function_ = function;
  callback_random = &random_;
  watch_call(rank_, function);
}

bool Draw::end(nxd_status_t status) {
  last_status_ = status;
  watch_return(rank_, status);
  if (status == NXD_OK) return true;
  if (status > NXD_OK || status < NXD_ERROR_USER) complain("a status", "that is none");
  if (status == NXD_ERROR_INTERNAL) complain("INTERNAL", nxd_last_error());
  if (*nxd_last_error() == '\0') complain("a failure", "without a message");
  return false;
}

void Draw::complain(const char* what, const char* why) {
  std::fprintf(stderr, "api: rank %d: %s: %s: %s\n", rank_, function_, what, why);
  std::abort();
}

}  // namespace nxd_fuzz
