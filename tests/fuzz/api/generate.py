#!/usr/bin/env python3
"""Writes the calls of the API fuzzer: one C++ function for each function of the C interface, which
draws its arguments, calls it and checks what it gives.

usage: generate.py API_JSON LIBRARY OUTPUT      LIBRARY: nxd_core, or nxd for both libraries
"""

import json
import sys

# Counts, as the header calls them. An array goes by the next of these after it.
COUNTS = {"n", "cap", "size", "bytes", "ndim", "count"}
# Arrays whose lengths other arrays say.
SPECIAL = {
    ("nxd_pp_schedule_create_tasks", "ranks"): "whole_tasks(d) ? 1 : d.random().below(6) - 1",
    ("nxd_pp_schedule_create_tasks", "chunks"):
        'whole_tasks(d) ? 1 : d.integer<int32_t>("chunks")',
    ("nxd_pp_schedule_create_tasks", "microbatches"):
        'whole_tasks(d) ? 1 : d.integer<int32_t>("microbatches")',
    ("nxd_pp_schedule_create_tasks", "tasks"): "few_tasks(d)",
    ("nxd_pp_schedule_create_tasks", "counts"): "task_counts(d)",
    ("nxd_loss_weights", "out_weights"): 'd.numbers<double>("weights", count_num_labels)',
    ("nxd_pp_create_callbacks", "inputs"): "structs_nxd_pp_value_t(d, 16)",
    ("nxd_pp_create_callbacks", "num_inputs"): "d.few(8, 2, false)",
    ("nxd_pp_create_callbacks", "outputs"): "structs_nxd_pp_value_t(d, 16)",
    ("nxd_pp_create_callbacks", "num_outputs"): "d.few(8, 2, false)",
}
# Structs whose defaults are refused.
BASES = {
    "nxd_plan_model_t": "out.hidden_size = 16; out.num_layers = 4; out.num_heads = 2; "
                        "out.intermediate_size = 32; out.vocab_size = 64;",
    "nxd_plan_search_options_t": "out.world_size = 4; out.sequence_length = 8; "
                                 "out.batch_size = 8;",
    "nxd_pp_value_t": "out.name = \"x\";",
}
# Tensors of a layer over buffers that fit together: their extents (t tokens, k and n features, 2) and
# their elements (x of the call's dtype, i labels, s statistics).
LINEAR = {"x": "tk x", "weight": "nk x", "bias": "n x", "y": "tn x"}
NORM = {"x": "tk x", "weight": "k x", "bias": "k x", "y": "tk x", "statistics": "t s"}
LAYERS = {
    "nxd_column_linear": LINEAR,
    "nxd_column_linears": {"x": "tk x", "weights": "nk x", "biases": "n x", "ys": "tn x"},
    "nxd_row_linear": LINEAR,
    "nxd_vocab_parallel_embedding": {"ids": "t i", "weight": "nk x", "y": "tk x"},
    "nxd_parallel_cross_entropy":
        {"logits": "tn x", "labels": "t i", "statistics": "2t s", "loss": " s"},
    "nxd_linear_cross_entropy":
        {"x": "tk x", "weight": "nk x", "bias": "n x", "labels": "t i", "statistics": "2t s",
         "loss": " s"},
    "nxd_rms_norm": NORM,
    "nxd_layer_norm": NORM | {"statistics": "2t s"},
}
# Results that a failure may leave, as the header says.
KEPT = {
    ("nxd_store_get", "out_size"), ("nxd_context_get_flight_record", "out_needed"),
    ("nxd_checkpoint_get_path", "out_needed"), ("nxd_checkpoint_get_value", "out_needed"),
    ("nxd_training_state_get_value", "out_needed"), ("nxd_module_get_buffer_name", "out_needed"),
    ("nxd_device_get_report", "out_needed"), ("nxd_device_get_step_graph", "out_needed"),
    ("nxd_set_autocast", "out_previous"), ("nxd_loss_weights", "out_weights"),
    ("nxd_set_deferred_init", "out_previous"),
    ("nxd_tensor_get_shape", "out_ndim"), ("nxd_tensor_get_strides", "out_ndim"),
    ("nxd_parameter_get_global_shape", "out_ndim"),
    ("nxd_layout_get_group", "out_size"), ("nxd_group_get_ranks", "out_size"),
    ("nxd_parallel_get_group_list", "out_size"), ("nxd_pp_schedule_get_tasks", "out_count"),
    ("nxd_sample_epoch", "out_count"),
    ("nxd_module_load_safetensors", "out_report"), ("nxd_pp_get_losses", "out_count"),
}
# Single results that a count of something else follows.
SINGLE = {("nxd_pp_run_eval", "out_loss"), ("nxd_pp_run_eval_named", "out_loss"),
          ("nxd_device_loader_next", "loader")}
