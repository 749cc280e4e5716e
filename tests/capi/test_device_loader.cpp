// Device loaders: training over one beside the same batches fed by hand, with as many steps; going
// on at a position; batches that a function makes, to their end, and when it or their move fails;
// bad calls.
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "support/device.h"
#include "support/model_support.h"
#include "support/pjrt.h"
#include "support/temp_dir.h"

#include "support/check.h"

namespace {

using namespace nxd_test;

constexpr int kTrainedBatches = 6;
constexpr int64_t kRows = 2, kLength = 8, kSamples = 30;

struct Tokens {
  Tokens() : path(directory.path() + "/tokens.bin") {
    std::ofstream out(path, std::ios::binary);
    for (int64_t i = 0; i < kSamples * kLength; ++i) {
      out.put(static_cast<char>((i * i * 7 + i * 13) % 97));
      out.put(0);
    }
  }
  TempDir directory;
  std::string path;
};

using State = std::unique_ptr<nxd_training_state_t, Destroyer<nxd_training_state_destroy>>;
using DataLoader = std::unique_ptr<nxd_data_loader_t, Destroyer<nxd_data_loader_destroy>>;
using DeviceLoader = std::unique_ptr<nxd_device_loader_t, Destroyer<nxd_device_loader_destroy>>;

DataLoader open(nxd_context_t* ctx, const std::string& path, int32_t next_labels = 0) {
  nxd_data_loader_options_t options = NXD_DATA_LOADER_OPTIONS_INIT;
  options.next_labels = next_labels;
  const char* const paths[] = {path.c_str()};
  nxd_data_loader_t* out = nullptr;
  NXD_TEST_OK(nxd_data_loader_create(ctx, paths, 1, kRows, kLength, &options, &out));
  return DataLoader(out);
}

DeviceLoader over(nxd_data_loader_t* loader, nxd_device_t device, int32_t batches = 0,
                  int32_t prefetch = 0) {
  nxd_device_loader_options_t options = NXD_DEVICE_LOADER_OPTIONS_INIT;
  options.batches_per_execution = batches;
  options.prefetch = prefetch;
  nxd_device_loader_t* out = nullptr;
  NXD_TEST_OK(nxd_device_loader_create(loader, device, &options, &out));
  return DeviceLoader(out);
}

std::vector<int64_t> ids_of(nxd_tensor_t* tensor) {
  int64_t count = 0;
  NXD_TEST_OK(nxd_tensor_get_element_count(tensor, &count));
  std::vector<int64_t> out(static_cast<size_t>(count));
  NXD_TEST_OK(nxd_tensor_copy_to_host(tensor, out.data(), out.size() * sizeof(int64_t)));
  return out;
}

// The one tensor of the next batch; none at the end.
Tensor next(nxd_device_loader_t* loader) {
  nxd_tensor_t* out = nullptr;
  int32_t end = -1;
  NXD_TEST_OK(nxd_device_loader_next(loader, &out, 1, &end));
  NXD_TEST_CHECK(end == (out ? 0 : 1));
  return Tensor(out);
}

int64_t position_of(nxd_device_loader_t* loader) {
  int64_t position = -1;
  NXD_TEST_OK(nxd_device_loader_get_position(loader, &position));
  return position;
}

struct Fed {
  std::vector<double> losses;
  uint64_t steps = 0, implicit_syncs = 0;
};

struct Reading {
  Tensor loss;
  double value = NAN;
};

nxd_status_t read_loss(void* user_data) {
  auto* reading = static_cast<Reading*>(user_data);
  return nxd_tensor_get_item(reading->loss.get(), &reading->value);
}

// Trains on batches, `each` of them a step, which feed() gives; by_hand: the step is marked here.
Fed train(nxd_context_t* ctx, nxd_device_t device, int each, bool by_hand,
          const std::function<Tensor()>& feed) {
  Layout layout{1, false, NXD_DTYPE_F32};
  layout.device = device;
  const Module model = create_model(ctx, LlamaOracle().config, layout);
  nxd_optimizer_t* made = nullptr;
  NXD_TEST_OK(nxd_optimizer_create_adamw(model.get(), nullptr, &made));
  const Optimizer optimizer(made);
  NXD_TEST_OK(nxd_device_reset_metrics());
  std::vector<Reading> readings(kTrainedBatches);
  for (int i = 0; i < kTrainedBatches; ++i) {
    const Tensor ids = feed();
    nxd_tensor_t* inputs[] = {ids.get(), ids.get()};
    nxd_tensor_t* loss = nullptr;
    if (!NXD_TEST_OK(nxd_module_forward(model.get(), inputs, 2, &loss, 1))) break;
    readings[static_cast<size_t>(i)].loss.reset(loss);
    NXD_TEST_OK(nxd_backward(&loss, nullptr, 1, 0));
    NXD_TEST_OK(nxd_add_step_closure(read_loss, &readings[static_cast<size_t>(i)], nullptr));
    if ((i + 1) % each != 0) continue;
    NXD_TEST_OK(nxd_optimizer_step(made, nullptr, nullptr));
    NXD_TEST_OK(nxd_module_zero_grad(model.get()));
    if (by_hand) NXD_TEST_OK(nxd_mark_step(1));
  }
  if (!by_hand) NXD_TEST_OK(nxd_mark_step(1));  // the last, which no batch follows
  Fed out;
  for (const Reading& reading : readings) out.losses.push_back(reading.value);
  out.steps = metrics().steps;
  out.implicit_syncs = metrics().implicit_syncs;
  return out;
}

void trains_as_fed_by_hand(nxd_context_t* ctx, int, int, void*) {
  const Tokens tokens;
  for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
    for (const int each : {1, 3}) {
      const DataLoader batches = open(ctx, tokens.path);
      const Fed want = train(ctx, device, each, true, [&] {
        std::vector<int64_t> ids(kRows * kLength);
        NXD_TEST_OK(nxd_data_loader_next(batches.get(), ids.data(), nullptr, ids.size()));
        nxd_tensor_t* there = nullptr;
        NXD_TEST_OK(nxd_tensor_to_device(make_i64(ids, {kRows, kLength}).get(), device, &there));
        return Tensor(there);
      });
      const DataLoader same = open(ctx, tokens.path);
      const DeviceLoader loader = over(same.get(), device, each);
      const Fed got = train(ctx, device, each, false, [&] { return next(loader.get()); });
      NXD_TEST_CHECK(got.losses == want.losses && got.losses[0] > 1);
      NXD_TEST_CHECK(got.steps == want.steps && got.implicit_syncs == want.implicit_syncs);
      const uint64_t steps = device == NXD_DEVICE_XLA ? kTrainedBatches / each : 0;
      NXD_TEST_CHECK(got.steps == steps);
    }
  }
}

