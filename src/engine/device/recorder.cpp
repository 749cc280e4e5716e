#include "engine/device/recorder.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "engine/device/argument_checks.h"
#include "engine/device/device_metrics.h"
#include "engine/device/device_tensor.h"
#include "engine/device/dtype_trial.h"
#include "engine/device/operator_arguments.h"
#include "engine/device/random_state.h"
#include "engine/device/shape_functions.h"
#include "engine/device/shape_trial.h"

namespace nxd {
namespace {

using torch::jit::Stack;

thread_local bool takes_host_tensors = false;
thread_local const RecordedWrite* current_write = nullptr;

// These give a tensor other sizes.
bool resizes(std::string_view name) {
  return name == "aten::resize_" || name == "aten::resize_as_" || name == "aten::set_";
}

// aten::add_ writes what aten::add gives, and aten::__ilshift__ what aten::__lshift__ does. Empty
// for operators that write nothing in place.
std::string counterpart_of(const std::string& name) {
  static constexpr std::string_view kSpecial = "aten::__i";
  if (name.starts_with(kSpecial)) return "aten::__" + name.substr(kSpecial.size());
  return name.back() == '_' && !resizes(name) ? name.substr(0, name.size() - 1) : "";
}

// A tensor on the CPU among the arguments is copied when the call is recorded: the host may write
// to it before the graph runs.
DeviceValuePtr uploaded(const at::Tensor& tensor) {
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  return Recording::current()->known(tensor.detach().clone(at::MemoryFormat::Contiguous));
}

// The value of a tensor that is not on the device, for an operator that takes it.
DeviceValuePtr uploaded_for(const RecordedOperator& op, const at::Tensor& tensor) {
  const bool is_mixed = tensor.dim() > 0 && op.name != "aten::copy" && !takes_host_tensors;
  if (is_mixed || !tensor.is_cpu()) {
    check_argument(false, op.name, ": expected all tensors on device xla:0, got one of shape ",
                   tensor.sizes(), " on ", tensor.device().str());
  }
  DeviceValuePtr value = uploaded(tensor);
  if (is_wrapped_number(tensor)) {
    value->meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    value->data.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return value;
}

// A tensor that a call takes. The call's arguments keep the value of one on the device.
struct Source {
  NodeResult result{};
  const DeviceValue* value = nullptr;
  DeviceValuePtr kept{};  // of another

  const at::Tensor& meta() const { return value->meta; }
};

// The tensors that a call takes, and a hash of all that its signature follows from: its operator,
// the shapes of its tensors, and the values of its other arguments.
struct TakenInputs {
  explicit TakenInputs(const RecordedOperator& op) : op_(op), recording_(*Recording::current()) {
    // Quotients of integers have the default dtype, which a program may change.
    hash_.add(reinterpret_cast<uintptr_t>(&op));
    hash_.add(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  }

  void add(const KernelParameter& parameter) {
    uint64_t bits = 0;
    std::memcpy(&bits, &parameter.value, sizeof bits);
    hash_.add(bits);
  }

  void add(const c10::IValue& argument) {
    if (argument.isTensor()) {
      add(argument.toTensor());
    } else if (argument.isTensorList() || is_optional_tensor_list(argument)) {
      const auto list = argument.toListRef();
      hash_.add(kTensors).add(list.size());
      for (const c10::IValue& each : list) add(each.isTensor() ? each.toTensor() : at::Tensor());
    } else {
      is_whole = add_argument(hash_, argument) && is_whole;
    }
  }
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      hash_.add(kNoTensor);
      return;
    }
    if (is_recorded(tensor)) {
      takes_plain = takes_plain || is_plain(tensor);
      return add(device_value(tensor), nullptr);
    }
    DeviceValuePtr value = uploaded_for(op_, tensor);
    add(*value, value);
  }
  void add(const DeviceValuePtr& value) {
    if (!value) {
      hash_.add(kNoTensor);
      return;
    }
    add(*value, nullptr);
  }
  // Shapes and places of results that do not follow from the inputs'.
  void add(const RecordedCall& call) {
    hash_.add(Hash().add(call.attributes).value()).add(call.results.size());
    for (const at::Tensor& result : call.results) add_shape(hash_, result);
    for (const int input : call.overwrites) hash_.add(static_cast<uint64_t>(input + 1));
  }
  // Hands them over.
  void move_to(RecordedNode& node) {
    for (Source& source : sources) node.inputs.push_back(std::move(source.result));
  }
  GraphHash::Value key() const { return hash_.value(); }

  c10::SmallVector<Source, 6> sources{};
  bool is_whole = true;      // nothing but the key decides on the signature
  bool takes_plain = false;  // a tensor without a wrapper

 private:
  // Other than those of arguments without tensors.
  enum Tag : uint64_t { kNoTensor = 1000, kTensor, kNumber, kTensors };

  void add(DeviceValue& value, DeviceValuePtr kept) {
    sources.push_back({recording_.source_of(value), &value, std::move(kept)});
    hash_.add(is_wrapped_number(value.meta) ? kNumber : kTensor);
    add_shape(hash_, value.meta);
  }

  const RecordedOperator& op_;
  Recording& recording_;
  GraphHash hash_;
};

c10::IValue list_of(const std::vector<at::Tensor>& tensors, ListArgument::Kind kind) {
  if (kind == ListArgument::Kind::kTensors) return c10::IValue(tensors);
  c10::List<c10::optional<at::Tensor>> list;
  for (const at::Tensor& tensor : tensors) {
    list.push_back(tensor.defined() ? c10::optional<at::Tensor>(tensor) : c10::nullopt);
  }
  return c10::IValue(std::move(list));
}

// A signature on its way, with the arguments that give its results' shapes.
struct Draft {
  std::shared_ptr<CallSignature> call = std::make_shared<CallSignature>();
  Stack meta{};

