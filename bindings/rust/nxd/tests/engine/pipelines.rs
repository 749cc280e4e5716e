use crate::common::on_ranks;
use crate::training::{ids, CONFIG};
use nxd::model::{self, ModelOptions};
use nxd::planner::Partition;
use nxd::{
    AdamwOptions, Ddp, DdpOptions, Device, FinishOptions, ModelPipeline, Optimizer,
    ParallelOptions, PipelineOptions, Status,
};
use std::cell::RefCell;
use std::rc::Rc;

#[test]
fn a_model_in_stages() {
    let losses = on_ranks(2, |ctx| {
        let layout = ParallelOptions { pipeline_parallel_size: 2, ..Default::default() };
        ctx.init_model_parallel(&layout)?;
        let options = ModelOptions { device: Device::META, ..Default::default() };
        let model = model::from_config(&ctx, CONFIG, &options)?;
        let ids = ids()?;
        let inputs = [Some(&*ids), Some(&*ids)];
        let asked = Rc::new(RefCell::new(Vec::new()));
        let seen = asked.clone();
        let options = PipelineOptions {
            num_microbatches: 2,
            broadcast_and_average_loss: true,
            pipeline_cuts: vec!["model.layers.0".into()],
            loss_path: Some("loss"),
            num_outputs: 2,
            leaf_rule: Some(Box::new(move |_, path, leaf| {
                seen.borrow_mut().push(path.to_string());
                Ok(leaf)
            })),
            ..Default::default()
        };
        let mut pipeline = ModelPipeline::create(&model, &inputs, options)?;
        assert!(!asked.borrow().is_empty());
        assert_eq!(pipeline.cuts()?, ["model.layers.0"]);
        assert_eq!(pipeline.output_paths()?, ["loss", "logits"]);
        assert_eq!(model.output_paths()?, ["loss", "logits"]);
        let near = PipelineOptions { loss_path: Some("losss"), ..Default::default() };
        let near = ModelPipeline::create(&model, &inputs, near).map(drop).unwrap_err();
        assert!(near.message().contains("near names: loss"), "{}", near);
        let fewer = PipelineOptions { num_microbatches: -2, ..Default::default() };
        let fewer = ModelPipeline::create(&model, &inputs, fewer).map(drop).unwrap_err();
        assert!(fewer.message().contains("expected at least 1, got -2"), "{}", fewer);
        // Texts that are none on one rank are an error of both.
        let text = |bad| if ctx.rank().unwrap() == bad { "la\0bels" } else { "labels" };
        let cuts = vec![text(1).to_string()];
        let none = PipelineOptions { pipeline_cuts: cuts, ..Default::default() };
        let none = ModelPipeline::create(&model, &inputs, none).map(drop).unwrap_err();
        assert_eq!(none.status(), Status::INVALID_ARGUMENT, "{}", none);
        let named = [(text(0), &*ids), ("input_ids", &*ids)];
        let none = pipeline.train_named(&named).unwrap_err();
        assert_eq!(none.status(), Status::INVALID_ARGUMENT, "{}", none);
        let none = pipeline.evaluate_named(&named, 0).map(drop).unwrap_err();
        assert_eq!(none.status(), Status::INVALID_ARGUMENT, "{}", none);
        assert!(pipeline.graph_text()?.contains("model.layers.1"));
        assert!(!pipeline.local_module_names()?.is_empty());
        assert_eq!(pipeline.pipeline().has_loss()?, ctx.rank()? == 1);
        let ddp = Ddp::over_module(pipeline.local_module()?, &DdpOptions::default())?;
        assert!(pipeline.set_ddp(Some(ddp))?.is_none());
        let adamw = AdamwOptions { learning_rate: 0.01, ..Default::default() };
        let mut optimizer = Optimizer::adamw(pipeline.ddp().unwrap(), &adamw)?;
        let mut losses = Vec::new();
        for _ in 0..3 {
            pipeline.local_module()?.zero_grad()?;
            let named = [("labels", &*ids), ("input_ids", &*ids)];
            losses.push(pipeline.train_named(&named)?);
            optimizer.step(&FinishOptions { max_norm: 1.0, ..Default::default() })?;
        }
        let (_, outputs) = pipeline.evaluate(&inputs, 1)?;
        assert_eq!(outputs[0].is_some(), ctx.rank()? == 1);
        let near = pipeline.evaluate_named(&[("input_id", &*ids)], 0).map(drop).unwrap_err();
        assert!(near.message().contains("input_ids"), "{}", near);
        assert!(pipeline.set_ddp(None)?.is_some());
        assert!(pipeline.unsplit_names()?.len() < 100);
        ctx.finalize()?;
        Ok(losses)
    });
    assert_eq!(losses[0], losses[1]);
    assert!(losses[0][2] < losses[0][0], "{:?}", losses[0]);
}

#[test]
fn first_values_of_ones_own() {
    on_ranks(2, |ctx| {
        let layout = ParallelOptions { pipeline_parallel_size: 2, ..Default::default() };
        ctx.init_model_parallel(&layout)?;
        let options = ModelOptions { device: Device::META, ..Default::default() };
        let model = model::from_config(&ctx, CONFIG, &options)?;
        let ids = ids()?;
        let inputs = [Some(&*ids), Some(&*ids)];
        let names = RefCell::new(Vec::new());
        let ones = |_: &nxd::Parameter, name: &str, tensor: &nxd::Tensor| {
            names.borrow_mut().push(name.to_string());
            tensor.copy_from(&vec![1f32; tensor.element_count()?])
        };
        let options = PipelineOptions {
            num_microbatches: 2,
            return_mb_loss: true,
            param_init: Some(&ones),
            ..Default::default()
        };
        let mut pipeline = ModelPipeline::create(&model, &inputs, options)?;
        let local = pipeline.local_module()?;
        assert_eq!(local.parameter_count()?, names.borrow().len());
        let (_, first) = local.parameters()?[0].clone();
        assert!(first.tensor()?.to_vec::<f32>()?.iter().all(|&w| w == 1.0));
        pipeline.train(&inputs)?;
        let expected = if ctx.rank()? == 1 { 2 } else { 0 };
        assert_eq!(pipeline.losses().map_or(0, |losses| losses.len()), expected);
        let bad = PipelineOptions { num_microbatches: 3, ..Default::default() };
        assert!(ModelPipeline::create(&model, &inputs, bad).is_err());
        ctx.finalize()
    });
}

#[test]
fn bad_options_are_told_to_all_that_count_costs() {
    on_ranks(2, |ctx| {
        let layout = ParallelOptions { tensor_parallel_size: 2, ..Default::default() };
        ctx.init_model_parallel(&layout)?;
        let options = ModelOptions { device: Device::META, ..Default::default() };
        let model = model::from_config(&ctx, CONFIG, &options)?;
        let ids = ids()?;
        let options = PipelineOptions {
            num_microbatches: 2,
            virtual_size: 2,
            partition: Partition::COST,
            loss_path: Some(if ctx.rank()? == 1 { "lo\0ss" } else { "loss" }),
            ..Default::default()
        };
        let inputs = [Some(&*ids), Some(&*ids)];
        let none = ModelPipeline::create(&model, &inputs, options).map(drop).unwrap_err();
        assert_eq!(none.status(), Status::INVALID_ARGUMENT, "{}", none);
        ctx.finalize()
    });
}
