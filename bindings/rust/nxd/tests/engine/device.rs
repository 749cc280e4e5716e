use crate::common::alone;
use nxd::{
    DataLoader, DataLoaderOptions, Device, DeviceLoader, Error, GraphFormat, Op, Status, Tensor,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::channel;

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
    let metrics = nxd::device_metrics().unwrap();
    assert!(metrics.steps >= 1 && metrics.argument_bytes >= 12);
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

#[test]
fn closures_on_a_thread() {
    let (send, receive) = channel();
    nxd::add_step_closure_async(move || {
        send.send(std::thread::current().id()).unwrap();
        Ok(())
    })
    .unwrap();
    nxd::mark_step(false).unwrap();
    nxd::wait_step_closures().unwrap();
    assert_ne!(receive.try_recv().unwrap(), std::thread::current().id());
    nxd::add_step_closure_async(|| Err(Error::user("mine"))).unwrap();
    let failed = nxd::mark_step(true).and_then(|_| nxd::wait_step_closures());
    assert_eq!(failed.unwrap_err().status(), Status::USER);
}

#[test]
fn batches_of_a_closure() {
    let mut made = 0f32;
    let read = move || {
        made += 1.0;
        match made as i32 {
            1 | 3 => Ok(Some(vec![Tensor::from_slice(&[made, 0.5], &[2])?])),
            2 => Err(Error::user("mine")),
            _ => Ok(None),
        }
    };
    let loader = DeviceLoader::from_fn(read, 1, Device::XLA, &Default::default()).unwrap();
    let first = loader.next(1).unwrap().unwrap();
    assert_eq!(first[0].device().unwrap(), Device::XLA);
    assert_eq!(loader.next(1).unwrap_err().status(), Status::USER);
    let third = loader.next(1).unwrap().unwrap();
    assert_eq!(third[0].to_device(Device::CPU).unwrap().to_vec::<f32>().unwrap(), [3.0, 0.5]);
    assert!(loader.next(1).unwrap().is_none());
    assert_eq!(loader.position().unwrap(), 2);
}

/// A panic on a thread of the library's fails its own batch, or step, and nothing after it there.
#[test]
fn a_panic_on_a_thread_is_over() {
    let make = || Tensor::from_slice(&[1f32], &[1]);
    let mut calls = 0;
    let read = move || {
        calls += 1;
        match calls {
            1 => panic!("bad sample"),
            2 | 3 => Ok(Some(vec![make()?])),
            _ => Ok(None),
        }
    };
    let loader = DeviceLoader::from_fn(read, 1, Device::CPU, &Default::default()).unwrap();
    let failed = loader.next(1).err().unwrap();
    assert_eq!(failed.status(), Status::USER);
    assert!(failed.message().contains("panic: bad sample"));
    assert!(loader.next(1).unwrap().is_some() && loader.next(1).unwrap().is_some());
    assert!(loader.next(1).unwrap().is_none());

    let (send, receive) = channel();
    nxd::add_step_closure_async(|| panic!("bad step")).unwrap();
    nxd::add_step_closure_async(move || {
        let made = make().map(|_| ());
        send.send(made.is_ok()).unwrap();
        made
    })
    .unwrap();
    let failed = nxd::mark_step(true).and_then(|_| nxd::wait_step_closures()).unwrap_err();
    assert_eq!(failed.status(), Status::USER);
    assert!(failed.message().contains("panic: bad step"));
    assert_eq!(receive.try_recv(), Ok(true));
    nxd::mark_step(true).and_then(|_| nxd::wait_step_closures()).unwrap();
}

#[test]
fn batches_of_a_data_loader() {
    let path = std::env::temp_dir().join(format!("nxd-{}-device.bin", std::process::id()));
    let bytes: Vec<u8> = (0..64u16).flat_map(|token| token.to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    let ctx = alone();
    let options = DataLoaderOptions { has_seed: 1, seed: 5, ..Default::default() };
    let tokens = DataLoader::open(&ctx, &[&path], 2, 4, &options).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut ids = vec![0; 16];
    tokens.next(&mut ids, None).unwrap();
    tokens.set_position(0).unwrap();
    let loader = DeviceLoader::over(&tokens, Device::XLA, &Default::default()).unwrap();
    let take = || {
        let batch = loader.next(1).unwrap().unwrap();
        batch[0].to_device(Device::CPU).unwrap().to_vec::<i64>().unwrap()
    };
    assert_eq!([take(), take()].concat(), ids);
    loader.set_position(2).unwrap();
    assert_eq!(take(), ids[8..]);
    assert_eq!(tokens.position().unwrap(), 4);
    assert_eq!(tokens.set_position(0).unwrap_err().status(), Status::INVALID_STATE);
    drop(loader);
    assert_eq!(tokens.position().unwrap(), 4);
}
