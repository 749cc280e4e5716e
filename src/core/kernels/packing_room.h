#pragma once

#include <cstddef>
#include <cstdint>

namespace nxd::kernels {

// The most that oneDNN's sgemm takes of malloc's memory for a product of [rows, depth] by [depth,
// columns], for blocks of both operands that lie side by side there. Pure.
size_t packing_bytes(int64_t rows, int64_t columns, int64_t depth);

// Memory of malloc's that a thread keeps for the packed blocks of its products. oneDNN takes one
// aligned block for each product and frees it. glibc finds an aligned block by a search for one
// that is larger by 176 bytes, and frees these: they go to the thread's cache, whose blocks join no
// neighbours. So the hole that the block leaves is too small for the next one of its size, and each
// product of a forward pass, between which small blocks come and stay, takes new memory.
//
// The room is one block, held by its front. For a product the rest of it is freed. The cache is
// full of blocks of 176 bytes by then, so that these join the hole; and the hole begins where an
// aligned block can. Behind the product the front grows over it again, before anything else of this
// thread can lie there. With another malloc this costs two calls and does nothing.
class PackingRoom {
 public:
  PackingRoom() = default;
  PackingRoom(const PackingRoom&) = delete;
  PackingRoom& operator=(const PackingRoom&) = delete;
  ~PackingRoom();

  // Free for the scope of a product.
  class Lent {
   public:
    Lent(PackingRoom& room, size_t bytes);
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    ~Lent();

   private:
    PackingRoom& room_;
  };

 private:
  void reserve(size_t bytes);

  void* front_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nxd::kernels