void test_trains_as_fed_by_hand(void**) {
  nxd_test_run_ranks(1, 1, trains_as_fed_by_hand, nullptr);
}

// A batch that was read ahead is neither lost nor given twice, wherever the loader goes on.
void goes_on(nxd_context_t* ctx, int rank, int size, void* user_data) {
  const std::string& path = *static_cast<const std::string*>(user_data);
  const int64_t stride = kRows * size;
  const DataLoader plain = open(ctx, path, 1);
  std::vector<std::vector<int64_t>> ids, labels;
  for (int i = 0; i < 8; ++i) {
    ids.emplace_back(kRows * kLength);
    labels.emplace_back(kRows * kLength);
    NXD_TEST_OK(nxd_data_loader_next(plain.get(), ids.back().data(), labels.back().data(),
                                     ids.back().size()));
  }
  const DataLoader lent = open(ctx, path, 1);
  DeviceLoader loader = over(lent.get(), NXD_DEVICE_XLA, 0, 3);
  const auto check = [&](size_t batch) {
    nxd_tensor_t* out[2] = {};
    int32_t end = -1;
    if (!NXD_TEST_OK(nxd_device_loader_next(loader.get(), out, 2, &end))) return;
    const Tensor x(out[0]), y(out[1]);
    NXD_TEST_CHECK(end == 0 && ids_of(x.get()) == ids[batch] && ids_of(y.get()) == labels[batch]);
    NXD_TEST_CHECK(position_of(loader.get()) == static_cast<int64_t>(batch + 1) * stride);
  };
  NXD_TEST_CHECK(position_of(loader.get()) == 0);
  for (const size_t batch : {0, 1, 2}) check(batch);
  NXD_TEST_OK(nxd_device_loader_set_position(loader.get(), stride));
  NXD_TEST_CHECK(position_of(loader.get()) == stride);
  for (const size_t batch : {1, 2}) check(batch);
  NXD_TEST_REFUSED(nxd_device_loader_set_position(loader.get(), -1), NXD_ERROR_INVALID_ARGUMENT,
                   "position: expected 0 to 2^53");
  check(3);
  // The data loader is the device loader's.
  int64_t there = 0;
  NXD_TEST_OK(nxd_data_loader_get_position(lent.get(), &there));
  NXD_TEST_CHECK(there == 4 * stride);
  NXD_TEST_REFUSED(nxd_data_loader_set_position(lent.get(), 0), NXD_ERROR_INVALID_STATE,
                   "a device loader reads it");
  NXD_TEST_REFUSED(nxd_data_loader_next(lent.get(), &there, nullptr, 1), NXD_ERROR_INVALID_STATE,
                   "a device loader reads it");
  nxd_device_loader_t* second = nullptr;
  NXD_TEST_REFUSED(nxd_device_loader_create(lent.get(), NXD_DEVICE_CPU, nullptr, &second),
                   NXD_ERROR_INVALID_STATE, "a device loader reads it");
  NXD_TEST_OK(nxd_data_loader_get_sample_count(lent.get(), &there));
  NXD_TEST_CHECK(there == kSamples - 1);
  loader.reset();
  NXD_TEST_OK(nxd_data_loader_get_position(lent.get(), &there));
  NXD_TEST_CHECK(there == 4 * stride);
  loader = over(lent.get(), NXD_DEVICE_CPU);
  check(4);
  static_cast<void>(rank);
}

