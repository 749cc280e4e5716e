#include "core/comm/store/tcp_store.h"

#include <chrono>

#include "core/base/printable.h"
#include "core/base/sleep.h"
#include "core/comm/net/interrupt.h"
#include "core/comm/store/store_timeout.h"

namespace nxd {
namespace {

using namespace tcp_store;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_bytes(std::string& out, const std::string& bytes) {
  put<uint64_t>(out, bytes.size());
  out += bytes;
}

std::string validation() {
  std::string out;
  put<uint8_t>(out, kValidate);
  put<uint32_t>(out, kMagic);
  return out;
}

void check_key(const std::string& key) {
  check_argument(key.size() <= kKeyLimit, "key: expected at most ", kKeyLimit,
                 " bytes over TCP, got ", key.size());
}

// For how long a server that closes connections is tried, and how often.
constexpr int64_t kReconnectMs = 5000;
constexpr auto kPause = std::chrono::milliseconds(50);

}  // namespace

TcpStore::TcpStore(std::string host, int port, int64_t timeout_ms,
                   std::shared_ptr<TcpStoreServer> server, StoreAccess access)
    : host_(std::move(host)),
      port_(port),
      timeout_ms_(timeout_ms),
      server_(std::move(server)),
      access_(std::move(access)) {
  fd_ = connect(Deadline::after_ms(timeout_ms_));
}

Fd TcpStore::open_connection(const Deadline& deadline) const {
  return port_ == 0 ? connect_local(host_, deadline) : connect_tcp(host_, port_, deadline);
}

std::string TcpStore::address() const { return port_ == 0 ? "@" + host_ : text(host_, ":", port_); }

// A server that connections flood lets some go before they have said anything, so it is tried
// again for a while.
Fd TcpStore::connect(const Deadline& deadline) {
  const Deadline give_up = Deadline::after_ms(kReconnectMs);
  for (;;) {
    if (Fd fd = try_to_connect(deadline)) return fd;
    if (give_up.expired() || deadline.expired()) {
      fail(NXD_ERROR_IO, "the server at ", address(),
           " closes its connections: it is no store of libnxd's or torch's, or serves too many");
    }
    InterruptScope::check();
    sleep_for(kPause);
  }
}

// Each kind of server is asked in a way that the others answer by closing the connection. The one
// of torch 1.x reads the start of the other two as the size of a key that it cannot allocate.
Fd TcpStore::try_to_connect(const Deadline& deadline) {
  bool is_of_torch = access_.is_of_torch && is_torchs(deadline);
  if (!is_of_torch) {
    Fd fd = open_connection(deadline);
    dialect_ = kOurs;
    if (is_ours(fd.get(), deadline)) return fd;
    is_of_torch = !access_.is_of_torch && is_torchs(deadline);
  }
  if (!is_of_torch) return Fd();
  if (access_.key) {
    fail(
        NXD_ERROR_IO, "the store at ", address(),
        " is torch's, which knows no secret, and this process has one; NXD_OPEN_STORE=1 allows it");
  }
  Fd fd = open_connection(deadline);
  const std::string words = dialect_.validates ? validation() : "";
  return send_all(fd.get(), words.data(), words.size(), deadline) ? std::move(fd) : Fd();
}

bool TcpStore::is_torchs(const Deadline& deadline) {
  if (is_torch_2(deadline)) {
    dialect_ = kTorch2;
  } else if (is_torch_1(deadline)) {
    dialect_ = kTorch1;
  } else {
    return false;
  }
  return true;
}

bool TcpStore::is_ours(int fd, const Deadline& deadline) const {
  Hello hello;
  hello.has_secret = access_.key ? 1 : 0;
  hello.nonce = make_nonce();
  std::string words = validation();
  put<uint8_t>(words, kHello);
  put(words, hello);
  uint8_t answer = 0;
  if (!ask(fd, words, &answer, sizeof answer, deadline)) return false;
  if (answer == kWantsSecret && !access_.key) {
    fail(NXD_ERROR_IO, "the store at ", address(),
         " wants the secret of its job: set NXD_SECRET or NXD_SECRET_FILE, and not NXD_OPEN_STORE");
  }
  if (answer == kOpenStore && access_.key) {
    fail(NXD_ERROR_IO, "the store at ", address(),
         " has no secret, and this process has one; NXD_OPEN_STORE=1 allows it");
  }
  if (answer == kChallenge && access_.key) return prove_to(fd, hello, deadline);
  if (answer != kOpenStore) fail_strange();
  return true;
}

bool TcpStore::prove_to(int fd, const Hello& hello, const Deadline& deadline) const {
  Challenge challenge;
  if (!ask(fd, "", &challenge, sizeof challenge, deadline)) return false;
  if (!is_same(challenge.proof, prove_server(*access_.key, hello, challenge.nonce))) {
    fail(NXD_ERROR_IO, "the store at ", address(),
         " has another secret: NXD_SECRET must be the same in all processes of the job");
  }
  std::string words;
  put<uint8_t>(words, kProve);
  put(words, prove_client(*access_.key, hello, challenge.nonce));
  uint8_t answer = 0;
  return ask(fd, words, &answer, sizeof answer, deadline) && answer == kWelcome;
}

// It answers each of the four requests with the number of its keys.
bool TcpStore::is_torch_2(const Deadline& deadline) const {
  std::string words = validation();
  for (int i = 0; i < 4; ++i) put<uint8_t>(words, kGetNumKeys);
  int64_t counts[4];
  const Fd fd = open_connection(deadline);
  if (!ask(fd.get(), words, counts, sizeof counts, deadline)) return false;
  constexpr int64_t kMostKeys = int64_t{1} << 40;
  for (const int64_t count : counts) {
    if (count < 0 || count > kMostKeys) fail_strange();
  }
  return true;
}

bool TcpStore::is_torch_1(const Deadline& deadline) const {
  std::string words;
  put<uint8_t>(words, kTorch1.check);
  put<uint64_t>(words, 1);
  put_bytes(words, "nxd");
  uint8_t answer = kNotReady;
  const Fd fd = open_connection(deadline);
  if (!ask(fd.get(), words, &answer, sizeof answer, deadline)) return false;
  if (answer != kReady && answer != kNotReady) fail_strange();
  return true;
}

// False when the server closes the connection instead.
bool TcpStore::ask(int fd, const std::string& request, void* answer, size_t size,
                   const Deadline& deadline) const {
  try {
    return send_all(fd, request.data(), request.size(), deadline) &&
           receive_all(fd, answer, size, deadline);
  } catch (const Error& e) {
    fail_silent(e);
  }
}

void TcpStore::fail_strange() const {
  fail(NXD_ERROR_IO, "the server at ", address(),
       " is no store of libnxd's or torch's: its answers are of another protocol");
}

void TcpStore::check_connected() const {
  if (!fd_) fail(NXD_ERROR_IO, "the connection to the store at ", address(), " was lost");
}

void TcpStore::fail_silent(const Error& e) const {
  fail(e.status(), "the store at ", address(), ": ", e.what(), " within ", bound_ms(), " ms");
}

int64_t TcpStore::bound_ms() const { return StoreTimeout::bound_ms(timeout_ms_); }

void TcpStore::read(void* answer, size_t size, const Deadline& deadline) {
  try {
    if (receive_all(fd_.get(), answer, size, deadline)) return;
  } catch (const Error& e) {
    give_up(e);
  }
  fd_.reset();
  check_connected();
}

void TcpStore::exchange(const std::string& request, void* answer, size_t size,
                        const Deadline& deadline) {
  check_connected();
  try {
    if (!send_all(fd_.get(), request.data(), request.size(), deadline)) fd_.reset();
  } catch (const Error& e) {
    give_up(e);
  }
  check_connected();
  if (size > 0) read(answer, size, deadline);
}

// Before a request is made: the dialect may be another one afterwards.
void TcpStore::reconnect(const Deadline& deadline) {
  if (!reconnects_) return;
  fd_ = connect(deadline);
  reconnects_ = false;
}

void TcpStore::reconnect_later() {
  fd_.reset();
  reconnects_ = true;
}

// The server may have carried the request out, or do so later. So none is repeated.
void TcpStore::give_up(const Error& e) {
  reconnect_later();
  fail_silent(e);
}

uint8_t TcpStore::ask_for_outcome(const std::string& request, const std::string& key,
                                  const Deadline& deadline) {
  uint8_t outcome = kDone;
  exchange(request, &outcome, sizeof outcome, deadline);
  if (outcome != kNoRoom) return outcome;
  uint64_t sizes[2];
  read(sizes, sizeof sizes, deadline);
  fail(NXD_ERROR_OUT_OF_MEMORY, "the store at ", address(), " has no room for the value of key \"",
       printable(key), "\": all values take ", sizes[0], " bytes, and may take ", sizes[1]);
}

void TcpStore::set(const std::string& key, const std::string& value) {
  check_key(key);
  check_argument(value.size() <= kValueLimit, "value of store key \"", printable(key),
                 "\": expected at most ", kValueLimit, " bytes over TCP, got ", value.size());
  std::lock_guard<std::mutex> lock(mutex_);
  const Deadline deadline = Deadline::after_ms(bound_ms());
  reconnect(deadline);
  std::string request;
  put<uint8_t>(request, dialect_.set);
  put_bytes(request, key);
  put_bytes(request, value);
  if (!dialect_.has_outcomes) return exchange(request, nullptr, 0, deadline);
  if (ask_for_outcome(request, key, deadline) == kDone) return;
  fd_.reset();
  fail_strange();
}

// Asking a server of torch for an absent key makes it drop the connection, so check first. Our keys
// are never deleted.
std::optional<std::string> TcpStore::get(const std::string& key) {
  auto values = get_all({key});
  if (!values) return std::nullopt;
  return std::move(values->front());
}

// However many the keys, two journeys to the server and back.
std::optional<std::vector<std::string>> TcpStore::get_all(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) check_key(key);
  std::lock_guard<std::mutex> lock(mutex_);
  const Deadline deadline = Deadline::after_ms(bound_ms());
  reconnect(deadline);
  std::string request;
  put<uint8_t>(request, dialect_.check);
  put<uint64_t>(request, keys.size());
  for (const std::string& key : keys) put_bytes(request, key);
  uint8_t ready = kNotReady;
  exchange(request, &ready, sizeof ready, deadline);
  if (ready != kReady) return std::nullopt;
  request.clear();
  for (const std::string& key : keys) {
    put<uint8_t>(request, dialect_.get);
    put_bytes(request, key);
  }
  std::vector<std::string> values;
  values.reserve(keys.size());
  exchange(request, nullptr, 0, deadline);
  for (size_t i = 0; i < keys.size(); ++i) values.push_back(read_value(deadline));
  return values;
}

