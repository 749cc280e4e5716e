use crate::common::{alone, on_ranks};
use nxd::layers::{self, LinearOptions, Toggle};
use nxd::{
    functional, parameter_options, save, serialization_load, serialization_save,
    with_deferred_init, Context, DType, Device, Error, Init, Mismatch, Module, Op, Owned,
    ParallelOptions, Result, SaveOptions, Shard, Status, Tensor,
};
use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::rc::Rc;

fn tensor_parallel(ctx: &Context) -> Result<()> {
    let layout = ParallelOptions { tensor_parallel_size: ctx.size()?, ..Default::default() };
    ctx.init_model_parallel(&layout)
}

/// y = x w^T by plain operators, with a parameter of its own.
fn plain_linear(ctx: &Context) -> Result<Owned<Module>> {
    let module = Module::create(ctx, "PlainLinear", |this, inputs, _| {
        let w = this.parameter("w")?.tensor()?;
        Ok(vec![Op::call("linear", &[inputs.get(0)?, &*w])?])
    })?;
    module.add_parameter("w", &[3, 2], &parameter_options(DType::F32, None, Init::NORMAL))?;
    Ok(module)
}

#[test]
fn forwards_are_closures() {
    let ctx = alone();
    tensor_parallel(&ctx).unwrap();
    let module = plain_linear(&ctx).unwrap();
    assert_eq!(module.class_name().unwrap(), "PlainLinear");
    let w = module.parameter("w").unwrap();
    w.set_full(&Tensor::from_slice(&[1f32, 0.0, 0.0, 1.0, 1.0, 1.0], &[3, 2]).unwrap()).unwrap();
    let x = Tensor::from_slice(&[2f32, 5.0], &[1, 2]).unwrap();
    let y = module.forward(&[&*x]).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 5.0, 7.0]);
    Op::call("sum", &[&*y]).unwrap().backward().unwrap();
    let grad = w.tensor().unwrap().grad().unwrap().unwrap();
    assert_eq!(grad.to_vec::<f32>().unwrap(), [2.0, 5.0, 2.0, 5.0, 2.0, 5.0]);
    module.zero_grad().unwrap();
    assert!(w.tensor().unwrap().grad().unwrap().is_none());

    let (outputs, tape) = module.forward_tape(&[Some(&x)], 1).unwrap();
    let ones = Tensor::from_slice(&[1f32; 3], &[1, 3]).unwrap();
    let grads = tape.backward(&[Some(&ones)], 1).unwrap();
    assert_eq!(grads[0].as_ref().unwrap().to_vec::<f32>().unwrap(), [2.0, 2.0]);
    assert_eq!(outputs[0].shape().unwrap(), [1, 3]);
    assert_eq!(tape.backward(&[None], 1).unwrap_err().status(), Status::INVALID_STATE);
}

#[test]
fn forwards_that_fail_or_panic() {
    let ctx = alone();
    let outer = Module::create(&ctx, "Outer", |this, inputs, n| {
        this.module("inner")?.forward_all(&[inputs.optional(0)], n)
    })
    .unwrap();
    let panics = Rc::new(Cell::new(false));
    let seen = panics.clone();
    let inner = Module::create(&ctx, "Inner", move |_, inputs, _| {
        assert!(!seen.get(), "inside out");
        inputs.get(0)?;
        Err(Error::user("not today"))
    })
    .unwrap();
    outer.add_child("inner", &inner).unwrap();
    let x = Tensor::scalar(1f32).unwrap();
    let error = outer.forward(&[&*x]).unwrap_err();
    assert_eq!(error.status(), Status::USER);
    assert!(error.message().contains("not today"), "{}", error);
    let error = outer.forward_all(&[None], 1).unwrap_err();
    assert!(error.message().contains("input 0 was left out"), "{}", error);
    panics.set(true);
    let run = std::panic::AssertUnwindSafe(|| outer.forward(&[&*x]));
    let panic = std::panic::catch_unwind(run).unwrap_err();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "inside out");
    panics.set(false);
    assert_eq!(outer.forward(&[&*x]).unwrap_err().status(), Status::USER, "usable as before");
}

