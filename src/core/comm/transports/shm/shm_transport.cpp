#include "core/comm/transports/shm/shm_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/round_up.h"
#include "core/comm/reduction.h"
#include "core/comm/transports/shm/letter.h"
#include "core/kernels/copy.h"
#include "core/kernels/reduce.h"

namespace nxd {
namespace {

// Longer letters take more lines than their meeting saves, the sooner the more ranks read them.
constexpr size_t kLettersOfAll = 4096, kSurelyLetters = 1024, kLongestLetter = 2048;
// Up to here a copy costs less than the second meeting that arenas take.
constexpr size_t kAlwaysCopied = 1024;
// Every rank reads the small data of all others, so that many ranks do better with parts.
constexpr size_t kSmallOfAll = size_t{128} << 10;
// At the lines of a letter before ranks meet for it.
constexpr int kLooks = 400;
// Granularity of parts: whole cache lines of every dtype.
constexpr size_t kPartElements = 64;

size_t round_down(size_t value, size_t unit) { return value / unit * unit; }

static_assert(Letter::room_for(kLongestLetter) <= ShmSegment::kSmall);

void copy(void* to, const void* from, size_t bytes) {
  if (to != from) kernels::copy_shared(to, from, bytes);
}

std::atomic<uint64_t> all_chunks{0};

}  // namespace

uint64_t ShmTransport::chunks_through_slots() noexcept { return all_chunks; }

void ShmTransport::slots_taken(size_t chunks) noexcept {
  slots_used_ += chunks;
  all_chunks.fetch_add(chunks, std::memory_order_relaxed);
}

ShmTransport::ShmTransport(std::shared_ptr<GroupMonitor> monitor, std::string key,
                           std::vector<int> ranks)
    : link_(std::move(monitor), std::move(key), std::move(ranks)),
      monitor_(link_.monitor()),
      small_limit_(std::clamp<size_t>(kSmallOfAll / static_cast<size_t>(link_.size()),
                                      kAlwaysCopied, ShmSegment::kSmall)),
      letter_limit_(std::clamp<size_t>(kLettersOfAll / static_cast<size_t>(link_.size()),
                                       kSurelyLetters, kLongestLetter)),
      inputs_(static_cast<size_t>(link_.size())),
      letters_(static_cast<size_t>(link_.size()) * letter_limit_),
      messages_(link_) {}

void ShmTransport::run(const Call& call) {
  if (call.is_message()) return messages_.run(call);
  const Scope scope(*this, call);
  switch (call.operation) {
    case Operation::kAllReduce: return all_reduce(call);
    case Operation::kAllGather: return all_gather(call);
    case Operation::kReduceScatter: return reduce_scatter(call);
    case Operation::kBroadcast: return broadcast(call);
    case Operation::kAllToAll: return all_to_all(call);
    default: agree(call, 0, 0);
  }
}

// The posting is written before the rank's progress is, and read after it.
void ShmTransport::post(const Call& call, size_t send_bytes, size_t receive_bytes, bool may_copy) {
  ShmPosting& own = segment_->cell(rank()).postings[calls_ % 2];
  own.header = call.header(monitor_.sequence());
  own.send = own.receive = {};
  const bool silent = call.operation == Operation::kBroadcast && call.peer != rank();
  if (send_bytes == 0 || silent) return;
  const void* data = call.data();
  if (send_bytes > kAlwaysCopied) {
    own.send = link_.place_of(data, send_bytes);
    own.receive = link_.place_of(call.recv, receive_bytes);
  }
  const bool in_arena =
      own.send.inode != 0 && (call.operation != Operation::kAllReduce || own.receive.inode != 0);
  if (in_arena || send_bytes > small_limit_ || !may_copy) return;
  writer_.copy(small(rank()), data, send_bytes);
  own.header.copied = 1;
}

ShmTransport::Way ShmTransport::agree(const Call& call, size_t send_bytes, size_t receive_bytes,
                                      bool may_copy) {
  ++calls_;
  const std::string why = call.rejection(size());
  if (why.empty()) {
    post(call, send_bytes, receive_bytes, may_copy);
  } else {
    post_rejection(call, {monitor_.world_rank(), false, why});
  }
  meet_in_agreement();
  return way_of(call);
}

void ShmTransport::meet() {
  link_.post(++progress_);
  link_.wait_for_all(progress_);
  link_.check_none_left(begun_);
  if (all_attached_) return;
  link_.all_attached();
  all_attached_ = true;
}

namespace {

// The lowest bits of a note say where the data are; the others are of the header's digest.
constexpr uint64_t kCopied = 1, kInArena = 2, kPlaces = kCopied | kInArena;

}  // namespace

void ShmTransport::leave_note() {
  const ShmPosting& own = segment_->cell(rank()).postings[calls_ % 2];
  uint64_t places = own.header.copied ? kCopied : 0;
  if (own.send.inode != 0 &&
      (own.header.operation != Operation::kAllReduce || own.receive.inode != 0)) {
    places |= kInArena;
  }
  note_ = (own.header.digest() & ~kPlaces) | places;
  segment_->cell(rank()).progress.notes[calls_ % 2].store(note_, std::memory_order_relaxed);
}

// A look at the notes tells whether all agree, and they lie beside the counters. Only who finds a
// difference has to fetch the postings.
std::optional<Rejection> ShmTransport::meet_and_compare() {
  leave_note();
  meet();
  bool agreed = !segment_->cell(rank()).postings[calls_ % 2].header.is_rejected();
  for (int r = 0; r < size(); ++r) agreed = agreed && ((note_of(r) ^ note_) & ~kPlaces) == 0;
  if (agreed) return std::nullopt;
  std::vector<CallOffer> offers;
  for (int r = 0; r < size(); ++r) offers.push_back({&posting(r).header, posting(r).reason});
  auto found = find_rejection(link_.ranks(), offers);
  check_internal(found.has_value(), "headers agree, their digests do not");
  return found;
}

void ShmTransport::meet_in_agreement() {
  if (const auto rejection = meet_and_compare()) throw rejection->error(monitor_);
}

ShmTransport::Way ShmTransport::way_of(const Call& call) const {
  bool small = true, arenas = true;
  for (int r = 0; r < size(); ++r) {
    if (call.operation == Operation::kBroadcast && r != call.peer) continue;
    const uint64_t places = note_of(r) & kPlaces;
    small = small && (places & kCopied);
    arenas = arenas && places == kInArena;
  }
  return small ? Way::kSmall : arenas ? Way::kArenas : Way::kMixed;
}

char* ShmTransport::sent_by(int rank, const Call& call) {
  const ArenaPlace& place = posting(rank).send;
  if (place.inode == 0) return nullptr;
  if (rank == this->rank()) {
    return const_cast<char*>(static_cast<const char*>(call.data()));
  }
  return link_.address(rank, place);
}

char* ShmTransport::received_by(int rank, const Call& call) {
  return rank == this->rank() ? static_cast<char*>(call.recv)
                              : link_.address(rank, posting(rank).receive);
}

char* ShmTransport::letter_of(int rank) {
  return letters_.data() + static_cast<size_t>(rank) * letter_limit_;
}

void ShmTransport::post_rejection(const Call& call, const Rejection& rejection) {
  post(call, 0, 0, false);
  ShmPosting& own = segment_->cell(rank()).postings[calls_ % 2];
  own.header.reject(rejection, own.reason, sizeof own.reason);
}

// A rank's counter goes, from where it stands: produced chunk 0, 1, consumed 0, produced 2,
// consumed 1, and so on. So a chunk is copied in while the peers work on the one before.
template <class Produce, class Consume>
void ShmTransport::stream(size_t chunks, const std::vector<char>& producers, const Produce& produce,
                          const Consume& consume) {
  const uint32_t base = progress_;
  const auto produced = [&](size_t chunk) {
    return base + (chunk == 0 ? 1 : static_cast<uint32_t>(2 * chunk));
  };
  const auto consumed = [&](size_t chunk) { return base + static_cast<uint32_t>(2 * chunk + 3); };
  const auto put = [&](size_t chunk) {
    if (producers[static_cast<size_t>(rank())]) {
      if (chunk >= ShmSegment::kSlots) link_.wait_for_all(consumed(chunk - ShmSegment::kSlots));
      produce(chunk, slot(rank(), chunk));
    }
    link_.post(produced(chunk));
  };
  put(0);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    if (chunk + 1 < chunks) put(chunk + 1);
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      if (producers[static_cast<size_t>(peer)]) link_.wait(peer, produced(chunk));
    }
    consume(chunk);
    link_.post(consumed(chunk));
  }
  progress_ = consumed(chunks - 1);
  slots_taken(chunks);
}

