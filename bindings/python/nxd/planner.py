"""Estimated cost of a layout of ranks, from counts alone: nothing runs, and no rank need exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from nxd._handle import Struct, c_text, read_struct, report, whole
from nxd._raw import FIELDS, PlanLayout, PlanMachine, PlanModel, PlanPrediction
from nxd.errors import check
from nxd.raw import core, ffi

if TYPE_CHECKING:
    from typing import Unpack

    from nxd._raw import PlanSearchOptions


def _dictionary(struct: Any, name: str) -> dict[str, Any]:
    """The fields of a struct that options of its kind take."""
    enums = FIELDS.get(name, {})
    return {key: enums[key](value) if key in enums else value
            for key, _ in ffi.typeof(name).fields
            if key not in ("struct_size", "reserved") for value in [getattr(struct, key)]}


def plan_model_from_config(config_json: str) -> PlanModel:
    """Sizes of a Hugging Face configuration."""
    out = report("nxd_plan_model_t")
    check(core.nxd_plan_model_from_config(c_text(config_json), out))
    return cast(PlanModel, _dictionary(out, "nxd_plan_model_t"))


def plan_predict(model: PlanModel, layout: PlanLayout,
            machine: PlanMachine | None = None) -> PlanPrediction:
    """Estimated cost of a layout."""
    out = report("nxd_plan_prediction_t")
    structs = [Struct("nxd_plan_model_t", cast(Mapping[str, Any], model)),
               Struct("nxd_plan_machine_t", cast(Mapping[str, Any], machine or {})),
               Struct("nxd_plan_layout_t", cast(Mapping[str, Any], layout))]
    check(core.nxd_plan_predict(*(s.pointer for s in structs), out))
    return cast(PlanPrediction, read_struct(PlanPrediction, out))


def plan_search(model: PlanModel, machine: PlanMachine | None = None, limit: int = 10,
           **options: Unpack[PlanSearchOptions]) -> list[tuple[PlanLayout, PlanPrediction]]:
    """The layouts of all ranks that take least time and fit, best first."""
    limit = whole(limit)
    layouts = ffi.new("nxd_plan_layout_t[]", limit)
    predictions = ffi.new("nxd_plan_prediction_t[]", limit)
    for layout, prediction in zip(layouts, predictions):
        layout.struct_size = ffi.sizeof("nxd_plan_layout_t")
        prediction.struct_size = ffi.sizeof("nxd_plan_prediction_t")
    structs = [Struct("nxd_plan_model_t", cast(Mapping[str, Any], model)),
               Struct("nxd_plan_machine_t", cast(Mapping[str, Any], machine or {})),
               Struct("nxd_plan_search_options_t", options)]
    count = ffi.new("size_t*")
    check(core.nxd_plan_search(*(s.pointer for s in structs), layouts, predictions, limit, count))
    return [(cast(PlanLayout, _dictionary(layouts[i], "nxd_plan_layout_t")),
             cast(PlanPrediction, read_struct(PlanPrediction, predictions + i)))
            for i in range(count[0])]