void test_goes_on(void**) {
  Tokens tokens;
  for (const int ranks : {1, 2}) nxd_test_run_ranks(ranks, 1, goes_on, &tokens.path);
}

// A file that was cut short: the error comes out at next, every time, until the file is whole.
void reading_fails(nxd_context_t* ctx, int, int, void*) {
  const Tokens tokens;
  const std::string whole = read_file(tokens.path);
  const DataLoader batches = open(ctx, tokens.path);
  const DeviceLoader loader = over(batches.get(), NXD_DEVICE_XLA, 0, 1);
  std::filesystem::resize_file(tokens.path, 0);
  // Two that the data loader had read, and one on the device.
  nxd_tensor_t* out = nullptr;
  int32_t end = 0;
  int64_t taken = 0;
  nxd_status_t status = NXD_OK;
  while (taken < 5) {
    status = nxd_device_loader_next(loader.get(), &out, 1, &end);
    if (status != NXD_OK) break;
    nxd_tensor_destroy(out);
    ++taken;
  }
  NXD_TEST_CHECK(taken <= 3 && status == NXD_ERROR_CORRUPT && !out);
  NXD_TEST_CHECK(nxd_device_loader_next(loader.get(), &out, 1, &end) == NXD_ERROR_CORRUPT);
  NXD_TEST_CHECK(position_of(loader.get()) == taken * kRows);
  std::ofstream(tokens.path, std::ios::binary) << whole;
  NXD_TEST_CHECK(next(loader.get()) != nullptr);
  NXD_TEST_CHECK(position_of(loader.get()) == (taken + 1) * kRows);
}

void test_reading_fails(void**) { nxd_test_run_ranks(1, 0, reading_fails, nullptr); }

// A runtime may stop the threads that have run its program's code by a signal.
bool blocks_signals() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  return sigismember(&blocked, SIGUSR1) == 1;
}

// Numbers from 0 on, until there are as many as wanted.
struct Numbers {
  int64_t batches = 0;
  int64_t fails_at = -1;      // once
  int64_t last_to_fit = -1;   // no memory is left behind it
  size_t fills = 1;           // tensors that it gives
  bool gives_at_end = false;  // a tensor that must not be there
  std::atomic<int64_t> made{0};
  std::atomic<int> calls{0}, destroyed{0}, blocking{0};
  std::thread::id thread;
};