void ShmTransport::all_reduce(const Call& call) {
  const size_t bytes = call.bytes();
  if (bytes > 0 && bytes <= letter_limit_ && call.rejection(size()).empty()) {
    return reduce_letters(call, bytes);
  }
  const Way way = agree(call, bytes, bytes);
  if (bytes == 0) return;
  if (way == Way::kArenas) return reduce_arenas(call);
  if (way == Way::kMixed) return size() == 2 ? reduce_together(call) : reduce_by_parts(call);
  for (int r = 0; r < size(); ++r) inputs_[static_cast<size_t>(r)] = small(r);
  reduce_in_order(inputs_, call.recv, call.count, call.dtype, call.reduce);
}

// The digest marks the letters, so one that can be read is of a call that agrees with this one.
// When some do not come at once, ranks meet as usual, and whoever made another call is told so.
void ShmTransport::reduce_letters(const Call& call, size_t bytes) {
  ++calls_;
  post(call, 0, 0, false);
  leave_note();
  // A part of a larger group makes several calls of one number.
  const uint64_t mark = (note_ + calls_ * 0x9e3779b97f4a7c15ULL) | 1;
  Letter::write(small(rank()), call.send, bytes, mark);
  const auto read = [&](int looks) {
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      if (!Letter::read(small(peer), letter_of(peer), bytes, mark, looks)) return false;
    }
    return true;
  };
  const bool at_once = all_attached_ && read(link_.may_spin() ? kLooks : 1);
  if (at_once) {
    link_.post(++progress_);
    link_.check_none_left(begun_);  // a letter outlasts a writer that gave up
  } else {
    meet_in_agreement();
    check_internal(read(1), "ranks agree, their letters do not");
  }
  for (int r = 0; r < size(); ++r) {
    inputs_[static_cast<size_t>(r)] = r == rank() ? call.send : letter_of(r);
  }
  reduce_in_order(inputs_, call.recv, call.count, call.dtype, call.reduce);
}