  at::Tensor take(const TakenInputs& taken, const at::Tensor& tensor, int element) {
    if (!tensor.defined()) return tensor;
    const size_t input = call->places.size();
    call->places.push_back({static_cast<int>(call->arguments.size()), element});
    return taken.sources[input].meta();
  }

  void add(const TakenInputs& taken, const c10::IValue& argument) {
    ListArgument list;
    c10::IValue meta_argument = argument, kept;
    if (argument.isTensor()) {
      const at::Tensor meta_tensor = take(taken, argument.toTensor(), InputPlace::kNoList);
      meta_argument = meta_tensor.defined() ? c10::IValue(meta_tensor) : c10::IValue();
    } else if (argument.isTensorList() || is_optional_tensor_list(argument)) {
      list.kind = argument.isTensorList() ? ListArgument::Kind::kTensors
                                          : ListArgument::Kind::kOptionalTensors;
      std::vector<at::Tensor> metas;
      for (const c10::IValue& each : argument.toListRef()) {
        const auto element = static_cast<int>(list.size++);
        metas.push_back(each.isTensor() ? take(taken, each.toTensor(), element) : at::Tensor());
      }
      meta_argument = list_of(metas, list.kind);
    } else if (argument.isDevice()) {
      kept = at::Device(at::kCPU);
      meta_argument = at::Device(at::kMeta);
    } else {
      kept = argument;
    }
    call->arguments.push_back(std::move(kept));
    call->lists.push_back(list);
    meta.push_back(std::move(meta_argument));
  }
};

// Values on the device are in C order, whatever strides a view of them would have.
at::Tensor dense_meta(const at::Tensor& meta) {
  if (!meta.defined() || meta.is_contiguous()) return meta;
  return at::empty(meta.sizes(), at::TensorOptions().dtype(meta.scalar_type()).device(at::kMeta));
}

// PyTorch's Python, where a process has it, registers kernels for the meta device that take not all
// that operators take, and leave their errors to the interpreter. They come from no file.
bool has_python_shapes(const c10::OperatorHandle& op) {
  return op.dumpState().find("\nMeta: registered at /dev/null:") != std::string::npos;
}

// Leaves the results on the stack; "" or why there are no shapes.
std::string infer_shapes(const c10::OperatorHandle& op, Stack& stack) {
  if (reads_values(op, stack)) return "its result's shape depends on values";
  check_shapes(op, stack);
  const Stack arguments = stack;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
  bool is_known = false;
  try {
    if (const ShapeFunction* function = find_shape_function(op)) {
      function->give(stack);
      is_known = true;
    } else if (!has_python_shapes(op)) {
      op.callBoxed(&stack);
      is_known = true;
    }
  } catch (const c10::Error& error) {
    if (!lacks_shape_function(error)) throw;
    stack = arguments;
  }
  if (!is_known) {
    // A trial would draw random bits.
    const bool is_tried = !recorded_operator(op).is_effect && give_shapes_of_trial(op, stack);
    if (!is_tried) return "there is no shape function for it";
  }
  for (const c10::IValue& result : stack) {
    bool on_meta = true;
    Stack one;
    one.push_back(result);
    for_each_tensor(
        one, [&](const at::Tensor& t) { on_meta = on_meta && (!t.defined() || t.is_meta()); });
    if (!on_meta) return "its shape function gives values";
  }
  return "";
}

// Replaces the operator's arguments on the stack by tensors on the CPU, and runs it there. A tensor
// that it writes to gets the written value.
void run_on_cpu(const c10::OperatorHandle& op, Stack& stack) {
  const std::string name = qualified_name(op);
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  const auto& arguments = op.schema().arguments();
  Stack values(stack.end() - static_cast<ptrdiff_t>(arguments.size()), stack.end());
  torch::jit::drop(stack, arguments.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    const bool writes = alias && alias->isWrite();
    Stack one{values[i]};
    replace_tensors(one, [&](const at::Tensor& tensor) {
      if (!is_recorded(tensor)) return tensor;
      at::Tensor data = Recording::value_of(device_value(tensor), name);
      if (!writes) return data;
      written.emplace_back(tensor, data.clone());
      return written.back().second;
    });
    values[i] = one[0].isDevice() ? c10::IValue(at::Device(at::kCPU)) : one[0];
  }
  {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    const c10::impl::ExcludeDispatchKeyGuard plain(c10::DispatchKey::Functionalize);
    op.callBoxed(&values);
  }
  for (const auto& [tensor, data] : written) set_device_value(tensor, data.contiguous());
  replace_tensors(values, [&](const at::Tensor& result) {
    if (!result.defined()) return result;
    for (const auto& [tensor, data] : written) {
      if (data.is_same(result)) return tensor;
    }
    return device_tensor(Recording::current()->known(result.contiguous()));
  });
  for (c10::IValue& value : values) stack.push_back(std::move(value));
}

void fall_back(const c10::OperatorHandle& op, const std::string& why, Stack& stack) {
  const std::string name = qualified_name(op);
  if (device_metrics::count_fallback(name)) {
    log(NXD_LOG_WARN, "device xla: ", name, " cannot be recorded (", why,
        "): each call of it ends the graph and runs on the CPU");
  }
  // Its bits come behind those of the calls before.
  if (recorded_operator(op).is_effect) Recording::current()->sync(name);
  run_on_cpu(op, stack);
}

// The signature of a call that is the first of its kind; null, and why there are no shapes.
std::shared_ptr<const CallSignature> new_signature(const c10::OperatorHandle& op,
                                                   const RecordedOperator& known,
                                                   at::ArrayRef<c10::IValue> arguments,
                                                   const TakenInputs& taken, std::string* why_not) {
  Draft draft;
  draft.call->op = &known;
  for (const c10::IValue& argument : arguments) draft.add(taken, argument);
  const Stack given = draft.meta;
  *why_not = infer_shapes(op, draft.meta);
  if (!why_not->empty()) return nullptr;
  // A trial of a view has nothing to find, and that of an effect would draw random bits.
  if (!known.is_view && !known.is_effect) check_dtypes(op, given);
  CallSignature& call = *draft.call;
  for (const c10::IValue& result : draft.meta) {
    if (result.isTensor()) {
      call.result_lists.push_back(-1);
      call.results.push_back(dense_meta(result.toTensor()));
      continue;
    }
    const std::vector<at::Tensor> list = result.toTensorVector();
    call.result_lists.push_back(static_cast<int>(list.size()));
    for (const at::Tensor& element : list) call.results.push_back(dense_meta(element));
  }
  call.seal();
  return draft.call;
}

// Results of tensors without wrappers have none: libtorch 1.13 calls a view that changes its tensor
// in place, such as transpose_, on these without saying that it wants none.
void push_results(const CallSignature& call, const DeviceValues& values, bool plain, Stack& stack) {
  size_t next = 0;
  const auto tensor = [&] {
    const DeviceValuePtr& value = values[next++];
    if (!value) return at::Tensor();
    return plain ? plain_device_tensor(value) : device_tensor(value);
  };
  for (const int length : call.result_lists) {
    if (length < 0) {
      stack.emplace_back(tensor());
      continue;
    }
    std::vector<at::Tensor> list;
    for (int i = 0; i < length; ++i) list.push_back(tensor());
    stack.emplace_back(std::move(list));
  }
}

// Places among a node's inputs in place of those among the tensors that were given.
std::vector<int> taken_inputs(const std::vector<InputPlace>& places,
                              const std::vector<int>& given) {
  std::vector<int> out;
  for (const int wanted : given) {
    const auto found =
        std::find_if(places.begin(), places.end(),
                     [wanted](const InputPlace& place) { return place.argument == wanted; });
    out.push_back(wanted < 0 ? -1 : static_cast<int>(found - places.begin()));
  }
  return out;
}

bool is_given(const at::Tensor& input) { return input.defined(); }
bool is_given(const DeviceValuePtr& input) { return input != nullptr; }

template <class Input>
std::vector<InputPlace> places_of(const std::vector<Input>& inputs) {
  std::vector<InputPlace> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_given(inputs[i])) out.push_back({static_cast<int>(i)});
  }
  return out;
}