nxd_status_t make_numbers(nxd_tensor_t** out, size_t num_tensors, int32_t* out_end,
                          void* user_data) {
  auto& self = *static_cast<Numbers*>(user_data);
  self.thread = std::this_thread::get_id();
  ++self.calls;
  self.blocking += blocks_signals();
  const int64_t number = self.made;
  if (number == self.fails_at) {
    self.fails_at = -1;
    return NXD_ERROR_USER;
  }
  *out_end = number == self.batches;
  const size_t fills = *out_end ? (self.gives_at_end ? num_tensors : 0) : self.fills;
  for (size_t i = 0; i < fills; ++i) out[i] = make_i64({number}, {1}).release();
  if (!*out_end) ++self.made;
  if (number == self.last_to_fit) {
    nxd_memory_stats_t stats = {};
    stats.struct_size = sizeof stats;
    NXD_TEST_OK(nxd_memory_get_stats(&stats));
    NXD_TEST_OK(nxd_memory_set_cap(stats.bytes_in_use));
  }
  return NXD_OK;
}

void destroy_numbers(void* user_data) { ++static_cast<Numbers*>(user_data)->destroyed; }

DeviceLoader over(Numbers& numbers, nxd_device_t device, size_t num_tensors = 1) {
  nxd_device_loader_t* out = nullptr;
  NXD_TEST_OK(nxd_device_loader_create_callback(make_numbers, &numbers, destroy_numbers,
                                                num_tensors, device, nullptr, &out));
  return DeviceLoader(out);
}

void test_batches_of_a_function(void**) {
  for (const nxd_device_t device : {NXD_DEVICE_CPU, NXD_DEVICE_XLA}) {
    Numbers numbers;
    numbers.batches = 5;
    numbers.fails_at = 3;
    DeviceLoader loader = over(numbers, device);
    for (int64_t i = 0; i < 3; ++i) {
      const Tensor batch = next(loader.get());
      assert_true(ids_of(batch.get()) == std::vector<int64_t>{i});
      nxd_device_t where = NXD_DEVICE_INVALID;
      NXD_TEST_OK(nxd_tensor_get_device(batch.get(), &where));
      assert_int_equal(where, device);
    }
    nxd_tensor_t* out = nullptr;
    int32_t end = -1;
    NXD_TEST_REFUSED(nxd_device_loader_next(loader.get(), &out, 1, &end), NXD_ERROR_USER,
                     "read_batch");
    assert_int_equal(end, 0);
    for (int64_t i = 3; i < 5; ++i) {
      assert_true(ids_of(next(loader.get()).get()) == std::vector<int64_t>{i});
    }
    assert_int_equal(position_of(loader.get()), 5);
    assert_null(next(loader.get()).get());
    assert_null(next(loader.get()).get());
    assert_int_equal(numbers.calls, 7);
    assert_true(numbers.thread != std::this_thread::get_id());
    assert_int_equal(numbers.blocking, 0);
    NXD_TEST_REFUSED(nxd_device_loader_set_position(loader.get(), 0), NXD_ERROR_UNSUPPORTED,
                     "come from a function");
    assert_int_equal(numbers.destroyed, 0);
    loader.reset();
    assert_int_equal(numbers.destroyed, 1);
  }
}

// A batch that was read is moved again, and none is read in its place.
void test_a_move_lacks_memory(void**) {
  Numbers numbers;
  numbers.batches = 5;
  numbers.last_to_fit = 2;
  nxd_device_loader_options_t options = NXD_DEVICE_LOADER_OPTIONS_INIT;
  options.batches_per_execution = 16;  // no step takes or frees memory meanwhile
  options.prefetch = 1;
  nxd_device_loader_t* made = nullptr;
  NXD_TEST_OK(nxd_device_loader_create_callback(make_numbers, &numbers, destroy_numbers, 1,
                                                NXD_DEVICE_XLA, &options, &made));
  const DeviceLoader loader(made);
  std::vector<Tensor> taken;
  for (int i = 0; i < 2; ++i) taken.push_back(next(made));
  for (int i = 0; i < 2; ++i) {
    nxd_tensor_t* out = nullptr;
    int32_t end = -1;
    NXD_TEST_REFUSED(nxd_device_loader_next(made, &out, 1, &end), NXD_ERROR_OUT_OF_MEMORY,
                     "the cap is");
    assert_int_equal(position_of(made), 2);
  }
  NXD_TEST_OK(nxd_memory_set_cap(0));
  for (int i = 2; i < 5; ++i) taken.push_back(next(made));
  for (size_t i = 0; i < 5; ++i) {
    assert_true(ids_of(taken[i].get()) == std::vector<int64_t>{static_cast<int64_t>(i)});
  }
  assert_int_equal(position_of(made), 5);
  assert_null(next(made).get());
}

