#include "core/pjrt/pjrt_options.h"

#include <cstdint>
#include <string_view>

#include "core/base/error.h"

namespace nxd {
namespace {

// Protocol buffers' wire format: a field's number and kind, then a number or counted bytes.
class ProtoWriter {
 public:
  ProtoWriter& number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  // Numbers one after another, as bytes() of a field wants them.
  ProtoWriter& packed(uint64_t value) {
    varint(value);
    return *this;
  }
  ProtoWriter& bytes(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    out_ += value;
    return *this;
  }
  const std::string& out() const { return out_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) out_ += static_cast<char>(value | 128);
    out_ += static_cast<char>(value);
  }

  std::string out_;
};

// Fields of CompileOptionsProto, its ExecutableBuildOptionsProto and OptionOverrideProto.
constexpr int kBuildOptions = 3, kFlagOverrides = 7;
constexpr int kDeviceOrdinal = 1, kReplicas = 4, kPartitions = 5, kAssignment = 9;
// Fields of DeviceAssignmentProto and its ComputationDevice.
constexpr int kReplicaCount = 1, kComputationCount = 2, kComputation = 3, kDevices = 1;
constexpr int kMapKey = 1, kMapValue = 2, kTextOverride = 1, kBooleanOverride = 2;

std::string override_of(const std::string& value) {
  ProtoWriter out;
  if (value == "true" || value == "false") {
    out.number(kBooleanOverride, value == "true");
  } else {
    out.bytes(kTextOverride, value);
  }
  return out.out();
}

std::string assignment_of(int replicas) {
  ProtoWriter devices, computation, out;
  for (int device = 0; device < replicas; ++device) devices.packed(static_cast<uint64_t>(device));
  computation.bytes(kDevices, devices.out());
  out.number(kReplicaCount, static_cast<uint64_t>(replicas)).number(kComputationCount, 1);
  return out.bytes(kComputation, computation.out()).out();
}

}  // namespace

std::map<std::string, std::string> PjrtOptions::all_flags() const {
  std::map<std::string, std::string> all = flags;
  if (fast_compile) {
    all.emplace("xla_backend_optimization_level", "0");
    all.emplace("xla_cpu_use_fusion_emitters", "false");
  }
  return all;
}

std::string compile_options_proto(const std::map<std::string, std::string>& flags, int replicas) {
  check_argument(replicas >= 1, "options.replicas: expected 1 or more, got ", replicas);
  ProtoWriter build;
  // No device in particular is -1, which must be written: left out, it reads as device 0.
  build.number(kDeviceOrdinal, ~uint64_t{0});
  build.number(kReplicas, static_cast<uint64_t>(replicas)).number(kPartitions, 1);
  if (replicas > 1) build.bytes(kAssignment, assignment_of(replicas));
  ProtoWriter out;
  out.bytes(kBuildOptions, build.out());
  for (const auto& flag : flags) {
    ProtoWriter entry;
    entry.bytes(kMapKey, flag.first).bytes(kMapValue, override_of(flag.second));
    out.bytes(kFlagOverrides, entry.out());
  }
  return out.out();
}

}  // namespace nxd
