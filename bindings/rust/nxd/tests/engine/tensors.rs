use nxd::{DType, Device, Op, Status, Tensor};

#[test]
fn elements_go_in_and_out() {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    assert_eq!((x.shape().unwrap(), x.strides().unwrap()), (vec![2, 3], vec![3, 1]));
    assert_eq!((x.ndim().unwrap(), x.dtype().unwrap()), (2, DType::F32));
    assert_eq!((x.device().unwrap(), x.element_count().unwrap()), (Device::CPU, 6));
    let t = Op::call("t", &[&*x]).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    x.copy_from(&[0.5f32; 6]).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), [0.5; 6], "one storage");
    assert_eq!(x.to_vec::<f64>().unwrap_err().status(), Status::INVALID_ARGUMENT);
    assert_eq!(x.copy_from(&[0f32; 5]).unwrap_err().status(), Status::INVALID_ARGUMENT);
    assert_eq!(Tensor::scalar(2.5f64).unwrap().item().unwrap(), 2.5);
    assert!(x.item().is_err());
    let zeros = Tensor::zeros(&[0, 4], DType::I64, Device::CPU).unwrap();
    assert!(zeros.to_vec::<i64>().unwrap().is_empty());
    assert_eq!(format!("{:?}", *x), "Tensor F32 [2, 3]");
    let meta = Tensor::zeros(&[2], DType::F32, Device::META).unwrap();
    assert!(meta.to_vec::<f32>().is_err());
}

#[test]
fn vectors_are_taken_over() {
    let data = vec![1i64, 2, 3, 4];
    let at = data.as_ptr();
    let x = Tensor::from_vec(data, &[4]).unwrap();
    // Nothing else uses it meanwhile.
    assert_eq!(unsafe { x.slice::<i64>().unwrap() }.as_ptr(), at);
    unsafe { x.slice_mut::<i64>().unwrap()[0] = 9 };
    x.mark_modified().unwrap();
    let alias = x.retain().unwrap();
    drop(x);
    assert_eq!(alias.to_vec::<i64>().unwrap(), [9, 2, 3, 4]);
    let error = Tensor::from_vec(vec![0u8; 3], &[2, 2]).unwrap_err();
    assert!(error.message().contains("expected 4 elements"), "{}", error);
    let t = Op::call("t", &[&*Tensor::from_vec(vec![0f32; 6], &[2, 3]).unwrap()]).unwrap();
    assert!(unsafe { t.slice::<f32>() }.is_err(), "not contiguous");
}

#[test]
fn dlpack_both_ways() {
    let x = Tensor::from_vec(vec![1f32, 2.0], &[2]).unwrap();
    let lent = x.to_dlpack().unwrap();
    assert_eq!((lent.tensor().ndim, lent.tensor().dtype.bits), (1, 32));
    let copy = unsafe { Tensor::copy_dltensor(lent.tensor()).unwrap() };
    let same = unsafe { Tensor::from_dlpack(x.to_dlpack().unwrap().into_raw()).unwrap() };
    x.copy_from(&[3f32, 4.0]).unwrap();
    drop(x);
    assert_eq!(same.to_vec::<f32>().unwrap(), [3.0, 4.0]);
    assert_eq!(copy.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn operators_by_name() {
    let x = Tensor::from_slice(&[1f32, 3.0, 2.0, 0.0], &[2, 2]).unwrap();
    let sum = Op::new("sum", "dim_IntList").unwrap();
    assert!(sum.schema().unwrap().starts_with("aten::sum.dim_IntList(Tensor self"));
    sum.set("self", &*x).unwrap().set("dim", &[1i64][..]).unwrap().set("keepdim", true).unwrap();
    let y = sum.run().unwrap().tensor(0).unwrap();
    assert_eq!((y.to_vec::<f32>().unwrap(), y.shape().unwrap()), (vec![4.0, 2.0], vec![2, 1]));
    let both = Op::call_overload("sort", "", &[&*x], 2).unwrap();
    assert_eq!(both[1].to_vec::<i64>().unwrap(), [0, 1, 1, 0]);
    let cat = Op::new("cat", "").unwrap();
    cat.set("tensors", &[&*x, &*x][..]).unwrap().set("dim", 1).unwrap().run().unwrap();
    assert_eq!(cat.tensor(0).unwrap().shape().unwrap(), [2, 4]);
    let column = Tensor::from_slice(&[1i64], &[1]).unwrap();
    let index = Op::new("index", "Tensor").unwrap();
    index.set("self", &*x).unwrap().set("indices", &[None, Some(&*column)][..]).unwrap();
    index.run().unwrap();
    assert_eq!(index.tensor(0).unwrap().to_vec::<f32>().unwrap(), [3.0, 0.0]);
    let gelu = Op::new("gelu", "").unwrap();
    gelu.set("self", &*x).unwrap().set("approximate", "tanh").unwrap().run().unwrap();
    assert_eq!(gelu.result_count().unwrap(), 1);
    let cut = gelu.set("approximate", "tanh\0none").map(drop).unwrap_err();
    assert_eq!(cut.status(), Status::INVALID_ARGUMENT);
    let norm = Op::new("native_layer_norm_backward", "").unwrap();
    let rows = Tensor::from_slice(&[1f32, 1.0], &[2, 1]).unwrap();
    for (name, value) in [("grad_out", &x), ("input", &x), ("mean", &rows), ("rstd", &rows)] {
        norm.set(name, value).unwrap();
    }
    norm.set("weight", None::<&Tensor>).unwrap().set("bias", None::<&Tensor>).unwrap();
    norm.set("normalized_shape", &[2i64][..]).unwrap();
    norm.set("output_mask", &[1i64, 0, 0][..]).unwrap().run().unwrap();
    assert!(norm.maybe_tensor(0).unwrap().is_some() && norm.maybe_tensor(1).unwrap().is_none());
    assert!(norm.tensor(2).unwrap_err().message().contains("leaves result 2 out"));
    let near = Op::new("softmaxx", "").unwrap_err();
    assert!(near.message().contains("softmax"), "{}", near);
    assert_eq!(gelu.set("nothing", 1).map(drop).unwrap_err().status(), Status::INVALID_ARGUMENT);
    let all = Op::new("equal", "").unwrap();
    all.set("self", &*x).unwrap().set("other", &*x).unwrap();
    assert_eq!(all.run().unwrap().number(0).unwrap(), 1.0);
}

#[test]
fn where_memory_comes_from() {
    let on = nxd::aten_pool().unwrap();
    nxd::set_aten_pool(!on).unwrap();
    assert_eq!(nxd::aten_pool().unwrap(), !on);
    nxd::set_aten_pool(on).unwrap();
}