// The loader reads no further ahead than asked, and its end waits for a function that runs.
void test_reads_ahead_and_ends(void**) {
  Numbers numbers;
  numbers.batches = 1000;
  {
    const DeviceLoader loader = over(numbers, NXD_DEVICE_CPU);
    static_cast<void>(next(loader.get()));
    assert_true(numbers.made <= 4);  // two that wait, one taken, one on the way
  }
  assert_int_equal(numbers.destroyed, 1);
  // One that was never asked.
  static_cast<void>(over(numbers, NXD_DEVICE_XLA));
  assert_int_equal(numbers.destroyed, 2);
}

void test_a_function_that_gives_what_is_none(void**) {
  struct Slip {
    size_t width, fills;
    bool gives_at_end;
    const char* part;
  };
  for (const Slip& slip : {Slip{2, 1, false, "expected 2 tensors, got 1"},
                           Slip{1, 0, false, "expected 1 tensors, got 0"},
                           Slip{1, 1, true, "expected 0 tensors, got 1"}}) {
    Numbers numbers;
    numbers.fills = slip.fills;
    numbers.gives_at_end = slip.gives_at_end;
    numbers.batches = slip.gives_at_end ? 0 : 5;
    const DeviceLoader loader = over(numbers, NXD_DEVICE_CPU, slip.width);
    nxd_tensor_t* out[2] = {};
    int32_t end = 0;
    NXD_TEST_REFUSED(nxd_device_loader_next(loader.get(), out, slip.width, &end),
                     NXD_ERROR_INVALID_ARGUMENT, slip.part);
    assert_null(out[0]);
  }
}

// A step that fails costs no batch.
void test_a_step_fails(void**) {
  Numbers numbers;
  numbers.batches = 3;
  const DeviceLoader loader = over(numbers, NXD_DEVICE_XLA);
  static_cast<void>(next(loader.get()));
  NXD_TEST_OK(
      nxd_add_step_closure([](void*) -> nxd_status_t { return NXD_ERROR_USER; }, nullptr, nullptr));
  nxd_tensor_t* out = nullptr;
  int32_t end = 0;
  NXD_TEST_REFUSED(nxd_device_loader_next(loader.get(), &out, 1, &end), NXD_ERROR_USER,
                   "step closure");
  assert_true(ids_of(next(loader.get()).get()) == std::vector<int64_t>{1});
}

