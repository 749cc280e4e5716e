# Estimated cost of a layout, from counts alone. Nothing runs, and no rank needs to exist.

"Sizes of a model from the text of its config.json."
plan_model(config_json::AbstractString) =
    filled(out -> nxd_plan_model_from_config(config_json, out), nxd_plan_model_t)

"""
    predict(model; machine = (;), layout...)

Predicts a layout's times and memory. `model` is of `plan_model`; keywords are the fields of
`nxd_plan_layout_t`, `machine` those of `nxd_plan_machine_t`.
"""
function predict(model::nxd_plan_model_t; machine = NamedTuple(), layout...)
    figures, made = Options(nxd_plan_machine_t; machine...), Options(nxd_plan_layout_t; layout...)
    fields_of(filled(nxd_plan_prediction_t) do out
        nxd_plan_predict(Ref(model), figures, made, out)
    end)
end

"""
    search(model; count = 10, machine = (;), world_size, sequence_length, batch_size, dtype, ...)

The layouts that take least time and fit, best first, each with its prediction.
"""
function search(model::nxd_plan_model_t; count::Integer = 10, machine = NamedTuple(), options...)
    figures = Options(nxd_plan_machine_t; machine...)
    wanted = Options(nxd_plan_search_options_t; options...)
    layouts = fill(Options(nxd_plan_layout_t).ref[], count)
    prediction = Ref{nxd_plan_prediction_t}()
    check(set_size(prediction))
    predictions = fill(prediction[], count)
    found = value(Csize_t) do out
        nxd_plan_search(Ref(model), figures, wanted, layouts, predictions, count, out)
    end
    [(layout = fields_of(layouts[i]), prediction = fields_of(predictions[i])) for i in 1:found]
end
