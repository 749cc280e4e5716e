#pragma once

#include <cstdint>

#include "core/planner/plan_machine.h"
#include "core/planner/plan_model.h"

namespace nxd {

// Seconds of one pass of one microbatch on one rank.
struct PassTime {
  double gemm = 0, attention = 0, elementwise = 0, collectives = 0;

  double sum() const { return gemm + attention + elementwise + collectives; }
  PassTime& operator+=(const PassTime& other);
};
PassTime operator*(double factor, PassTime time);

// A part of the model on one rank, for one microbatch.
struct PlanPart {
  PassTime forward, input, weight;
  int64_t elements = 0;  // of parameters
};

// The parts of a layout; layer for each layer of a stage.
struct PlanParts {
  PlanPart embedding, layer, head;
  double boundary_bytes = 0;  // of what goes from one stage to the next
};

// The layout has been checked.
PlanParts plan_parts(const ModelSizes& model, const nxd_plan_machine_t& machine,
                     const nxd_plan_layout_t& layout);

}  // namespace nxd
