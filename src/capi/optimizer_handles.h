#pragma once

// How the handles of optimizers are made, over parameters of either library.
#include <memory>

#include "capi/optimizer_options.h"
#include "capi/user_data.h"
#include "core/base/error.h"
#include "core/optim/data_parallel.h"
#include "core/optim/optimizer.h"

// The owner is that of the parameters, such as a module tree. It is kept as long as either handle.
struct nxd_ddp {
  std::shared_ptr<void> owner;
  std::shared_ptr<nxd::DataParallel> value;
};

struct nxd_optimizer {
  std::shared_ptr<void> owner;
  std::shared_ptr<nxd::Optimizer> value;  // training states share it
};

namespace nxd {

inline nxd_ddp_t& unwrap(nxd_ddp_t* ddp) {
  check_argument(ddp, "ddp: expected a ddp, got NULL");
  return *ddp;
}

// parameters: a ParameterSource or a DataParallel; owner is kept as long as the handle.
template <class Parameters>
nxd_optimizer_t* new_optimizer(std::shared_ptr<void> owner, std::shared_ptr<Parameters> parameters,
                               std::unique_ptr<UpdateRule> rule) {
  auto handle = std::make_unique<nxd_optimizer>();
  handle->owner = std::move(owner);
  handle->value = std::make_shared<Optimizer>(std::move(parameters), std::move(rule));
  return handle.release();
}

// The same with a caller's rule, whose user_data is the handle's once it is made.
template <class Parameters>
nxd_optimizer_t* new_custom_optimizer(std::shared_ptr<void> owner,
                                      std::shared_ptr<Parameters> parameters,
                                      const nxd_custom_optimizer_options_t* options) {
  const nxd_custom_optimizer_options_t given = read_options(options, kCustomDefaults, "options");
  struct Kept {
    std::shared_ptr<void> owner;  // let go of after the caller's pointer, which may refer to it
    UserData user_data;
    Kept(std::shared_ptr<void> of, void* data) : owner(std::move(of)), user_data(data) {}
  };
  auto kept = std::make_shared<Kept>(std::move(owner), given.user_data);
  nxd_optimizer_t* handle =
      new_optimizer(kept, std::move(parameters), make_callback_rule(resolve(given)));
  kept->user_data.destroy = given.destroy;
  return handle;
}

}  // namespace nxd
