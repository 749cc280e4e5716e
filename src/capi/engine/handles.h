#pragma once

#include "capi/arguments.h"
#include "engine/autograd/custom_function.h"
#include "engine/ops/op_call.h"
#include "engine/tensor/tensor_handle.h"
#include "engine/translate.h"

struct nxd_op {
  nxd::OpCall call;
  nxd::ForkStamp stamp{};
};

struct nxd_function {
  nxd::CustomFunction function;
  nxd::ForkStamp stamp{};
};