#[test]
fn closures_are_dropped_with_their_module() {
    let ctx = alone();
    let kept = Rc::new(());
    let held = kept.clone();
    let module = Module::create(&ctx, "Holder", move |_, _, _| {
        let _ = &held;
        Ok(vec![])
    })
    .unwrap();
    let parent = Module::container(&ctx, "Parent").unwrap();
    parent.add_child("child", &module).unwrap();
    drop(module);
    assert_eq!(Rc::strong_count(&kept), 2);
    assert!(parent.add_child("child", &Module::container(&ctx, "Other").unwrap()).is_err());
    drop(parent);
    drop(ctx);
    assert_eq!(Rc::strong_count(&kept), 1);
    // Not taken over by a call that fails.
    let (ctx, held) = (alone(), kept.clone());
    let failed = Module::create(&ctx, "No\0name", move |_, _, _| {
        let _ = &held;
        Ok(vec![])
    });
    assert!(failed.is_err());
    assert_eq!(Rc::strong_count(&kept), 1);
}

#[test]
fn trees_and_parameters() {
    on_ranks(2, |ctx| {
        tensor_parallel(&ctx)?;
        let root = Module::container(&ctx, "Root")?;
        let options =
            LinearOptions { name: "up", gather_output: Toggle::OFF, ..Default::default() };
        root.add_child("up", &*layers::column_parallel_linear(&ctx, 4, 6, &options)?)?;
        let row = LinearOptions { input_is_parallel: 1, ..Default::default() };
        root.add_child("down", &*layers::row_parallel_linear(&ctx, 6, 4, &row)?)?;
        let names: Vec<String> = root.parameters()?.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["up.weight", "up.bias", "down.weight", "down.bias"]);
        let children = root.children()?;
        assert_eq!(children[1].0, "down");
        assert_eq!(children[1].1.class_name()?, "RowParallelLinear");
        assert_eq!(root.module("up")?.class_name()?, "ColumnParallelLinear");
        let weight = root.parameter("up.weight")?;
        let begin = 3 * i64::from(ctx.rank()?);
        let Shard { dim, ranges } = weight.shard()?;
        assert_eq!((dim, ranges.len(), ranges[0].clone()), (Some(0), 1, begin..begin + 3));
        assert_eq!(weight.global_shape()?, [6, 4]);
        assert_eq!(weight.tensor()?.shape()?, [3, 4]);
        assert_eq!(weight.gather_full()?.shape()?, [6, 4]);
        assert!(weight.gather_full_grad()?.is_none());
        let near = root.parameter("up.weigth").map(drop).unwrap_err();
        assert!(near.message().contains("up.weight"), "{}", near);

        let hooks = Rc::new(Cell::new(0));
        let count = hooks.clone();
        weight.set_grad_hook(move |p| {
            assert_eq!(p.global_shape()?, [6, 4]);
            count.set(count.get() + 1);
            Ok(())
        })?;
        let x = Tensor::from_slice(&[1f32; 8], &[2, 4])?;
        let y = root.module("down")?.forward(&[&*root.module("up")?.forward(&[&*x])?])?;
        Op::call("sum", &[&*y])?.backward()?;
        assert_eq!(hooks.get(), 1);
        weight.remove_grad_hook()?;
        assert_eq!(Rc::strong_count(&hooks), 1);

        // A hook that removes itself lives until it has returned.
        let (again, text) = (hooks.clone(), "of the hook".to_string());
        weight.set_grad_hook(move |p| {
            p.remove_grad_hook()?;
            assert_eq!((Rc::strong_count(&again), &*text), (2, "of the hook"));
            again.set(again.get() + 1);
            Ok(())
        })?;
        for _ in 0..2 {
            let y = root.module("down")?.forward(&[&*root.module("up")?.forward(&[&*x])?])?;
            Op::call("sum", &[&*y])?.backward()?;
        }
        assert_eq!((hooks.get(), Rc::strong_count(&hooks)), (2, 1));
        assert_eq!(weight.gather_full_grad()?.unwrap().shape()?, [6, 4]);

        let path = std::env::temp_dir().join(format!("nxd-weights-{}", std::process::id()));
        let path = path.to_str().unwrap();
        let before = weight.gather_full()?.to_vec::<f32>()?;
        root.save_safetensors(path)?;
        root.initialize(77)?;
        assert_ne!(weight.gather_full()?.to_vec::<f32>()?, before);
        assert!(root.load_safetensors(path, true)?.names(Mismatch::MISSING)?.is_empty());
        assert_eq!(weight.gather_full()?.to_vec::<f32>()?, before);
        let other = plain_linear(&ctx)?;
        assert!(other.load_safetensors(path, true).is_err());
        let report = other.load_safetensors(path, false)?;
        assert_eq!(report.names(Mismatch::MISSING)?, ["w"]);
        assert_eq!(report.names(Mismatch::UNEXPECTED)?.len(), 4);
        ctx.world_group()?.barrier()?;
        if ctx.rank()? == 0 {
            std::fs::remove_file(path)?;
        }
        weight.set_trainable(false)?;
        root.set_training(false)?;
        root.move_to(Device::META)?;
        ctx.finalize()
    });
}

