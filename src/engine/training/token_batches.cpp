#include "engine/training/token_batches.h"

#include <ATen/ATen.h>

#include <utility>

namespace nxd {

TokenBatches::TokenBatches(std::shared_ptr<DataLoader> loader)
    : loader_(std::move(loader)), lease_(loader_->lend()) {}

std::optional<BatchSource::Tensors> TokenBatches::read() {
  const DataLoader::Options& o = loader_->options();
  Tensors batch;
  for (size_t i = 0; i < width(); ++i) {
    batch.push_back(at::empty({o.batch_size, o.files.sequence_length}, at::kLong));
  }
  loader_->read_next(batch[0].data_ptr<int64_t>(),
                     batch.size() > 1 ? batch[1].data_ptr<int64_t>() : nullptr,
                     static_cast<size_t>(batch[0].numel()));
  return batch;
}

}  // namespace nxd