// The signature of a function that is called, without its hash.
std::shared_ptr<CallSignature> signature_of(const RecordedOperator& op, RecordedCall& call,
                                            const std::vector<DeviceValuePtr>& inputs) {
  auto signature = std::make_shared<CallSignature>();
  signature->op = &op;
  signature->places = places_of(inputs);
  signature->attributes = std::move(call.attributes);
  signature->exchanges = std::move(call.exchanges);
  signature->results = std::move(call.results);
  signature->overwrites = taken_inputs(signature->places, call.overwrites);
  signature->seal();
  return signature;
}

// The function is given as many tensors as were recorded, undefined ones too.
std::shared_ptr<const ReplayFunction> with_undefined(ReplayFunction function, size_t count,
                                                     const std::vector<InputPlace>& places) {
  if (places.size() == count) return std::make_shared<const ReplayFunction>(std::move(function));
  return std::make_shared<const ReplayFunction>(
      [count, places, run = std::move(function)](const std::vector<at::Tensor>& given) {
        std::vector<at::Tensor> all(count);
        for (size_t k = 0; k < places.size(); ++k) {
          all[static_cast<size_t>(places[k].argument)] = given[k];
        }
        return run(all);
      });
}

std::vector<at::Tensor> tensors_of(const DeviceValues& values) {
  std::vector<at::Tensor> out;
  out.reserve(values.size());
  for (const DeviceValuePtr& value : values) {
    out.push_back(value ? device_tensor(value) : at::Tensor());
  }
  return out;
}

}  // namespace

