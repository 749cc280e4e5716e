#include "core/comm/monitor/attendance.h"

namespace nxd {
namespace {

thread_local const Attendance* attendance_of_thread = nullptr;

}  // namespace

const Attendance* Attendance::current() noexcept { return attendance_of_thread; }

AttendanceScope::AttendanceScope(const Attendance* attendance) noexcept {
  attendance_of_thread = attendance;
}

AttendanceScope::~AttendanceScope() { attendance_of_thread = nullptr; }

}  // namespace nxd