// Each rank reduces one part of everybody's buffers, and stores it to everybody's.
void ShmTransport::reduce_arenas(const Call& call) {
  const size_t item = dtype_size(call.dtype);
  const auto n = static_cast<size_t>(size());
  const size_t part = round_up((call.count + n - 1) / n, kPartElements);
  const size_t begin = std::min(static_cast<size_t>(rank()) * part, call.count);
  const size_t count = std::min(part, call.count - begin);
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (int r = 0; r < size(); ++r) {
    inputs.push_back(sent_by(r, call) + begin * item);
    outputs.push_back(received_by(r, call) + begin * item);
  }
  if (count > 0) reduce_to_all(inputs, outputs, count, call.dtype, call.reduce);
  meet();
}

// Every rank reduces everything: with two, fewer meetings are worth more than less work.
void ShmTransport::reduce_together(const Call& call) {
  const size_t item = dtype_size(call.dtype);
  const size_t per_slot = ShmSegment::kSlot / item;
  const size_t chunks = (call.count + per_slot - 1) / per_slot;
  const char* in = static_cast<const char*>(call.send);
  char* out = static_cast<char*>(call.recv);
  const auto elements = [&](size_t chunk) {
    return std::min(per_slot, call.count - chunk * per_slot);
  };
  std::vector<const void*> parts(static_cast<size_t>(size()));
  stream(
      chunks, std::vector<char>(parts.size(), 1),
      [&](size_t chunk, char* to) {
        writer_.copy(to, in + chunk * ShmSegment::kSlot, elements(chunk) * item);
      },
      [&](size_t chunk) {
        for (int r = 0; r < size(); ++r) {
          parts[static_cast<size_t>(r)] =
              r == rank() ? in + chunk * ShmSegment::kSlot : slot(r, chunk);
        }
        reduce_in_order(parts, out + chunk * ShmSegment::kSlot, elements(chunk), call.dtype,
                        call.reduce);
      });
}

