#pragma once

#include <memory>

#include "core/data/data_loader.h"
#include "engine/training/device_loader.h"

namespace nxd {

// The batches of a data loader, which is lent to it.
class TokenBatches final : public BatchSource {
 public:
  // INVALID_STATE when something else reads the loader.
  explicit TokenBatches(std::shared_ptr<DataLoader> loader);

  size_t width() const override { return loader_->options().files.next_labels ? 2 : 1; }
  std::optional<Tensors> read() override;
  int64_t position() const override { return loader_->read_position(); }
  void set_taken(int64_t position) override { lease_->store(position); }
  void set_position(int64_t position) override { loader_->seek(position); }

 private:
  const std::shared_ptr<DataLoader> loader_;
  const DataLoader::Lease lease_;
};

}  // namespace nxd