HostTensorScope::HostTensorScope() : outer_(std::exchange(takes_host_tensors, true)) {}

HostTensorScope::~HostTensorScope() { takes_host_tensors = outer_; }

RecordedWrite::RecordedWrite(const c10::OperatorHandle& op, const Stack& arguments)
    : outer_(std::exchange(current_write, this)) {
  const std::string counterpart = counterpart_of(op.operator_name().name);
  if (counterpart.empty()) return;
  const c10::IValue& argument = arguments.at(0);
  if (!argument.isTensor() || !is_recorded(argument.toTensor())) return;
  counterpart_ = counterpart;
  sizes_ = argument.toTensor().sizes().vec();
  // Sums of one tensor and their like are computed in its dtype.
  if (!op.schema().argumentIndexWithName("dtype")) dtype_ = argument.toTensor().scalar_type();
}

RecordedWrite::~RecordedWrite() { current_write = outer_; }

void RecordedWrite::check(const std::string& recorded, const at::Tensor& result) const {
  if (counterpart_.empty() || recorded.substr(0, recorded.find('.')) != counterpart_) return;
  check_argument(result.sizes() == at::IntArrayRef(sizes_), counterpart_, ": output with shape ",
                 at::IntArrayRef(sizes_), " doesn't match the broadcast shape ", result.sizes());
  if (!dtype_) return;
  check_argument(at::canCast(result.scalar_type(), *dtype_), counterpart_, ": result type ",
                 result.scalar_type(), " can't be cast to the tensor's type ", *dtype_);
}