// A chunk fills everybody's slot. Each rank reduces one part of it, leaves the result in that part
// of its own slot, which nobody else reads before, and then collects the parts of the others. The
// three stages of a chunk overlap with those of its neighbours.
void ShmTransport::reduce_by_parts(const Call& call) {
  const size_t item = dtype_size(call.dtype);
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  const size_t per_slot = ShmSegment::kSlot / item;
  const size_t chunks = (call.count + per_slot - 1) / per_slot;
  const uint32_t base = progress_;
  const auto at = [&](size_t step, uint32_t stage) {
    return base + static_cast<uint32_t>(3 * step) + stage;
  };
  // Bytes of a rank's part, from where the chunk begins.
  struct Part {
    size_t begin, size;
  };
  const auto part_of = [&](size_t chunk, size_t r) -> Part {
    const size_t elements = std::min(per_slot, call.count - chunk * per_slot);
    const size_t part = round_up((elements + n - 1) / n, kPartElements);
    const size_t begin = std::min(r * part, elements);
    return {begin * item, std::min(part, elements - begin) * item};
  };
  const char* in = static_cast<const char*>(call.send);
  char* out = static_cast<char*>(call.recv);
  std::vector<const void*> inputs(n);
  for (size_t step = 0; step < chunks + 2; ++step) {
    if (step < chunks) {
      const size_t from = step * ShmSegment::kSlot;
      if (step >= ShmSegment::kSlots) link_.wait_for_all(at(step - ShmSegment::kSlots + 2, 3));
      char* own = slot(rank(), step);
      const Part mine = part_of(step, me);
      const size_t size = std::min(ShmSegment::kSlot, call.count * item - from);
      writer_.copy(own, in + from, mine.begin);
      const size_t after = mine.begin + mine.size;
      writer_.copy(own + after, in + from + after, size - after);
    }
    link_.post(at(step, 1));
    if (step >= 1 && step <= chunks) {
      const size_t chunk = step - 1;
      const Part mine = part_of(chunk, me);
      link_.wait_for_all(at(chunk, 1));
      for (size_t r = 0; r < n; ++r) {
        inputs[r] = (r == me ? in + chunk * ShmSegment::kSlot : slot(static_cast<int>(r), chunk)) +
                    mine.begin;
      }
      if (mine.size > 0) {
        char* result = out + chunk * ShmSegment::kSlot + mine.begin;
        reduce_in_order(inputs, result, mine.size / item, call.dtype, call.reduce);
        writer_.copy(slot(rank(), chunk) + mine.begin, result, mine.size);
      }
    }
    link_.post(at(step, 2));
    if (step >= 2) {
      const size_t chunk = step - 2;
      for (size_t i = 1; i < n; ++i) {
        const size_t r = (me + i) % n;
        const Part part = part_of(chunk, r);
        link_.wait(static_cast<int>(r), at(chunk + 1, 2));
        kernels::copy_shared(out + chunk * ShmSegment::kSlot + part.begin,
                             slot(static_cast<int>(r), chunk) + part.begin, part.size);
      }
    }
    link_.post(at(step, 3));
  }
  progress_ = at(chunks + 1, 3);
  slots_taken(chunks);
}

// The part that a rank takes of the blocks that are for it: at this offset of each, so many bytes
// from there.
struct ShmTransport::Piece {
  size_t offset;
  std::vector<const char*> data;  // by sender; null where there is none
  std::vector<size_t> sizes;
};

