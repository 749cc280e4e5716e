//! Planning: what a layout costs, from counts alone. Nothing runs, and no rank needs to exist.
use crate::error::{c_string, check, check_abi, Result};
use nxd_sys as sys;
use std::ptr::null;
use sys::Versioned;

pub use sys::nxd_plan_layout_t as PlanLayout;
pub use sys::nxd_plan_machine_t as PlanMachine;
pub use sys::nxd_plan_model_t as PlanModel;
pub use sys::nxd_plan_prediction_t as PlanPrediction;
pub use sys::nxd_plan_search_options_t as PlanSearchOptions;
pub use sys::nxd_pp_partition_t as Partition;

/// Reads the sizes of a Hugging Face configuration, the text of config.json.
pub fn model_from_config(config_json: &str) -> Result<PlanModel> {
    check_abi()?;
    let config = c_string(config_json)?;
    let mut model = PlanModel::default();
    check(unsafe { sys::nxd_plan_model_from_config(config.as_ptr(), &mut model) })?;
    Ok(model)
}

/// Predicts a layout; `machine` `None`: all defaults.
pub fn predict(
    model: &PlanModel,
    machine: Option<&PlanMachine>,
    layout: &PlanLayout,
) -> Result<PlanPrediction> {
    check_abi()?;
    let (model, layout) = (model.with_size(), layout.with_size());
    let machine = machine.map(|machine| machine.with_size());
    let machine = machine.as_ref().map_or(null(), |machine| machine as *const _);
    let mut prediction = PlanPrediction::default();
    check(unsafe { sys::nxd_plan_predict(&model, machine, &layout, &mut prediction) })?;
    Ok(prediction)
}

/// Finds the layouts of all ranks that take least time and fit, at most `most`, best first.
pub fn search(
    model: &PlanModel,
    machine: Option<&PlanMachine>,
    options: &PlanSearchOptions,
    most: usize,
) -> Result<Vec<(PlanLayout, PlanPrediction)>> {
    check_abi()?;
    let (model, options) = (model.with_size(), options.with_size());
    let machine = machine.map(|machine| machine.with_size());
    let machine = machine.as_ref().map_or(null(), |machine| machine as *const _);
    let mut layouts = vec![PlanLayout::default(); most];
    let mut predictions = vec![PlanPrediction::default(); most];
    let mut count = 0;
    check(unsafe {
        let (layouts, predictions) = (layouts.as_mut_ptr(), predictions.as_mut_ptr());
        sys::nxd_plan_search(&model, machine, &options, layouts, predictions, most, &mut count)
    })?;
    Ok(layouts.into_iter().zip(predictions).take(count).collect())
}