#[test]
fn every_layer() {
    let ctx = alone();
    tensor_parallel(&ctx).unwrap();
    let x = Tensor::from_slice(&[0.5f32; 2 * 4 * 8], &[2, 4, 8]).unwrap();
    let rope = layers::RopeOptions::default();
    let made = [
        layers::layer_norm(&ctx, 8, &Default::default()),
        layers::rms_norm(&ctx, 8, &Default::default()),
        layers::gated_mlp(&ctx, 8, 16, &Default::default()),
        layers::attention(&ctx, 8, 2, &Default::default(), Some(&rope)),
        layers::attention(&ctx, 8, 2, &Default::default(), None),
        layers::dropout(&ctx, 0.5, "drop", None),
    ];
    for layer in made {
        assert_eq!(layer.unwrap().forward(&[&*x]).unwrap().shape().unwrap(), [2, 4, 8]);
    }
    let options = layers::QkvOptions {
        num_kv_heads: 1,
        fusion: layers::QkvFusion::BY_HEAD,
        ..Default::default()
    };
    let qkv = layers::qkv_linear(&ctx, 8, 2, &options).unwrap();
    let shapes: Vec<_> = qkv
        .forward_all(&[Some(&*x)], 3)
        .unwrap()
        .iter()
        .map(|part| part.shape().unwrap())
        .collect();
    assert_eq!(shapes, [[2, 4, 2, 4], [2, 4, 1, 4], [2, 4, 1, 4]]);
    qkv.cast(DType::F64).unwrap();
    assert!(qkv.forward(&[&*x]).is_err());
    let heads = Tensor::from_slice(&[0.5f32; 64], &[2, 4, 2, 4]).unwrap();
    let rotary = layers::rotary_embedding(&ctx, 4, &rope).unwrap();
    assert_eq!(rotary.forward(&[&*heads]).unwrap().shape().unwrap(), [2, 4, 2, 4]);
    let table = layers::parallel_embedding(&ctx, 10, 8, &Default::default()).unwrap();
    let ids = Tensor::from_slice(&[1i64, 9], &[2]).unwrap();
    assert_eq!(table.forward(&[&*ids]).unwrap().shape().unwrap(), [2, 8]);
    assert!(layers::dropout(&ctx, 1.5, "drop", None).is_err());
    let beyond = layers::dropout(&ctx, 0.5, "drop", Some(1 << 32)).unwrap();
    assert_eq!(beyond.forward(&[&*x]).unwrap_err().status(), Status::INVALID_ARGUMENT);
    let beyond = parameter_options(DType::F32, Some(1 << 32), Init::NORMAL);
    assert!(Module::container(&ctx, "Own").unwrap().add_parameter("w", &[3, 2], &beyond).is_err());
    let tied = Module::container(&ctx, "Tied").unwrap();
    tied.add_child("embed", &table).unwrap();
    let bare = LinearOptions { bias: Toggle::OFF, ..Default::default() };
    let head = layers::column_parallel_linear(&ctx, 8, 10, &bare).unwrap();
    tied.add_child("head", &head).unwrap();
    let lent = tied.parameter("head.weight").unwrap();
    tied.tie("embed.weight", "head.weight").unwrap();
    assert_eq!(tied.parameter_count().unwrap(), 1);
    let owner = tied.parameter("embed.weight").unwrap().tensor().unwrap();
    owner.detach().unwrap().copy_from(&[0.5f32; 80]).unwrap();
    assert_eq!(lent.tensor().unwrap().to_vec::<f32>().unwrap(), [0.5; 80]);
}