std::optional<std::string> TcpStore::wait_bounded(const std::string& key, int64_t timeout_ms) {
  const StoreTimeout bounded(StoreTimeout::bound_of_wait_ms(timeout_ms));
  return wait(key, Deadline::after_ms(std::min(timeout_ms, timeout_ms_)));
}

std::string TcpStore::read_value(const Deadline& deadline) {
  uint64_t size = 0;
  read(&size, sizeof size, deadline);
  // torch's servers may hold larger values than ours.
  constexpr uint64_t kAnswerLimit = uint64_t{1} << 30;
  if (size > kAnswerLimit) {
    fd_.reset();
    fail(NXD_ERROR_IO, "the store at ", address(), " answers with a value of ", size, " bytes");
  }
  // No memory for more than has come, whatever the server says.
  constexpr uint64_t kPart = uint64_t{1} << 20;
  std::string value;
  while (value.size() < size) {
    const size_t had = value.size(), part = std::min(kPart, size - had);
    try {
      value.resize(had + part);
    } catch (const std::bad_alloc&) {
      reconnect_later();  // the rest of the answer is still to come
      throw;
    }
    read(value.data() + had, part, deadline);
  }
  return value;
}

// A server of torch's closes the connection when the value is no integer.
int64_t TcpStore::add(const std::string& key, int64_t amount) {
  check_key(key);
  std::lock_guard<std::mutex> lock(mutex_);
  const Deadline deadline = Deadline::after_ms(bound_ms());
  reconnect(deadline);
  std::string request;
  put<uint8_t>(request, dialect_.add);
  put_bytes(request, key);
  put<int64_t>(request, amount);
  uint8_t outcome = kDone;
  if (dialect_.has_outcomes) {
    outcome = ask_for_outcome(request, key, deadline);
    request.clear();
  }
  if (outcome != kDone) {
    parse_counter(key, read_value(deadline));
    fail(NXD_ERROR_IO, "the store at ", address(), " cannot add to an integer");
  }
  int64_t sum = 0;
  exchange(request, &sum, sizeof sum, deadline);
  return sum;
}