void record_operator(const c10::OperatorHandle& op, Stack* stack) {
  const RecordedOperator& known = recorded_operator(op);
  if (known.is_effect) random_bits_follow();
  if (!known.why_not_recorded.empty()) return fall_back(op, known.why_not_recorded, *stack);
  const size_t count = known.is_scalar.size();
  const auto arguments = at::ArrayRef<c10::IValue>(*stack).slice(stack->size() - count);
  TakenInputs taken(known);
  for (const c10::IValue& argument : arguments) taken.add(argument);
  const bool takes_reordered = !taken.sources.empty() && taken.sources[0].value->is_reordered;
  // The device has no memory of a base that these strides could go over.
  if (known.strides_over_memory && takes_reordered) {
    fail(NXD_ERROR_UNSUPPORTED, known.name, ": expected a tensor on device xla:0 that is no view, ",
         "or one in its base's order, got a view of other strides; clone it first");
  }
  const GraphHash::Value key = taken.key();
  const KnownCall* const found = KnownCalls::find(key);
  std::shared_ptr<const CallSignature> call = found ? found->signature : nullptr;
  if (!call) {
    std::string why_not;
    call = new_signature(op, known, arguments, taken, &why_not);
    if (!call) return fall_back(op, why_not, *stack);
    if (taken.is_whole) KnownCalls::add(key, {call, nullptr});
  }
  if (current_write && !call->results.empty() && call->results[0].defined()) {
    current_write->check(known.name, call->results[0]);
  }
  torch::jit::drop(*stack, count);
  auto node = std::make_shared<RecordedNode>();
  node->call = std::move(call);
  taken.move_to(*node);
  const DeviceValues values = Recording::current()->add(node);
  if (known.is_view && (!known.keeps_order || takes_reordered)) {
    for (const DeviceValuePtr& value : values) {
      if (value) value->is_reordered = true;
    }
  }
  push_results(*node->call, values, taken.takes_plain, *stack);
}

void take_recorded_value(const at::Tensor& tensor, const DeviceValuePtr& from) {
  Recording::current()->move_value(*from, device_value(tensor));
}

DeviceValues record_values(RecordedCall call, const std::vector<DeviceValuePtr>& inputs) {
  const RecordedOperator& op = recorded_function(call.name, call.is_effect, call.is_alone);
  TakenInputs taken(op);
  for (const DeviceValuePtr& input : inputs) taken.add(input);
  auto node = std::make_shared<RecordedNode>();
  // A signature with groups would keep them for as long as the thread lives.
  if (!call.exchanges.empty()) {
    node->call = signature_of(op, call, inputs);
  } else {
    taken.add(call);
    const GraphHash::Value key = taken.key();
    if (const KnownCall* const found = KnownCalls::find(key)) {
      node->call = found->signature;
    } else {
      node->call = signature_of(op, call, inputs);
      KnownCalls::add(key, {node->call, nullptr});
    }
  }
  node->function = with_undefined(std::move(call.function), inputs.size(), node->call->places);
  if (call.check) node->check = std::make_shared<const ValueCheck>(std::move(call.check));
  taken.move_to(*node);
  DeviceValues values = Recording::current()->add(node);
  for (size_t r = 0; r < call.overwrites.size(); ++r) {
    const int from = call.overwrites[r];
    if (from >= 0) values[r]->set_previous(*inputs[static_cast<size_t>(from)]);
  }
  return values;
}

std::vector<at::Tensor> record_call(RecordedCall call, const std::vector<at::Tensor>& inputs) {
  std::vector<DeviceValuePtr> values;
  values.reserve(inputs.size());
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) {
      values.push_back(nullptr);
    } else if (is_recorded(input)) {
      values.push_back(value_of(input));
    } else {
      values.push_back(
          uploaded_for(recorded_function(call.name, call.is_effect, call.is_alone), input));
    }
  }
  return tensors_of(record_values(std::move(call), values));
}

std::vector<at::Tensor> record_kernel(const char* name, const KernelParameters& parameters,
                                      const void* self, const KernelMaker& make,
                                      const std::vector<at::Tensor>& inputs) {
  const RecordedOperator& op = recorded_function(name, false);
  TakenInputs taken(op);
  for (const KernelParameter& parameter : parameters) taken.add(parameter);
  for (const at::Tensor& input : inputs) taken.add(input);
  const GraphHash::Value key = taken.key();
  const KnownCall* found = KnownCalls::find(key);
  auto node = std::make_shared<RecordedNode>();
  if (!found) {
    auto signature = std::make_shared<CallSignature>();
    signature->op = &op;
    signature->places = places_of(inputs);
    for (const KernelParameter& parameter : parameters) {
      const char* const comma = signature->attributes.empty() ? "" : ", ";
      signature->attributes += text(comma, parameter.name, " ", parameter.value);
    }
    std::vector<at::Tensor> shapes(inputs.size());
    for (size_t k = 0; k < taken.sources.size(); ++k) {
      shapes[static_cast<size_t>(signature->places[k].argument)] = taken.sources[k].meta();
    }
    signature->results = make.results(self, shapes);
    signature->seal();
    auto function = with_undefined(make.function(self), inputs.size(), signature->places);
    KnownCalls::add(key, {std::move(signature), std::move(function)});
    found = KnownCalls::find(key);
  }
  node->call = found->signature;
  node->function = found->function;
  taken.move_to(*node);
  return tensors_of(Recording::current()->add(node));
}

}  // namespace nxd