#[test]
fn regions_and_losses() {
    on_ranks(2, |ctx| {
        tensor_parallel(&ctx)?;
        let rank = ctx.rank()?;
        let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[2, 2])?;
        assert_eq!(functional::copy_to_tensor_region(&ctx, &x)?.shape()?, [2, 2]);
        assert_eq!(
            functional::reduce_from_tensor_region(&ctx, &x)?.to_vec::<f32>()?,
            [2.0, 4.0, 6.0, 8.0]
        );
        let mine = functional::scatter_to_tensor_region(&ctx, &x)?;
        assert_eq!(mine.to_vec::<f32>()?, [1.0 + rank as f32, 3.0 + rank as f32]);
        assert_eq!(
            functional::gather_from_tensor_region(&ctx, &mine)?.to_vec::<f32>()?,
            [1.0, 2.0, 3.0, 4.0]
        );
        let row = functional::scatter_to_sequence_region(&ctx, &x, 0)?;
        assert_eq!(row.shape()?, [1, 2]);
        assert_eq!(functional::gather_from_sequence_region(&ctx, &row, 0, true)?.shape()?, [2, 2]);
        assert_eq!(functional::reduce_scatter_to_sequence_region(&ctx, &x, 0)?.shape()?, [1, 2]);
        let labels = Tensor::from_slice(&[0i64, 3], &[2])?;
        let zeros = Tensor::from_slice(&[0f32; 4], &[2, 2])?;
        let loss = functional::parallel_cross_entropy(&ctx, &zeros, &labels, &Default::default())?;
        assert!((loss.item()? - 4f64.ln()).abs() < 1e-6);
        let none = Default::default();
        let loss = functional::linear_cross_entropy(&ctx, &x, &zeros, &labels, None, &none)?;
        assert!((loss.item()? - 4f64.ln()).abs() < 1e-6);
        ctx.finalize()
    });
}

#[test]
fn buffers_and_torchscript() {
    let ctx = alone();
    let root = Module::create(&ctx, "Root", |_, _, _| Ok(Vec::new())).unwrap();
    let mean = Tensor::from_slice(&[0f32, 1.0, 2.0], &[3]).unwrap();
    root.add_buffer("mean", &mean, true).unwrap();
    let again = root.add_buffer("mean", &mean, false).unwrap_err();
    assert_eq!(again.status(), Status::INVALID_ARGUMENT);
    assert_eq!(root.buffer_names().unwrap(), ["mean"]);
    assert_eq!(root.buffer("mean").unwrap().to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0]);
    let missing = nxd::model::from_torchscript(&ctx, "/nowhere/module.pt").unwrap_err();
    assert_eq!(missing.status(), Status::IO);
    let other = nxd::model::save_torchscript(&root, "/nowhere/module.pt").unwrap_err();
    assert_eq!(other.status(), Status::INVALID_ARGUMENT);
}

#[test]
fn initial_values_by_place() {
    let ctx = alone();
    tensor_parallel(&ctx).unwrap();
    let net = with_deferred_init(|| {
        let first = layers::linear(&ctx, 4, 3, &LinearOptions::default())?;
        let second = layers::linear(&ctx, 3, 2, &LinearOptions::default())?;
        Module::sequential(&ctx, &[&first, &second])
    })
    .unwrap();
    let x = Tensor::from_slice(&[1f32; 8], &[2, 4]).unwrap();
    let refused = net.forward(&[&*x]).map(drop).unwrap_err();
    assert_eq!(refused.status(), Status::INVALID_STATE);
    let kept = Rc::new(());
    let token = kept.clone();
    net.set_initializer(move |_, shape, first, values| {
        let _ = &token;
        assert!(first as usize + values.len() <= shape.iter().product::<i64>() as usize);
        values.iter_mut().enumerate().for_each(|(i, value)| *value = first as f64 + i as f64);
        Ok(())
    })
    .unwrap();
    net.parameter("1.bias").unwrap().remove_initializer().unwrap();
    net.move_to(Device::CPU).unwrap();
    let weight = net.parameter("0.weight").unwrap();
    let expected: Vec<f32> = (0..12).map(|i| i as f32).collect();
    assert_eq!(weight.tensor().unwrap().to_vec::<f32>().unwrap(), expected);
    assert_eq!(net.forward(&[&*x]).unwrap().shape().unwrap(), [2, 2]);
    weight.set_initializer(|_, _, _, _| Err(Error::user("no values"))).unwrap();
    assert!(net.initialize(3).is_err());
    drop(net);
    assert_eq!(Rc::strong_count(&kept), 1);
}