template <class BlockOf, class Take>
void ShmTransport::exchange(const Call& call, bool one_for_each, const BlockOf& block_of,
                            const Take& take) {
  const auto n = static_cast<size_t>(size());
  const auto me = static_cast<size_t>(rank());
  const char* own = static_cast<const char*>(call.data());
  // Ranks whose data the others can read where they are, and ranks that must copy.
  std::vector<const char*> arenas(n, nullptr);
  std::vector<char> producers(n, 0);
  bool any_arena = false, any_producer = false;
  size_t longest = 0;
  for (size_t from = 0; from < n; ++from) {
    size_t most = 0;
    for (size_t to = 0; to < n; ++to) most = std::max(most, block_of(from, to).size);
    if (most == 0) continue;
    longest = std::max(longest, most);
    arenas[from] = sent_by(static_cast<int>(from), call);
    producers[from] = arenas[from] == nullptr;
    (arenas[from] ? any_arena : any_producer) = true;
  }
  const size_t room =
      one_for_each ? round_down(ShmSegment::kSlot / n, kPartElements) : ShmSegment::kSlot;
  const size_t step = any_producer ? room : longest;
  const auto size_of = [&](const Block& block, size_t chunk) {
    return std::min(step, block.size - std::min(block.size, chunk * step));
  };
  const auto produce = [&](size_t chunk, char* to) {
    for (size_t r = 0; r < (one_for_each ? n : 1); ++r) {
      if (one_for_each && r == me) continue;
      const Block block = block_of(me, r);
      const size_t size = size_of(block, chunk);
      if (size > 0) writer_.copy(to + r * room, own + block.begin + chunk * step, size);
    }
  };
  Piece piece{0, std::vector<const char*>(n), std::vector<size_t>(n)};
  const auto consume = [&](size_t chunk) {
    piece.offset = chunk * step;
    for (size_t r = 0; r < n; ++r) {
      const Block block = block_of(r, me);
      piece.sizes[r] = size_of(block, chunk);
      if (piece.sizes[r] == 0) {
        piece.data[r] = nullptr;
      } else if (r == me) {
        piece.data[r] = own + block.begin + piece.offset;
      } else if (arenas[r]) {
        piece.data[r] = arenas[r] + block.begin + piece.offset;
      } else {
        piece.data[r] = slot(static_cast<int>(r), chunk) + (one_for_each ? me * room : 0);
      }
    }
    take(piece);
  };
  if (any_producer) {
    stream((longest + step - 1) / step, producers, produce, consume);
  } else if (longest > 0) {
    consume(0);
  }
  if (any_arena) meet();
}

namespace {

// The reduction of what all ranks sent, to out at the piece's offset.
template <class Piece>
void reduce_piece(const Piece& piece, void* out, nxd_dtype_t dtype, nxd_reduce_t reduce) {
  const size_t size = piece.sizes[0];
  if (size == 0) return;
  reduce_in_order({piece.data.begin(), piece.data.end()}, static_cast<char*>(out) + piece.offset,
                  size / dtype_size(dtype), dtype, reduce);
}

}  // namespace

void ShmTransport::all_gather(const Call& call) {
  const size_t bytes = call.bytes();
  const Way way = agree(call, bytes, 0);
  if (bytes == 0) return;
  char* out = static_cast<char*>(call.recv);
  if (way == Way::kSmall) {
    for (int r = 0; r < size(); ++r) {
      kernels::copy_shared(out + static_cast<size_t>(r) * bytes, small(r), bytes);
    }
    return;
  }
  exchange(
      call, false,
      [&](size_t, size_t) {
        return Block{0, bytes};
      },
      [&](const Piece& piece) {
        for (size_t r = 0; r < piece.data.size(); ++r) {
          copy(out + r * bytes + piece.offset, piece.data[r], piece.sizes[r]);
        }
      });
}

