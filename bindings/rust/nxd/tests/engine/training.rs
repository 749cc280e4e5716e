use crate::common::on_ranks;
use nxd::model::{self, ModelOptions};
use nxd::{
    loss_weights, AdamwOptions, CustomOptions, Ddp, DdpOptions, FinishOptions, Optimizer,
    ParallelOptions, Reduce, Result, SgdOptions, Tensor,
};

pub const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32, "vocab_size": 64,
  "rms_norm_eps": 1e-5, "max_position_embeddings": 32, "initializer_range": 0.02}"#;

pub fn ids() -> Result<nxd::Owned<Tensor>> {
    let ids: Vec<i64> = (0..32).map(|i| i * 7 % 64).collect();
    Tensor::from_slice(&ids, &[4, 8])
}

fn losses(tp: i32, zero_stage: i32) -> Vec<f64> {
    let ranks = on_ranks(2, |ctx| {
        ctx.init_model_parallel(&ParallelOptions {
            tensor_parallel_size: tp,
            ..Default::default()
        })?;
        let model = model::from_config(&ctx, CONFIG, &ModelOptions::default())?;
        assert!(model::step_flops(&model, 4, 8)? > 0.0);
        model.apply_checkpoint(&[], true)?;
        let options = DdpOptions { reduce: Reduce::AVG, zero_stage, ..Default::default() };
        let ddp = Ddp::over_module(&model, &options)?;
        let adamw = AdamwOptions { learning_rate: 0.01, ..Default::default() };
        let mut optimizer = Optimizer::adamw(&ddp, &adamw)?;
        let ids = ids()?;
        let mut losses = Vec::new();
        for _ in 0..3 {
            model.zero_grad()?;
            let loss = model.forward(&[&*ids, &*ids])?;
            loss.backward()?;
            optimizer.step(&FinishOptions { max_norm: 1.0, ..Default::default() })?;
            losses.push(loss.item()?);
        }
        drop((optimizer, ddp, model));
        ctx.finalize()?;
        Ok(losses)
    });
    assert_eq!(ranks[0], ranks[1]);
    ranks.into_iter().next().unwrap()
}

#[test]
fn layouts_train_alike() {
    let tensor = losses(2, 0);
    assert!(tensor[2] < tensor[0], "{:?}", tensor);
    for other in [losses(1, 0), losses(1, 1)] {
        for (a, b) in tensor.iter().zip(other) {
            assert!((a - b).abs() < 1e-4, "{} and {}", a, b);
        }
    }
}

#[test]
fn optimizers_over_modules() {
    on_ranks(2, |ctx| {
        ctx.init_model_parallel(&ParallelOptions {
            tensor_parallel_size: 2,
            ..Default::default()
        })?;
        let ids = ids()?;
        let step =
            |seed: u64, make: &dyn Fn(&nxd::Module) -> Result<Optimizer>| -> Result<Vec<f32>> {
                let model = model::from_config(&ctx, CONFIG, &ModelOptions::default())?;
                model.initialize(seed)?;
                let mut optimizer = make(&model)?;
                model.forward(&[&*ids, &*ids])?.backward()?;
                let norm = model.finish_grads(&FinishOptions::default())?;
                assert!(norm > 0.0);
                optimizer.update()?;
                model.parameter("model.norm.weight")?.gather_full()?.to_vec::<f32>()
            };
        let rate = 0.5;
        let sgd = SgdOptions { learning_rate: rate, ..Default::default() };
        let built_in = step(1, &|model| Optimizer::sgd(model, &sgd))?;
        let own = CustomOptions { learning_rate: rate, ..Default::default() };
        let closure = step(1, &|model| {
            Optimizer::custom(model, &own, |update| {
                let (scale, rate) = (update.grad_scale(), update.learning_rate());
                let a = update.arrays::<f32, f32, f32>()?;
                for (p, &g) in a.param.iter_mut().zip(a.grad) {
                    *p -= (rate * scale) as f32 * g;
                }
                Ok(())
            })
        })?;
        for (a, b) in built_in.iter().zip(&closure) {
            assert!((a - b).abs() < 1e-6, "{} and {}", a, b);
        }
        assert!(built_in.iter().any(|&w| w != 1.0));
        ctx.finalize()
    });
}

#[test]
fn weights_of_losses() {
    on_ranks(2, |ctx| {
        ctx.init_model_parallel(&ParallelOptions::default())?;
        let full = Tensor::from_slice(&[1i64, 2, 3], &[1, 3])?;
        let half = Tensor::from_slice(&[1i64, -100, -100], &[1, 3])?;
        let weights = loss_weights(&ctx, &[Some(&full), Some(&half), None], -100, false)?;
        assert_eq!(weights, [3.0 / 8.0, 1.0 / 8.0, 0.0]);
        ctx.finalize()
    });
}

#[test]
fn refusals() {
    on_ranks(1, |ctx| {
        assert!(model::from_config(&ctx, CONFIG, &ModelOptions::default()).is_err(), "no layout");
        ctx.init_model_parallel(&ParallelOptions::default())?;
        let unknown = CONFIG.replace("llama", "lama");
        let error = model::from_config(&ctx, &unknown, &ModelOptions::default()).unwrap_err();
        assert!(error.message().contains("llama"), "{}", error);
        assert!(model::from_pretrained(&ctx, "/no/such", &ModelOptions::default()).is_err());
        ctx.finalize()
    });
}
