// The flight record: what it says of calls that are done, failed and waiting, from other threads,
// and the file that a failing group leaves. Calls of the C interface; JSON read by a library.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/monitor/flight_record.h"
#include "support/ranks.h"
#include "support/temp_dir.h"
#include "support/working_directory.h"

// After the rest: it defines fail().
#include "support/check.h"

namespace {

using Json = nlohmann::json;

Json record_of(nxd_context_t* ctx) {
  std::vector<char> text(1 << 18);
  size_t needed = 0;
  if (!NXD_TEST_OK(nxd_context_get_flight_record(ctx, text.data(), text.size(), &needed)))
    return {};
  NXD_TEST_CHECK(needed == std::strlen(text.data()) + 1);
  return Json::parse(text.data());
}

// The operations of a group; empty when there is no such group.
Json operations_of(nxd_context_t* ctx, const std::string& group) {
  const Json record = record_of(ctx);
  for (const Json& entry : record["groups"]) {
    if (entry["name"] == group) return entry["operations"];
  }
  return Json::array();
}

nxd_group_t* world_of(nxd_context_t* ctx) {
  nxd_group_t* world = nullptr;
  NXD_TEST_OK(nxd_context_get_world_group(ctx, &world));
  return world;
}

pthread_barrier_t meet;

void run_two(nxd_test_rank_fn fn) {
  pthread_barrier_init(&meet, nullptr, 2);
  nxd_test_run_ranks(2, 0, fn, nullptr);
  pthread_barrier_destroy(&meet);
}

void check_entry(const Json& o, const char* operation, const char* state, uint64_t sequence) {
  NXD_TEST_CHECK(o["operation"] == operation && o["state"] == state);
  NXD_TEST_CHECK(o["sequence"] == sequence);
  NXD_TEST_CHECK(o["start_us"] >= 0 && o["duration_us"] >= 0);
}

void calls(nxd_context_t* ctx, int rank, int, void*) {
  nxd_group_t* world = world_of(ctx);
  float x[4] = {0};
  NXD_TEST_OK(nxd_all_reduce(world, x, x, 3, NXD_DTYPE_F32, NXD_REDUCE_SUM));
  NXD_TEST_OK(nxd_broadcast(world, x, 2, NXD_DTYPE_BF16, 1));
  nxd_broadcast(world, x, 1, NXD_DTYPE_F32, 7);
  NXD_TEST_OK(rank == 0 ? nxd_send(world, x, 4, NXD_DTYPE_F32, 1, 5)
                        : nxd_receive(world, x, 4, NXD_DTYPE_F32, 0, 5));
  const Json record = record_of(ctx);
  NXD_TEST_CHECK(record["rank"] == rank && record["groups"].size() == 1);
  NXD_TEST_CHECK(record["groups"][0]["ranks"] == Json({0, 1}));
  NXD_TEST_CHECK(!record["groups"][0].contains("error"));
  // The first is the barrier by which the world has met.
  const Json& o = record["groups"][0]["operations"];
  if (!NXD_TEST_CHECK(o.size() == 5)) return;
  check_entry(o[0], "barrier", "done", 0);
  check_entry(o[1], "all_reduce", "done", 1);
  NXD_TEST_CHECK(o[1]["dtype"] == "f32" && o[1]["count"] == 3 && o[1]["kind"] == "collective");
  check_entry(o[2], "broadcast", "done", 2);
  NXD_TEST_CHECK(o[2]["dtype"] == "bf16" && o[2]["peer"] == 1);
  check_entry(o[3], "broadcast", "failed", 3);
  check_entry(o[4], rank == 0 ? "send" : "receive", "done", 0);
  NXD_TEST_CHECK(o[4]["kind"] == "message" && o[4]["peer"] == 1 - rank);
  // Only the last ones are kept.
  for (int i = 0; i < 100; ++i) NXD_TEST_OK(nxd_barrier(world));
  uint64_t collectives = 0, messages = 0;
  for (const Json& last : operations_of(ctx, "world")) {
    if (last["kind"] == "message") {
      check_entry(last, rank == 0 ? "send" : "receive", "done", messages++);
    } else {
      check_entry(last, "barrier", "done", 104 - 64 + collectives++);
    }
  }
  NXD_TEST_CHECK(collectives == 64 && messages == 1);
}

void test_calls(void**) { run_two(calls); }

// Another thread can read meanwhile which call a rank waits in.
void waiting(nxd_context_t* ctx, int rank, int, void*) {
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    std::thread blocked([&] { NXD_TEST_OK(nxd_barrier(world)); });
    for (bool seen = false; !seen; usleep(1000)) {
      const Json operations = operations_of(ctx, "world");
      const Json& last = operations.back();
      seen = last["state"] == "started" && last.contains("awaited");
      if (seen) NXD_TEST_CHECK(last["awaited"] == 1 && last["operation"] == "barrier");
      if (nxd_test_failures() > 0) break;
    }
    pthread_barrier_wait(&meet);
    blocked.join();
    NXD_TEST_CHECK(!operations_of(ctx, "world").back().contains("awaited"));
  } else {
    pthread_barrier_wait(&meet);
    NXD_TEST_OK(nxd_barrier(world));
  }
}