void test_bad_calls(void**) {
  Numbers numbers;
  nxd_device_loader_t* out = nullptr;
  const auto create = [&](nxd_device_t device, const nxd_device_loader_options_t* options) {
    return nxd_device_loader_create_callback(make_numbers, &numbers, destroy_numbers, 1, device,
                                             options, &out);
  };
  NXD_TEST_REFUSED(create(NXD_DEVICE_META, nullptr), NXD_ERROR_UNSUPPORTED, "NXD_DEVICE_META");
  NXD_TEST_REFUSED(create(77, nullptr), NXD_ERROR_INVALID_ARGUMENT, "device");
  nxd_device_loader_options_t options = NXD_DEVICE_LOADER_OPTIONS_INIT;
  options.prefetch = -1;
  NXD_TEST_REFUSED(create(NXD_DEVICE_CPU, &options), NXD_ERROR_INVALID_ARGUMENT, "prefetch");
  options.prefetch = 0;
  options.batches_per_execution = -2;
  NXD_TEST_REFUSED(create(NXD_DEVICE_CPU, &options), NXD_ERROR_INVALID_ARGUMENT,
                   "batches_per_execution");
  NXD_TEST_REFUSED(nxd_device_loader_create_callback(nullptr, nullptr, nullptr, 1, NXD_DEVICE_CPU,
                                                     nullptr, &out),
                   NXD_ERROR_INVALID_ARGUMENT, "read: expected a function");
  NXD_TEST_REFUSED(nxd_device_loader_create_callback(make_numbers, &numbers, destroy_numbers, 0,
                                                     NXD_DEVICE_CPU, nullptr, &out),
                   NXD_ERROR_INVALID_ARGUMENT, "num_tensors: expected 1 to");
  NXD_TEST_REFUSED(nxd_device_loader_create(nullptr, NXD_DEVICE_CPU, nullptr, &out),
                   NXD_ERROR_INVALID_ARGUMENT, "loader");
  assert_int_equal(numbers.destroyed, 0);
  assert_null(out);
  nxd_device_loader_options_t filled = {};
  NXD_TEST_OK(nxd_device_loader_options_init(&filled, sizeof filled));
  assert_int_equal(filled.struct_size, sizeof filled);
  const DeviceLoader loader = over(numbers, NXD_DEVICE_CPU);
  nxd_tensor_t* tensors[2] = {};
  int32_t end = 0;
  NXD_TEST_REFUSED(nxd_device_loader_next(loader.get(), tensors, 2, &end),
                   NXD_ERROR_INVALID_ARGUMENT, "num_outputs: expected 1 of a batch, got 2");
  NXD_TEST_REFUSED(nxd_device_loader_next(loader.get(), tensors, 1, nullptr),
                   NXD_ERROR_INVALID_ARGUMENT, "out_end");
  NXD_TEST_REFUSED(nxd_device_loader_next(nullptr, tensors, 1, &end), NXD_ERROR_INVALID_ARGUMENT,
                   "loader");
  NXD_TEST_REFUSED(nxd_device_loader_get_position(loader.get(), nullptr),
                   NXD_ERROR_INVALID_ARGUMENT, "out_position");
  nxd_device_loader_destroy(nullptr);
}

// A data loader that is lent cannot be set, and nothing else is loaded before that is known.
void restore_beside(nxd_context_t* ctx, int, int, void*) {
  const Tokens tokens;
  const DataLoader lent = open(ctx, tokens.path);
  const Module model = create_model(ctx, LlamaOracle().config, Layout{1});
  nxd_training_state_t* made = nullptr;
  NXD_TEST_OK(nxd_training_state_create(ctx, &made));
  const State state(made);
  NXD_TEST_OK(nxd_training_state_add_module(made, "model", model.get()));
  NXD_TEST_OK(nxd_training_state_add_data_loader(made, "data", lent.get()));
  const std::string root = tokens.directory.path() + "/run";
  NXD_TEST_OK(nxd_training_state_save(made, root.c_str(), 1, 0));
  const Named saved = whole_parameters(model.get());
  NXD_TEST_OK(nxd_module_initialize(model.get(), 99));
  const Named now = whole_parameters(model.get());
  NXD_TEST_CHECK(now != saved);
  DeviceLoader loader = over(lent.get(), NXD_DEVICE_CPU);
  int64_t step = 0;
  NXD_TEST_REFUSED(nxd_training_state_load_newest(made, root.c_str(), 1, &step),
                   NXD_ERROR_INVALID_STATE, "a device loader reads it");
  NXD_TEST_CHECK(whole_parameters(model.get()) == now);
  loader.reset();
  NXD_TEST_OK(nxd_training_state_load_newest(made, root.c_str(), 1, &step));
  NXD_TEST_CHECK(step == 1 && whole_parameters(model.get()) == saved);
}

void test_restore_beside(void**) { nxd_test_run_ranks(1, 1, restore_beside, nullptr); }

// Closures on a thread of the library's.
struct Work {
  std::mutex mutex;
  std::vector<int> order;
  std::thread::id thread;
  double seen = 0;
  nxd_tensor_t* reads = nullptr;
  bool blocks = true;
  std::atomic<int> destroyed{0};
  std::condition_variable changed;
  bool may_go_on = true;
};

struct Item {
  Work* work;
  int number;
  nxd_status_t status = NXD_OK;
};

