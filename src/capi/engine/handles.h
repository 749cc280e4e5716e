#pragma once

#include "capi/arguments.h"
#include "engine/device/custom_function.h"
#include "engine/device/op_call.h"
#include "engine/device/tensor_handle.h"
#include "engine/translate.h"

struct nxd_op {
  nxd::OpCall call;
  nxd::ForkStamp stamp{};
};

struct nxd_function {
  nxd::CustomFunction function;
  nxd::ForkStamp stamp{};
};