void test_waiting(void**) { run_two(waiting); }

void bad_calls(nxd_context_t* ctx, int, int, void*) {
  const nxd_status_t bad = NXD_ERROR_INVALID_ARGUMENT;
  size_t needed = 5;
  char small[8] = "intact";
  NXD_TEST_REFUSED(nxd_context_get_flight_record(nullptr, small, sizeof small, &needed), bad,
                   "ctx");
  NXD_TEST_CHECK(needed == 0);
  NXD_TEST_REFUSED(nxd_context_get_flight_record(ctx, small, sizeof small, nullptr), bad,
                   "out_needed");
  NXD_TEST_REFUSED(nxd_context_get_flight_record(ctx, nullptr, 8, &needed), bad, "buf");
  NXD_TEST_REFUSED(nxd_context_get_flight_record(ctx, small, sizeof small, &needed), bad, "cap");
  NXD_TEST_CHECK(!std::strcmp(small, "intact") && needed > sizeof small);
  NXD_TEST_OK(nxd_context_get_flight_record(ctx, nullptr, 0, &needed));
  NXD_TEST_CHECK(needed > sizeof small);
}

void test_bad_calls(void**) { nxd_test_run_ranks(1, 0, bad_calls, nullptr); }

// --- The file ------------------------------------------------------------------------------------

// The world fails twice over; a group of another name is not touched.
void fails(nxd_context_t* ctx, int rank, int, void*) {
  nxd_group_t* world = world_of(ctx);
  NXD_TEST_OK(nxd_group_set_timeout(world, 1000));
  float x = 0;
  if (rank == 1) pthread_barrier_wait(&meet);
  const nxd_status_t lost = NXD_ERROR_TIMEOUT;
  NXD_TEST_REFUSED(nxd_all_reduce(world, &x, &x, 1, NXD_DTYPE_F32, NXD_REDUCE_SUM), lost, "rank 1");
  NXD_TEST_REFUSED(nxd_barrier(world), lost, "rank 1");
  if (rank == 0) pthread_barrier_wait(&meet);
}

void test_file(void**) {
  const nxd_test::TempDir directory;
  const std::string prefix = directory.path() + "/flight.";
  setenv("NXD_FLIGHT_RECORD", prefix.c_str(), 1);
  run_two(fails);
  unsetenv("NXD_FLIGHT_RECORD");
  for (int rank = 0; rank < 2; ++rank) {
    std::ifstream file(prefix + std::to_string(rank));
    std::string line, rest;
    assert_true(static_cast<bool>(std::getline(file, line)));
    assert_false(static_cast<bool>(std::getline(file, rest)));  // once for the group
    const Json record = Json::parse(line);
    assert_int_equal(record["rank"].get<int>(), rank);
    const Json& group = record["groups"][0];
    assert_string_equal(group["name"].get<std::string>().c_str(), "world");
    assert_true(group["error"].get<std::string>().find("rank 1") != std::string::npos);
    const Json& last = group["operations"].back();
    assert_true(last["operation"] == "all_reduce" && last["state"] == "started");
    if (rank == 0) assert_true(last["awaited"] == 1);
  }
}

// The prefix leads from where the program was when it made the context.
void fails_elsewhere(nxd_context_t* ctx, int rank, int size, void* user_data) {
  if (rank == 0) NXD_TEST_CHECK(::chdir("elsewhere") == 0);
  fails(ctx, rank, size, user_data);
}

void test_relative_prefix(void**) {
  const nxd_test::TempDir directory;
  const nxd_test::WorkingDirectory here(directory.path());
  assert_int_equal(mkdir("elsewhere", 0700), 0);
  setenv("NXD_FLIGHT_RECORD", "flight.", 1);
  run_two(fails_elsewhere);
  unsetenv("NXD_FLIGHT_RECORD");
  for (const char* file : {"/flight.0", "/flight.1"}) {
    assert_true(std::ifstream(directory.path() + file).good());
  }
}

