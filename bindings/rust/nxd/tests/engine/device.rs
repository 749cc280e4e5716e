use nxd::{Device, GraphFormat, Op, Status, Tensor};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn a_step_is_one_graph() {
    let x = Tensor::from_slice(&[1.0f32, -2.0, 3.0], &[3]).unwrap();
    let x = x.to_device(Device::XLA).unwrap();
    assert_eq!(x.device().unwrap(), Device::XLA);
    let total = Op::call("sum", &[&*Op::call("relu", &[&*x]).unwrap()]).unwrap();
    let seen = Rc::new(Cell::new(0.0));
    let writes = seen.clone();
    nxd::add_step_closure(move || {
        writes.set(total.item()?);
        Ok(())
    })
    .unwrap();
    assert_eq!(seen.get(), 0.0);
    nxd::mark_step(true).unwrap();
    assert_eq!(seen.get(), 4.0);
    // Other tests' threads count too.
    assert!(nxd::device_metrics().unwrap().steps >= 1);
    assert!(nxd::step_graph(GraphFormat::TEXT).unwrap().contains("aten::relu(f32[3])"));
    assert!(nxd::step_graph(GraphFormat::DOT).unwrap().starts_with("digraph step {"));
    assert!(nxd::device_report().unwrap().contains("executions "));
    assert_eq!(x.to_device(Device::CPU).unwrap().to_vec::<f32>().unwrap(), [1.0, -2.0, 3.0]);
}

#[test]
fn a_closure_fails_the_step() {
    nxd::add_step_closure(|| nxd::Tensor::from_slice(&[0f32; 3], &[2]).map(|_| ())).unwrap();
    assert_eq!(nxd::mark_step(true).unwrap_err().status(), Status::INVALID_ARGUMENT);
    nxd::mark_step(true).unwrap();
    nxd::reset_device_metrics().unwrap();
}
