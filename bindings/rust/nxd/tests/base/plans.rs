use nxd::planner::{
    model_from_config, predict, search, PlanLayout, PlanMachine, PlanSearchOptions,
};
use nxd::Status;

const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4,
  "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 704, "vocab_size": 256,
  "rms_norm_eps": 1e-5, "max_position_embeddings": 256}"#;

#[test]
fn plans() {
    let model = model_from_config(CONFIG).unwrap();
    assert_eq!((model.hidden_size, model.num_layers, model.gated_mlp), (256, 4, 1));
    let layout = PlanLayout { tensor_parallel_size: 2, sequence_length: 128, ..Default::default() };
    let alone = predict(&model, None, &layout).unwrap();
    assert!(alone.step_seconds > 0.0 && alone.total_bytes > 0);
    let slow = PlanMachine { gemm_rate_f32: 1e9, ..Default::default() };
    assert!(predict(&model, Some(&slow), &layout).unwrap().step_seconds > alone.step_seconds);
    let wanted = PlanSearchOptions {
        world_size: 4,
        sequence_length: 128,
        batch_size: 8,
        ..Default::default()
    };
    let found = search(&model, None, &wanted, 3).unwrap();
    assert_eq!(found.len(), 3);
    assert!(found[0].1.step_seconds <= found[1].1.step_seconds);
    assert_eq!(model_from_config("{").unwrap_err().status(), Status::INVALID_ARGUMENT);
    assert_eq!(
        search(&model, None, &Default::default(), 1).unwrap_err().status(),
        Status::INVALID_ARGUMENT
    );
}