std::shared_ptr<Store> TcpStore::open_channel(int64_t timeout_ms) {
  return std::make_shared<TcpStore>(host_, port_, timeout_ms, server_, access_);
}

void TcpStore::stop_serving() {
  std::lock_guard<std::mutex> lock(mutex_);
  fd_.reset();
  reconnects_ = false;
  if (server_) server_->stop();
}

std::shared_ptr<Store> open_tcp_store(const char* host, int port, bool serve, int64_t timeout_ms) {
  constexpr int64_t kDefaultTimeoutMs = 300000;
  check_argument(host && *host, "host: expected a name or address, got ",
                 host ? "an empty string" : "NULL");
  check_argument(port >= (serve ? 0 : 1) && port <= 65535, "port: expected ", serve ? 0 : 1,
                 " to 65535, got ", port);
  check_argument(timeout_ms >= 0, "timeout_ms: expected 0 or more, got ", timeout_ms);
  const StoreAccess access{store_key_of_environment()};
  std::shared_ptr<TcpStoreServer> server;
  if (serve) {
    server = std::make_shared<TcpStoreServer>(host, port, access.key);
    port = server->port();
  }
  return std::make_shared<TcpStore>(host, port, timeout_ms > 0 ? timeout_ms : kDefaultTimeoutMs,
                                    server, access);
}

}  // namespace nxd
