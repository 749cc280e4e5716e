use nxd::{backward, grad, with_autocast, with_grad, DType, Error, Function, Op, Status, Tensor};

fn leaf(values: &[f32]) -> nxd::Owned<Tensor> {
    let x = Tensor::from_slice(values, &[values.len() as i64]).unwrap();
    x.set_requires_grad(true).unwrap();
    x
}

#[test]
fn gradients_of_operators() {
    let x = leaf(&[1.0, -2.0]);
    let y = Op::call("square", &[&*x]).unwrap();
    let sum = Op::call("sum", &[&*y]).unwrap();
    let grads = grad(&[&*sum], &[], &[&*x], true).unwrap();
    assert_eq!(grads[0].as_ref().unwrap().to_vec::<f32>().unwrap(), [2.0, -4.0]);
    assert!(x.grad().unwrap().is_none());
    sum.backward().unwrap();
    assert_eq!(x.grad().unwrap().unwrap().to_vec::<f32>().unwrap(), [2.0, -4.0]);
    assert_eq!(sum.backward().unwrap_err().status(), Status::INVALID_STATE);
    x.set_grad(None).unwrap();
    assert!(x.grad().unwrap().is_none());
    let weights = Tensor::from_slice(&[10f32, 1.0], &[2]).unwrap();
    backward(&[&*Op::call("square", &[&*x]).unwrap()], &[Some(&weights)], false).unwrap();
    assert_eq!(x.grad().unwrap().unwrap().to_vec::<f32>().unwrap(), [20.0, -4.0]);
    assert!(backward(&[&*y], &[None, None], false).is_err());
    assert!(!x.detach().unwrap().requires_grad().unwrap());
}

#[test]
fn recording_and_casts_are_scoped() {
    let x = leaf(&[1.0]);
    let y = with_grad(false, || Op::call("square", &[&*x])).unwrap();
    assert!(!y.requires_grad().unwrap());
    assert!(with_grad(false, || Err::<(), _>(Error::user("out"))).is_err());
    assert!(Op::call("square", &[&*x]).unwrap().requires_grad().unwrap(), "restored");
    let m = Tensor::from_slice(&[1f32; 4], &[2, 2]).unwrap();
    let product = with_autocast(DType::BF16, || Op::call("mm", &[&*m, &*m])).unwrap();
    assert_eq!(product.dtype().unwrap(), DType::BF16);
    assert_eq!(Op::call("mm", &[&*m, &*m]).unwrap().dtype().unwrap(), DType::F32);
    assert!(with_autocast(DType::I64, || Ok(())).is_err());
}

#[test]
fn functions_of_closures() {
    let double = Function::builder("test::double", |call, inputs| {
        call.save(inputs.get(0)?)?;
        assert!(call.needs_grad(0)?);
        let twice = inputs.get(0)?.to_vec::<f32>()?.iter().map(|x| 2.0 * x).collect();
        Ok(vec![Tensor::from_vec::<f32>(twice, &[2])?])
    })
    .backward(|call, grads| {
        assert_eq!(call.saved(0)?.to_vec::<f32>()?, [1.0, -2.0]);
        assert!(call.saved(1).is_err());
        let twice = grads.get(0)?.to_vec::<f32>()?.iter().map(|g| 2.0 * g).collect();
        Ok(vec![Some(Tensor::from_vec::<f32>(twice, &[2])?)])
    })
    .build()
    .unwrap();
    let x = leaf(&[1.0, -2.0]);
    let y = double.apply(&[&*x], 1).unwrap().remove(0);
    // The recorded graph keeps what it needs.
    drop(double);
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, -4.0]);
    Op::call("sum", &[&*y]).unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().unwrap().to_vec::<f32>().unwrap(), [2.0, 2.0]);
}

#[test]
fn functions_that_fail() {
    let wrong = Function::builder("test::wrong", |_, _| Ok(vec![])).build().unwrap();
    let x = leaf(&[1.0]);
    let error = wrong.apply(&[&*x], 1).unwrap_err();
    assert!(error.message().contains("expected 1 outputs of the closure, got 0"), "{}", error);
    let fails = Function::builder("test::fails", |_, inputs| {
        Ok(vec![inputs.get(0)?.retain()?, inputs.get(1)?.retain()?])
    })
    .outputs(2)
    .build()
    .unwrap();
    let error = fails.apply(&[&*x], 2).unwrap_err();
    assert!(error.message().contains("expected at least 2 inputs, got 1"), "{}", error);
    let panics =
        Function::builder("test::panics", |_, inputs| Ok(vec![inputs.get(0)?.retain()?]))
            .backward(|_, _| panic!("no slope"))
            .build()
            .unwrap();
    let y = panics.apply(&[&*x], 1).unwrap().remove(0);
    let run = std::panic::AssertUnwindSafe(|| Op::call("sum", &[&*y])?.backward());
    let panic = std::panic::catch_unwind(run).unwrap_err();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "no slope");
    assert!(Function::builder("a\0b", |_, _| Ok(vec![])).build().is_err());
}
