// nxd/op.h: operators by name.
#include "capi/engine_handles.h"
#include "engine/tensor/dtype_map.h"

using namespace nxd;

namespace {

OpCall& call_of(nxd_op_t* op) {
  check_argument(op, "op: expected an operator call, got NULL");
  op->fork_guard.check("op");
  return op->call;
}

const char* text_argument(const char* value, const char* name) { return &required(value, name); }

// An array of handles in which NULL stands for None.
std::vector<const at::Tensor*> optional_tensors(nxd_tensor_t* const* tensors, size_t count,
                                                const char* name) {
  check_array(tensors, count, name);
  std::vector<const at::Tensor*> out;
  for (size_t i = 0; i < count; ++i)
    out.push_back(tensors[i] ? &unwrap(tensors[i], name) : nullptr);
  return out;
}

template <class T>
std::vector<T> list_argument(const T* values, size_t count) {
  check_array(values, count, "values");
  return count == 0 ? std::vector<T>() : std::vector<T>(values, values + count);
}

}  // namespace

nxd_status_t nxd_op_create(const char* name, const char* overload, nxd_op_t** out_op) {
  return guard([&] {
    auto& out = output(out_op, "out_op");
    out = new nxd_op{OpCall(text_argument(name, "name"), overload ? overload : "")};
  });
}

void nxd_op_destroy(nxd_op_t* op) {
  const Uncancelled whole_call;
  delete op;
}

nxd_status_t nxd_op_get_schema(nxd_op_t* op, const char** out_schema) {
  return guard([&] {
    auto& out = output(out_schema, "out_schema");
    out = call_of(op).schema();
  });
}

nxd_status_t nxd_op_set_tensor(nxd_op_t* op, const char* name, nxd_tensor_t* tensor) {
  return guard([&] {
    call_of(op).set_tensor(text_argument(name, "name"),
                           tensor ? &unwrap(tensor, "tensor") : nullptr);
  });
}

nxd_status_t nxd_op_set_tensors(nxd_op_t* op, const char* name, nxd_tensor_t* const* tensors,
                                size_t num_tensors) {
  return guard([&] {
    call_of(op).set_tensors(text_argument(name, "name"),
                            optional_tensors(tensors, num_tensors, "tensors"));
  });
}

nxd_status_t nxd_op_set_int(nxd_op_t* op, const char* name, int64_t value) {
  return guard([&] { call_of(op).set_int(text_argument(name, "name"), value); });
}

nxd_status_t nxd_op_set_double(nxd_op_t* op, const char* name, double value) {
  return guard([&] { call_of(op).set_double(text_argument(name, "name"), value); });
}

nxd_status_t nxd_op_set_bool(nxd_op_t* op, const char* name, int32_t value) {
  return guard([&] { call_of(op).set_bool(text_argument(name, "name"), flag(value, "value")); });
}

nxd_status_t nxd_op_set_string(nxd_op_t* op, const char* name, const char* value) {
  return guard(
      [&] { call_of(op).set_string(text_argument(name, "name"), text_argument(value, "value")); });
}

nxd_status_t nxd_op_set_dtype(nxd_op_t* op, const char* name, nxd_dtype_t value) {
  return guard([&] { call_of(op).set_dtype(text_argument(name, "name"), to_scalar_type(value)); });
}

nxd_status_t nxd_op_set_ints(nxd_op_t* op, const char* name, const int64_t* values,
                             size_t num_values) {
  return guard([&] {
    call_of(op).set_ints(text_argument(name, "name"), list_argument(values, num_values));
  });
}

nxd_status_t nxd_op_set_doubles(nxd_op_t* op, const char* name, const double* values,
                                size_t num_values) {
  return guard([&] {
    call_of(op).set_doubles(text_argument(name, "name"), list_argument(values, num_values));
  });
}

nxd_status_t nxd_op_run(nxd_op_t* op) {
  return guard([&] { call_of(op).run(); });
}

nxd_status_t nxd_op_get_result_count(nxd_op_t* op, size_t* out_count) {
  return guard([&] {
    auto& out = output(out_count, "out_count");
    out = call_of(op).result_count();
  });
}

nxd_status_t nxd_op_share_tensor(nxd_op_t* op, size_t index, nxd_tensor_t** out_tensor) {
  return guard([&] {
    auto& out = output(out_tensor, "out_tensor");
    wrap_all({call_of(op).tensor_result(index)}, &out);
  });
}

nxd_status_t nxd_op_get_double(nxd_op_t* op, size_t index, double* out_value) {
  return guard([&] {
    auto& out = output(out_value, "out_value");
    out = call_of(op).number_result(index);
  });
}

nxd_status_t nxd_op_call(const char* name, const char* overload, nxd_tensor_t* const* inputs,
                         size_t num_inputs, nxd_tensor_t** outputs, size_t num_outputs) {
  return guard([&] {
    clear_outputs(outputs, num_outputs, "outputs");
    OpCall call(text_argument(name, "name"), overload ? overload : "");
    call.set_leading(optional_tensors(inputs, num_inputs, "inputs"));
    wrap_all(call.run_for(num_outputs), outputs);
  });
}