void ShmTransport::reduce_scatter(const Call& call) {
  const size_t bytes = call.bytes();
  const Way way = agree(call, bytes * link_.ranks().size(), 0);
  if (bytes == 0) return;
  if (way == Way::kSmall) {
    std::vector<const void*> parts;
    for (int r = 0; r < size(); ++r) {
      parts.push_back(small(r) + static_cast<size_t>(rank()) * bytes);
    }
    return reduce_in_order(parts, call.recv, call.count, call.dtype, call.reduce);
  }
  exchange(
      call, true,
      [&](size_t, size_t to) {
        return Block{to * bytes, bytes};
      },
      [&](const Piece& piece) { reduce_piece(piece, call.recv, call.dtype, call.reduce); });
}

void ShmTransport::broadcast(const Call& call) {
  const size_t bytes = call.bytes();
  const Way way = agree(call, bytes, 0);
  if (bytes == 0) return;
  if (way == Way::kSmall) {
    if (rank() != call.peer) kernels::copy_shared(call.recv, small(call.peer), bytes);
    return;
  }
  const auto source = static_cast<size_t>(call.peer);
  exchange(
      call, false,
      [&](size_t from, size_t) {
        return Block{0, from == source ? bytes : 0};
      },
      [&](const Piece& piece) {
        copy(static_cast<char*>(call.recv) + piece.offset, piece.data[source], piece.sizes[source]);
      });
}

void ShmTransport::all_to_all(const Call& call) {
  const size_t bytes = call.bytes();
  const Way way = agree(call, bytes * link_.ranks().size(), 0);
  if (bytes == 0) return;
  char* out = static_cast<char*>(call.recv);
  if (way == Way::kSmall) {
    for (int r = 0; r < size(); ++r) {
      kernels::copy_shared(out + static_cast<size_t>(r) * bytes,
                           small(r) + static_cast<size_t>(rank()) * bytes, bytes);
    }
    return;
  }
  exchange(
      call, true,
      [&](size_t, size_t to) {
        return Block{to * bytes, bytes};
      },
      [&](const Piece& piece) {
        for (size_t r = 0; r < piece.data.size(); ++r) {
          kernels::copy_shared(out + r * bytes + piece.offset, piece.data[r], piece.sizes[r]);
        }
      });
}

std::optional<Rejection> ShmTransport::compare(const Call& call,
                                               const std::optional<Rejection>& own) {
  const Scope scope(*this, call);
  ++calls_;
  if (own) {
    post_rejection(call, *own);
  } else {
    post(call, 0, 0, false);
  }
  return meet_and_compare();
}

void ShmTransport::reduce_ranges(const void* data, size_t count, const std::vector<Range>& ranges,
                                 void* out, nxd_dtype_t dtype, nxd_reduce_t reduce) {
  // The posting says where the data are; what the call is has been agreed on.
  const Call call = Call::reduce_scatter(data, out, count, dtype, reduce);
  const Scope scope(*this, call);
  const size_t item = dtype_size(dtype);
  agree(call, count * item, 0, false);
  const bool widen = dtype_is_16_bit_float(dtype);
  exchange(
      call, true,
      [&](size_t, size_t to) {
        return Block{ranges[to].begin * item, ranges[to].count * item};
      },
      [&](const Piece& piece) {
        if (!widen) return reduce_piece(piece, out, dtype, reduce);
        const std::vector<const void*> inputs(piece.data.begin(), piece.data.end());
        const size_t at = piece.offset / item, elements = piece.sizes[0] / item;
        if (elements == 0) return;
        kernels::reduce_to_f32(inputs.data(), inputs.size(), static_cast<float*>(out) + at,
                               elements, dtype, reduce);
      });
}

void ShmTransport::gather_blocks(const void* own, const std::vector<size_t>& bytes,
                                 const std::vector<char*>& outs) {
  const Call call{Operation::kBarrier, own};
  const Scope scope(*this, call);
  agree(call, bytes[static_cast<size_t>(rank())], 0, false);
  exchange(
      call, false,
      [&](size_t from, size_t) {
        return Block{0, bytes[from]};
      },
      [&](const Piece& piece) {
        for (size_t r = 0; r < piece.data.size(); ++r) {
          if (piece.data[r]) copy(outs[r] + piece.offset, piece.data[r], piece.sizes[r]);
        }
      });
}

}  // namespace nxd