nxd_status_t run_item(void* user_data) {
  auto& item = *static_cast<Item*>(user_data);
  Work& work = *item.work;
  if (work.reads) NXD_TEST_OK(nxd_tensor_get_item(work.reads, &work.seen));
  std::unique_lock<std::mutex> lock(work.mutex);
  work.changed.wait(lock, [&] { return work.may_go_on; });
  work.order.push_back(item.number);
  work.thread = std::this_thread::get_id();
  work.blocks = blocks_signals();
  return item.status;
}

void destroy_item(void* user_data) { ++static_cast<Item*>(user_data)->work->destroyed; }

void add(Item& item) { NXD_TEST_OK(nxd_add_step_closure_async(run_item, &item, destroy_item)); }

void let_go_on(Work& work) {
  {
    const std::lock_guard<std::mutex> lock(work.mutex);
    work.may_go_on = true;
  }
  work.changed.notify_all();
}

void test_closures_on_a_thread(void**) {
  NXD_TEST_OK(nxd_wait_step_closures());
  nxd_tensor_t* there = nullptr;
  NXD_TEST_OK(nxd_tensor_to_device(make_i64({20, 22}, {2}).get(), NXD_DEVICE_XLA, &there));
  const Tensor x(there);
  nxd_op_t* call = nullptr;
  nxd_tensor_t* made = nullptr;
  NXD_TEST_OK(nxd_op_create("sum", nullptr, &call));
  NXD_TEST_OK(nxd_op_set_tensor(call, "self", x.get()));
  NXD_TEST_OK(nxd_op_run(call));
  NXD_TEST_OK(nxd_op_share_tensor(call, 0, &made));
  nxd_op_destroy(call);
  const Tensor sum(made);
  Work work;
  work.reads = sum.get();
  work.may_go_on = false;
  Item first{&work, 1}, second{&work, 2};
  NXD_TEST_OK(nxd_device_reset_metrics());
  add(first);
  add(second);
  // The step ends while the first closure stands still.
  NXD_TEST_OK(nxd_mark_step(1));
  assert_true(work.order.empty());
  let_go_on(work);
  NXD_TEST_OK(nxd_wait_step_closures());
  assert_true((work.order == std::vector<int>{1, 2}));
  assert_true(work.thread != std::this_thread::get_id() && work.seen == 42);
  assert_false(work.blocks);
  assert_int_equal(metrics().executions, 1);
  assert_int_equal(metrics().implicit_syncs, 0);
  assert_int_equal(work.destroyed, 2);
}

void test_closures_on_a_thread_fail(void**) {
  Work work;
  Item bad{&work, 1, NXD_ERROR_USER}, good{&work, 2};
  add(bad);
  add(good);
  NXD_TEST_OK(nxd_mark_step(1));
  NXD_TEST_REFUSED(nxd_wait_step_closures(), NXD_ERROR_USER, "step closure");
  assert_true((work.order == std::vector<int>{1, 2}));
  NXD_TEST_OK(nxd_wait_step_closures());
  NXD_TEST_OK(nxd_mark_step(1));
  NXD_TEST_REFUSED(nxd_add_step_closure_async(nullptr, &bad, destroy_item),
                   NXD_ERROR_INVALID_ARGUMENT, "closure: expected a function");
  assert_int_equal(work.destroyed, 2);
  // A thread that ends before its step does.
  std::thread([&] { add(good); }).join();
  assert_int_equal(work.destroyed, 3);
  assert_int_equal(work.order.size(), 2);
}

}  // namespace

int main() {
  if (const int skipped = nxd_test_set_pjrt_plugin()) return skipped;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_trains_as_fed_by_hand),
      cmocka_unit_test(test_goes_on),
      cmocka_unit_test(test_reading_fails),
      cmocka_unit_test(test_batches_of_a_function),
      cmocka_unit_test(test_a_move_lacks_memory),
      cmocka_unit_test(test_reads_ahead_and_ends),
      cmocka_unit_test(test_a_function_that_gives_what_is_none),
      cmocka_unit_test(test_a_step_fails),
      cmocka_unit_test(test_bad_calls),
      cmocka_unit_test(test_restore_beside),
      cmocka_unit_test(test_closures_on_a_thread),
      cmocka_unit_test(test_closures_on_a_thread_fail),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