// A pipe that nobody reads from would hold the call that failed for ever. One that has a reader
// gets nothing.
void test_pipes(void**) {
  const nxd_test::TempDir directory;
  const std::string path = directory.path() + "/fifo";
  assert_int_equal(mkfifo(path.c_str(), 0600), 0);
  const auto refused = [&](const char* reason) {
    try {
      nxd::append_flight_json(path, "{}");
      fail_msg("%s", "a pipe was written to");
    } catch (const nxd::Error& error) {
      assert_int_equal(error.status(), NXD_ERROR_IO);
      assert_string_equal(error.what(), ("cannot write to " + path + ": " + reason).c_str());
    }
  };
  alarm(60);  // ends the test where it waits for a reader
  refused("No such device or address");
  alarm(0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  assert_true(reader >= 0);
  refused("expected a regular file, got a FIFO");
  char byte = 0;
  assert_int_equal(read(reader, &byte, 1), 0);
  close(reader);
}

// A file that cannot be written is logged. The group fails on a thread of the library's own here,
// but the callback runs on one that is inside a call.
std::atomic<int> lines{0};
thread_local bool is_callers = false;

void on_log(nxd_log_level_t level, const char* message, void*) {
  NXD_TEST_CHECK(is_callers && level == NXD_LOG_WARN);
  NXD_TEST_CHECK(std::strstr(message, "/no/such/place") != nullptr);
  ++lines;
}

void fails_asynchronously(nxd_context_t* ctx, int rank, int, void*) {
  is_callers = true;
  nxd_group_t* world = world_of(ctx);
  if (rank == 0) {
    nxd_work_t* work = nullptr;
    NXD_TEST_OK(nxd_barrier_async(world, &work));
    NXD_TEST_OK(nxd_group_abort(world));
    NXD_TEST_REFUSED(nxd_work_wait(work, -1), NXD_ERROR_ABORTED, "aborted");
    NXD_TEST_CHECK(lines == 1);
    nxd_work_destroy(work);
  }
  pthread_barrier_wait(&meet);
}

void test_log(void**) {
  setenv("NXD_FLIGHT_RECORD", "/no/such/place.", 1);
  assert_int_equal(nxd_log_set_callback(on_log, nullptr, nullptr), NXD_OK);
  run_two(fails_asynchronously);
  assert_int_equal(nxd_log_set_callback(nullptr, nullptr, nullptr), NXD_OK);
  unsetenv("NXD_FLIGHT_RECORD");
  assert_int_equal(lines, 1);
}

// A disk that is full takes a part of a line: here the limit on sizes of files does.
void test_no_room(void**) {
  const nxd_test::TempDir directory;
  const std::string path = directory.path() + "/flight.0";
  rlimit limit{};
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  nxd::append_flight_json(path, "first");
  rlimit low = limit;
  low.rlim_cur = 10;
  setrlimit(RLIMIT_FSIZE, &low);
  std::string message;
  try {
    nxd::append_flight_json(path, "a line that is longer");
  } catch (const nxd::Error& e) {
    message = e.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  assert_true(message.ends_with("File too large"));
  nxd::append_flight_json(path, "second");
  std::ifstream file(path);
  const std::string content(std::istreambuf_iterator<char>(file), {});
  assert_string_equal(content.c_str(), "first\nsecond\n");
}

// --- Readers and writers -------------------------------------------------------------------------

// Every field of an operation follows from its sequence, so that a torn entry shows.
void write_many(nxd::FlightRecord& record, int writer, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    nxd::FlightRecord::Operation o;
    std::snprintf(o.name, sizeof o.name, "w%d-%llu", writer, static_cast<unsigned long long>(i));
    o.sequence = i * 4 + static_cast<uint64_t>(writer);
    o.count = o.sequence * 3;
    o.start_ns = static_cast<int64_t>(o.sequence * 5);
    o.peer = static_cast<int>(o.sequence % 1000);
    o.is_message = writer > 0;  // one writer of collectives, several of messages
    const auto ticket = record.begin(o);
    record.await(ticket, o.peer + 1);
    record.end(ticket, nxd::FlightRecord::State::kDone, o.start_ns + 7);
  }
}

bool is_whole(const nxd::FlightRecord::Operation& o) {
  char name[24];
  std::snprintf(name, sizeof name, "w%d-%llu", static_cast<int>(o.sequence % 4),
                static_cast<unsigned long long>(o.sequence / 4));
  const bool over = o.state == nxd::FlightRecord::State::kDone;
  return !std::strcmp(name, o.name) && o.count == o.sequence * 3 &&
         o.start_ns == static_cast<int64_t>(o.sequence * 5) &&
         o.peer == static_cast<int>(o.sequence % 1000) &&
         (o.awaited == -1 || o.awaited == o.peer + 1) &&
         (!over || (o.duration_ns == o.start_ns + 7 && o.awaited == o.peer + 1));
}

void test_tearing(void**) {
  nxd::FlightRecord record;
  std::atomic<bool> writing{true};
  std::vector<std::thread> writers;
  for (int w = 0; w < 3; ++w) {
    writers.emplace_back([&record, w] { write_many(record, w, 20000); });
  }
  std::thread reader([&] {
    size_t seen = 0;
    while (writing || seen == 0) {
      for (const auto& o : record.snapshot()) {
        ++seen;
        NXD_TEST_CHECK(is_whole(o));
      }
    }
  });
  for (std::thread& writer : writers) writer.join();
  writing = false;
  reader.join();
  assert_int_equal(nxd_test_failures(), 0);
  const auto last = record.snapshot();
  assert_true(last.size() > 32 && last.size() <= 2 * nxd::FlightRecord::kEntries);
  for (const auto& o : last) assert_true(is_whole(o));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(test_calls),
                              cmocka_unit_test(test_waiting),
                              cmocka_unit_test(test_bad_calls),
                              cmocka_unit_test(test_file),
                              cmocka_unit_test(test_relative_prefix),
                              cmocka_unit_test(test_pipes),
                              cmocka_unit_test(test_log),
                              cmocka_unit_test(test_no_room),
                              cmocka_unit_test(test_tearing)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