SCALARS = {"int32_t", "int64_t", "uint8_t", "uint32_t", "uint64_t", "size_t"}
# Only the calls of such buffers know their content.
COLLECTIVES = {"send", "receive", "buffer"}


def fills_struct(function):
    """True for a function that gives a struct of options its defaults: it takes its size."""
    return (function["name"].endswith("_init") and
            any(p["name"] == "size" for p in function["params"]))


class Generator:
    def __init__(self, api, library):
        self.library = library
        self.functions = [f for f in api["functions"]
                          if library == "nxd" or f["library"] == "nxd_core"]
        self.handles = {h["name"]: h.get("destroy") for h in api["handles"]}
        self.enums = {e["name"]: e["values"] for e in api["enums"]}
        self.structs = {s["name"]: s for s in api["structs"] if s["name"].startswith("nxd_")}
        self.callbacks = {c["name"] for c in api["callbacks"]}
        self.names = {f["name"] for f in self.functions}
        self.out = []

    # Structs ---------------------------------------------------------------------------------

    def list_count(self, struct, name):
        """The field that says how long a list of strings is; None when NULL ends it."""
        short = {"pipeline_cuts": "num_cuts", "keys": "num_values"}.get(name, "num_" + name)
        return short if short in {f["name"] for f in struct["fields"]} else None

    def list_counts(self, struct):
        return {self.list_count(struct, f["name"]) for f in struct["fields"]
                if f["type"]["name"] == "char" and f["type"]["pointers"] == 2}

    def field(self, struct, f):
        """The statement that draws a field; None for one that keeps its default."""
        kind, name = f["type"], f["name"]
        base = kind["name"]
        if name == "struct_size":
            return None
        if base == "function":
            return f"out.{name} = AnyCallback();"
        if base == "nxd_destroy_fn":
            return f"out.{name} = on_destroy;"
        if base in self.callbacks:
            return f"out.{name} = AnyCallback();"
        if base in self.enums:
            return f"out.{name} = draw_{base}(d);"
        if name in self.list_counts(struct):
            return None  # drawn with its list
        if base == "double" and kind["pointers"] == 0:
            return f'out.{name} = d.real("{name}");'
        if base in SCALARS and kind["pointers"] == 0:
            return f'out.{name} = d.integer<{base}>("{name}");'
        if base == "char" and kind["pointers"] == 1:
            return f'out.{name} = d.string("{name}");'
        if base == "char" and kind["pointers"] == 2:
            short = self.list_count(struct, name)
            if name == "values" and "keys" in {f["name"] for f in struct["fields"]}:
                return f'out.{name} = d.strings("{name}", out.{short}, false);'  # one for each key
            if short:
                return (f'out.{short} = d.count("{short}", true); '
                        f'out.{name} = d.strings("{name}", out.{short}, false);')
            return f'out.{name} = d.strings("{name}", 1, true);'
        if base in self.handles and kind["pointers"] == 1:
            return f"out.{name} = d.handle<{base}>();"
        if base == "int64_t" and kind["pointers"] == 1:  # a shape of ndim extents
            return f'out.{name} = d.numbers<int64_t>("extent", 4);'
        return None  # such as costs, one for each stage

    def struct_drawer(self, name):
        struct = self.structs[name]
        has_size = struct["fields"][0]["name"] == "struct_size"
        init = next((f["name"] for f in self.functions
                     if f["name"].endswith("_init") and f["params"][0]["type"]["name"] == name),
                    None)
        statements = [s for s in (self.field(struct, f) for f in struct["fields"]) if s]
        self.out.append(f"[[maybe_unused]] {name} content_{name}(Draw& d) {{")
        self.out.append(f"  {name} out{{}};")
        if init:
            self.out.append(f"  {init}(&out, sizeof out);")
        if name in BASES:
            self.out.append(f"  {BASES[name]}")
        # Callbacks and required things are given mostly, others changed now and then.
        for s in statements:
            rare = "AnyCallback" not in s and "on_destroy" not in s and init
            condition = "d.random().once_in(6)" if rare else "!d.random().once_in(12)"
            self.out.append(f"  if ({condition}) {{ {s} }}")
        self.out.append("  return out;")
        self.out.append("}")
        self.out.append(f"[[maybe_unused]] {name}* struct_{name}(Draw& d) {{")
        if has_size:
            self.out.append(f"  return d.or_null(d.sized(content_{name}(d)));")
        else:
            self.out.append(f"  {name}* out = d.room<{name}>(1);")
            self.out.append(f"  *out = content_{name}(d);")
            self.out.append("  return d.or_null(out);")
        self.out.append("}")

    # Arguments -------------------------------------------------------------------------------

    def count_of(self, function, index):
        """The parameter that says how long an array is."""
        if (function["name"], function["params"][index]["name"]) in SINGLE:
            return None
        for p in function["params"][index + 1:]:
            if p["type"]["pointers"] == 0 and (p["name"] in COUNTS or p["name"].startswith("num_")):
                if p["type"]["name"] in ("size_t", "int32_t", "int64_t"):
                    return p
        return None

    def results_of(self, function, index):
        """The count of an array of results; None for a single one."""
        p = function["params"][index]
        name = {"outputs": "num_outputs", "out_grads": "num_inputs",
                "out_grad_inputs": "num_inputs"}.get(p["name"])
        return f"count_{name}" if name and p["type"]["c"] == "nxd_tensor_t**" else None

    def argument(self, function, index):
        """The expression of one argument."""
        p = function["params"][index]
        kind, name = p["type"], p["name"]
        if (function["name"], name) in SPECIAL:
            return SPECIAL[function["name"], name]
        base, pointers = kind["name"], kind["pointers"]
        count = self.count_of(function, index) if pointers else None
        n = f'count_{count["name"]}' if count else None
        is_out = p.get("direction") == "out"
        if base in ("nxd_destroy_fn", "nxd_log_fn"):
            return "d.random().once_in(3) ? nullptr : " + (
                "on_destroy" if base == "nxd_destroy_fn" else "on_log")
        if base in self.callbacks:
            return "AnyCallback()"
        if pointers == 0:
            if base in self.enums:
                return f"draw_{base}(d)"
            if base == "double":
                return f'd.real("{name}")'
            if name == "size" and fills_struct(function):
                return "size_of_struct"
            if f"count_{name}" in self.counts:
                return f"static_cast<{base}>(count_{name})"
            return f'd.integer<{base}>("{name}")'
        if base == "char":
            if pointers == 1:
                if name == "name" and function["name"].startswith("nxd_op_"):
                    name = "argument" if "_set_" in function["name"] else "op"
                return f'd.string("{name}")' if kind["const"] else f"static_cast<char*>(d.bytes({n}))"
            return "d.output<const char*>()" if is_out else f'd.strings("{name}", {n}, false)'
        if base == "void" and pointers == 1:
            if function["name"] == "nxd_arena_free":
                return "arena_block(d)"
            if name in COLLECTIVES and any(q["name"] == "dtype" for q in function["params"]):
                return (f"d.bytes({n} >= kImpossible ? {n} : {n} * kMostRanks * kElementBytes)")
            if name == "user_data":
                return "nullptr"
            return f"d.bytes({n})" if n else "d.memory(64)"
        if base == "DLTensor":
            layer = LAYERS.get(function["name"].split("_forward")[0].split("_backward")[0], {})
            fitting = layer.get(name.removeprefix("grad_"))
            if fitting and pointers == 2:
                return f'd.layer_tensors("{fitting}", {n or "count_num_weights"})'
            if fitting:
                return f'd.layer_tensor("{fitting}")'
            return f"d.tensors({n})" if pointers == 2 else 'd.tensor(d.integer<uint8_t>("tensor"))'
        if base.startswith("DLManagedTensor"):
            return f"d.output<{base}*>()" if is_out else f"d.handle_to_destroy<{base}>()"
        if base in self.handles:
            if pointers == 1:
                if function["name"] == self.handles[base]:
                    return f"d.handle_to_destroy<{base}>()"
                return f"d.handle<{base}>()"
            if is_out and not self.results_of(function, index):
                return f"d.output<{base}*>()"
            if "const" in kind["c"]:
                return f"d.handles<{base}>({n})"
            return f"d.results<{base}>({self.results_of(function, index)})"
        if base in self.structs:
            if pointers == 2:
                return f"pointers_{base}(d, {n})"
            if n and not kind["const"] and not fills_struct(function):
                return f"structs_{base}(d, {n})"
            if fills_struct(function):
                return f"static_cast<{base}*>(d.bytes(size_of_struct))"
            if is_out or p.get("direction") == "inout":
                return f"struct_{base}(d)"
            return f"struct_{base}(d)"
        if n:
            return f'd.numbers<{base}>("{name}", {n})'
        if is_out and pointers == 1:
            return f"d.output<{base}>()"
        if pointers == 2:
            return f"d.output<{'const ' if kind['const'] else ''}{base}*>()"
        return f'd.numbers<{base}>("{name}", 64)'

    def call(self, function):
        name, params = function["name"], function["params"]
        lines = []
        self.counts = []
        if fills_struct(function):
            lines.append(f"  const size_t size_of_struct = "
                         f"d.struct_size(sizeof({params[0]['type']['name']}));")
            self.counts.append("count_size")
        for i, p in enumerate(params):
            count = self.count_of(function, i) if p["type"]["pointers"] else None
            key = f'count_{count["name"]}' if count else None
            if key and key not in self.counts:
                self.counts.append(key)
                # Structs are read, and results cleared, before anything else.
                cleared = p["type"]["name"] in self.structs or p["type"]["pointers"] == 2
                wide = (count["type"]["name"] == "size_t" and not name.endswith("_init")
                        and count["name"] != "cap"  # room for results, which is used in part
                        and not (cleared and p["type"]["name"] != "char"
                                 and p["type"]["name"] != "DLTensor"))
                lines.append(f'  const size_t {key} = d.count("{count["name"]}", '
                             f'{"true" if wide else "false"});')
        for i, p in enumerate(params):
            lines.append(f"  auto a{i} = {self.argument(function, i)};")
            if p["type"]["name"] in self.callbacks and not p["type"]["name"] in (
                    "nxd_destroy_fn", "nxd_log_fn"):
                lines[-1] = f'  {p["type"]["name"]} a{i} = AnyCallback();'
        arguments = ", ".join(f"a{i}" for i in range(len(params)))
        lines.append(f'  d.begin(kName_{name});')
        result = function["result"]["c"]
        if result == "nxd_status_t":
            lines.append(f"  if (d.end({name}({arguments}))) {{")
            lines += self.successes(function)
            lines.append("  } else {")
            lines += self.failures(function)
            lines.append("  }")
        elif result == "const char*":
            lines.append(f"  d.check_text({name}({arguments}));")
        else:
            lines.append(f"  {name}({arguments});")
        self.out.append(f"void call_{name}([[maybe_unused]] Draw& d) {{")
        self.out += lines
        self.out.append("}")

    def successes(self, function):
        owner = next((f"a{i}" for i, p in enumerate(function["params"])
                      if p["type"]["name"] in self.handles and p["type"]["pointers"] == 1), None)
        if function["name"] == "nxd_destroy_model_parallel":
            yield "    d.forget_borrowed(a0);"
        if function["name"] == "nxd_module_tie":  # which changes what the names stand for
            yield "    d.forget_borrowed(a0);"
        for i, p in enumerate(function["params"]):
            base, pointers = p["type"]["name"], p["type"]["pointers"]
            if p.get("direction") != "out" and not self.results_of(function, i):
                continue
            if base.startswith("DLManagedTensor") and pointers == 2:
                yield f"    if (a{i}) d.keep(*a{i}, nullptr);"
            elif base in self.handles and pointers == 2 and self.results_of(function, i):
                yield (f"    for (size_t i = 0; a{i} && i < {self.results_of(function, i)}; ++i) "
                       f"d.keep(a{i}[i], nullptr);")
            elif base in self.handles and pointers == 2:
                borrowed = p.get("owner") == "library"
                yield f"    if (a{i}) d.keep(*a{i}, {owner if borrowed else 'nullptr'});"
            elif base == "char" and pointers == 2:
                yield f"    if (a{i}) d.check_text(*a{i});"
            elif function["name"] == "nxd_arena_alloc":
                yield f"    if (a{i} && *a{i}) d.keep(static_cast<ArenaBlock*>(*a{i}), a0);"

    def failures(self, function):
        for i, p in enumerate(function["params"]):
            base = p["type"]["name"]
            if p.get("direction") != "out" and not self.results_of(function, i):
                continue
            if (function["name"], p["name"]) in KEPT:
                continue
            if self.results_of(function, i):
                yield (f"    for (size_t i = 0; a{i} && i < {self.results_of(function, i)}; ++i) "
                       f'd.check_zero(a{i} + i, "{p["name"]}");')
                continue
            if base in self.structs or (self.count_of(function, i) and p["type"]["pointers"] == 1):
                continue
            yield f'    d.check_zero(a{i}, "{p["name"]}");'

    # The file --------------------------------------------------------------------------------

    def used_structs(self):
        names = {p["type"]["name"] for f in self.functions for p in f["params"]}
        return [n for n in self.structs if n in names]

    def generate(self):
        o = self.out
        o.append("// Made by tests/fuzz/api/generate.py; do not edit.")
        o.append('#include "draw.h"')
        o.append("namespace nxd_fuzz {\nnamespace {\n")
        o.append("struct ArenaBlock;")
        # A block that is no longer there, or never was from this arena, is rejected or undefined:
        # only blocks that live are given back.
        o.append("void* arena_block(Draw& d) {\n"
                 "  auto& slots = d.pool<ArenaBlock>();\n"
                 "  if (slots.empty() || d.random().once_in(8)) return nullptr;\n"
                 "  void* block = slots.back().handle;\n"
                 "  slots.pop_back();\n"
                 "  return block;\n}")
        # Half of the lists of tasks are the one of a forward and a backward pass.
        tasks = ["bool whole_tasks(Draw& d) { return d.count(\"whole tasks\", false) % 2 == 0; }",
                 "size_t* task_counts(Draw& d) {",
                 "  size_t* out = d.few(8, 8, true);",
                 "  if (out && whole_tasks(d)) out[0] = 2;",
                 "  return out;\n}",
                 "nxd_pp_task_t* few_tasks(Draw& d) {",
                 "  auto* out = structs_nxd_pp_task_t(d, 64);",
                 "  if (out && whole_tasks(d)) {",
                 "    out[0] = {NXD_PP_TASK_FORWARD, 0, 0};",
                 "    out[1] = {NXD_PP_TASK_BACKWARD, 0, 0};",
                 "  }",
                 "  return out;\n}"]
        for name, values in self.enums.items():
            good = [v["value"] for v in values if v["value"] >= 0] or [0]
            if name == "nxd_status_t":
                good = list(range(-13, 2))
            listed = ", ".join(map(str, good))
            o.append(f"[[maybe_unused]] int32_t draw_{name}(Draw& d) {{\n"
                     f"  static constexpr int32_t kValues[] = {{{listed}}};\n"
                     "  return d.enumerator(kValues);\n}")
        for name in self.used_structs():
            self.struct_drawer(name)
            o.append(f"[[maybe_unused]] {name}* structs_{name}(Draw& d, size_t n) {{\n"
                     f"  {name}* out = d.room<{name}>(n);\n"
                     f"  for (size_t i = 0; i < Draw::elements(n); ++i) "
                     f"out[i] = content_{name}(d);\n"
                     + (f"  for (size_t i = 0; i < Draw::elements(n); ++i) "
                        f"out[i].struct_size = sizeof *out;\n"
                        if self.structs[name]["fields"][0]["name"] == "struct_size" else "")
                     + "  return d.or_null(out);\n}")
            o.append(f"[[maybe_unused]] const {name}** pointers_{name}(Draw& d, size_t n) {{\n"
                     f"  const {name}** out = d.room<const {name}*>(n);\n"
                     f"  for (size_t i = 0; i < Draw::elements(n); ++i) "
                     f"out[i] = struct_{name}(d);\n"
                     "  return d.or_null(out);\n}")
        o += tasks
        for f in self.functions:
            o.append(f'constexpr char kName_{f["name"]}[] = "{f["name"]}";')
        for f in self.functions:
            self.call(f)
        o.append("\n}  // namespace\n")
        o.append("const Function kFunctions[] = {")
        for f in self.functions:
            flags = ("true" if f["tag"]["kind"] == "collective" else "false",
                     "true" if f["result"]["c"] == "nxd_status_t" else "false")
            o.append(f'    {{kName_{f["name"]}, call_{f["name"]}, {flags[0]}, {flags[1]}}},')
        o.append("};\nconst size_t kFunctionCount = sizeof kFunctions / sizeof *kFunctions;\n")
        o.append("void destroy_all(Draw& d) {\n  for (int left = 1; left > 0;) {\n    left = 0;")
        for handle, destroy in self.handles.items():
            if destroy in self.names:
                o.append(f"    for (int i = d.random().below(3); i >= 0; --i)\n"
                         f"      {destroy}(d.handle_to_destroy<{handle}>());\n"
                         f"    for (const Slot& slot : d.pool<{handle}>()) left += !slot.owner;")
        o.append("  }\n}\n\n}  // namespace nxd_fuzz")
        return "\n".join(o) + "\n"


def main():
    source, library, target = sys.argv[1:]
    with open(source, encoding="utf-8") as f:
        api = json.load(f)
    text = Generator(api, library).generate()
    with open(target, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