#[test]
fn heads_that_ranks_do_not_divide() {
    assert_eq!(layers::number_of_extra_heads(25, 8).unwrap(), 7);
    assert!(layers::number_of_extra_heads(0, 8).is_err());
    on_ranks(2, |ctx| {
        tensor_parallel(&ctx)?;
        let split = LinearOptions {
            gather_output: Toggle::OFF,
            input_is_parallel: 1,
            pad: 1,
            ..Default::default()
        };
        let column = layers::column_parallel_linear(&ctx, 4, 9, &split)?;
        let row = layers::row_parallel_linear(&ctx, 9, 4, &split)?;
        let net = Module::sequential(&ctx, &[&column, &row])?;
        let x = Tensor::from_slice(&[0.5f32; 8], &[2, 4])?;
        let before = net.forward(&[&*x])?.to_vec::<f32>()?;
        let refused = net.pad(2, 3, &["Nothing"], |_, _, _| Ok(())).unwrap_err();
        assert_eq!(refused.status(), Status::INVALID_ARGUMENT);
        let class = if ctx.rank()? == 0 { "Sequ\0ential" } else { "Sequential" };
        let refused = net.pad(2, 3, &[class], |_, _, _| Ok(())).unwrap_err();
        assert_eq!(refused.status(), Status::INVALID_ARGUMENT, "{}", refused);
        let broken = net.pad(2, 3, &[], |_, _, _| Err(Error::user("no heads"))).unwrap_err();
        assert_eq!(broken.status(), Status::USER);
        let mut seen = Vec::new();
        net.pad(2, 3, &[], |module, heads, padded| {
            seen.push((module.class_name()?, heads, padded));
            Ok(())
        })?;
        assert_eq!(seen.len(), 3);
        assert_eq!(seen[2], ("Sequential".to_string(), 3, 4));
        let weight = net.parameter("0.weight")?;
        assert_eq!(weight.tensor()?.shape()?, [6, 4]);
        assert_eq!(weight.global_shape()?, [9, 4]);
        let after = net.forward(&[&*x])?.to_vec::<f32>()?;
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() < 1e-6));
        Ok(())
    });
}

#[test]
fn files_of_tensors() {
    let ctx = alone();
    // A path as it may be, and in Rust's own types.
    let mut name = OsString::from_vec(b"nxd-rust-\xff-".to_vec());
    name.push(format!("{}.safetensors", std::process::id()));
    let path = &std::env::temp_dir().join(name);
    let a = Tensor::from_slice(&[1f32, 2.0, 3.0], &[3]).unwrap();
    let b = Tensor::from_slice(&[7i64], &[1]).unwrap();
    let options = SaveOptions { texts: &[("epoch", "3")], ..Default::default() };
    save(&ctx, path, &[("b", &b), ("a", &a)], &options).unwrap();
    let at_once = std::fs::read(path).unwrap();
    serialization_save(&ctx, path, &[("b", &b), ("a", &a)], &options).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), at_once);
    let file = serialization_load(path).unwrap();
    assert_eq!(file.names().unwrap(), ["a", "b"]);
    assert_eq!(file.texts().unwrap(), [("epoch".to_string(), "3".to_string())]);
    assert_eq!(file.read("a", Device::CPU).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(file.read("b", Device::CPU).unwrap().to_vec::<i64>().unwrap(), [7]);
    assert_eq!(file.read("c", Device::CPU).unwrap_err().status(), Status::INVALID_ARGUMENT);
    assert_eq!(serialization_load("/nowhere/a").unwrap_err().status(), Status::IO);
    std::fs::remove_file(path).unwrap();
}
