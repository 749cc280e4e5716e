use crate::common::{alone, on_ranks};
use nxd::{
    Chunk, Context, Costs, DType, Error, ParallelOptions, PipelineSchedule, PipelineScheduleKind,
    Result, Stage, StageCall, StageOptions, StagePipeline, Status, Task, TaskKind, Value, View,
    ViewMut,
};

/// y = w x, with the loss y at the end; inputs of the first stage are 1.
struct Scale {
    w: f64,
    grad: f64,
    last: bool,
    fail: Option<i32>,
    panic: bool,
}

impl Scale {
    fn input(inputs: &[View<'_>]) -> Result<f64> {
        inputs.first().map_or(Ok(1.0), |x| Ok(x.slice::<f64>()?[0]))
    }
}

impl Stage for Scale {
    fn forward(
        &mut self,
        call: &StageCall,
        inputs: &[View<'_>],
        outputs: &mut [ViewMut<'_>],
    ) -> Result<Option<f64>> {
        if self.fail == Some(call.microbatch) {
            return Err(Error::user("bad sample"));
        }
        assert!(!self.panic, "no stage");
        let y = self.w * Scale::input(inputs)?;
        match outputs.first_mut() {
            Some(output) => {
                assert_eq!(output.shape(), [1]);
                assert!(output.slice_mut::<f32>().is_err(), "of another type");
                output.slice_mut::<f64>()?[0] = y;
            }
            None => assert!(self.last),
        }
        Ok(if self.last { Some(y) } else { None })
    }

    fn backward(
        &mut self,
        call: &StageCall,
        inputs: &[View<'_>],
        grad_outputs: &[Option<View<'_>>],
        grad_inputs: &mut [Option<ViewMut<'_>>],
    ) -> Result<()> {
        let dy = match grad_outputs.first() {
            Some(Some(grad)) => grad.slice::<f64>()?[0],
            _ => call.loss_weight,
        };
        self.grad += dy * Scale::input(inputs)?;
        if let Some(Some(grad)) = grad_inputs.first_mut() {
            grad.slice_mut::<f64>()?[0] = dy * self.w;
        }
        Ok(())
    }
}

fn make(ctx: &Context, fail: Option<i32>, panic: bool) -> Result<StagePipeline<Scale>> {
    let (rank, ranks) = (ctx.rank()?, ctx.size()?);
    ctx.init_model_parallel(&ParallelOptions {
        pipeline_parallel_size: ranks,
        ..Default::default()
    })?;
    let value = Value { name: "x".into(), shape: vec![1], dtype: DType::F64, needs_grad: true };
    let chunk = Chunk {
        inputs: if rank > 0 { vec![value.clone()] } else { vec![] },
        outputs: if rank + 1 < ranks { vec![value] } else { vec![] },
    };
    let stage = Scale { w: f64::from(rank + 2), grad: 0.0, last: rank + 1 == ranks, fail, panic };
    let options = StageOptions {
        num_microbatches: 4,
        broadcast_and_average_loss: true,
        ..Default::default()
    };
    StagePipeline::create(ctx, &options, &[chunk], stage)
}

#[test]
fn stages_of_ones_own() {
    on_ranks(2, |ctx| {
        let mut pipeline = make(&ctx, None, false)?;
        pipeline.pipeline().set_timeline(true)?;
        assert_eq!(pipeline.train()?, 6.0);
        assert_eq!(pipeline.evaluate()?, 6.0);
        // Gradients of w0 w1 = 2 * 3, each the other factor.
        assert_eq!(pipeline.stage().grad, [3.0, 2.0][ctx.rank()? as usize]);
        pipeline.stage_mut().w = 1.0;
        assert_eq!(pipeline.train()?, 1.0);
        assert_eq!(pipeline.pipeline().has_loss()?, ctx.rank()? == 1);
        assert_eq!(pipeline.pipeline().schedule()?.name()?, "1F1B");
        assert!(pipeline.pipeline().buffer_bytes()? < 1 << 20);
        let path = std::env::temp_dir().join(format!("nxd-timeline-{}.json", std::process::id()));
        pipeline.pipeline().write_timeline(path.to_str().unwrap())?;
        if ctx.rank()? == 0 {
            assert!(std::fs::read_to_string(&path)?.contains("traceEvents"));
            std::fs::remove_file(&path)?;
        }
        ctx.finalize()
    });
}

#[test]
fn a_stage_that_fails() {
    let errors = on_ranks(2, |ctx| {
        let fail = if ctx.rank()? == 1 { Some(2) } else { None };
        let mut pipeline = make(&ctx, fail, false)?;
        let error = pipeline.train().unwrap_err();
        pipeline.stage_mut().fail = None;
        assert_eq!(pipeline.train()?, 6.0, "the next run may begin");
        ctx.finalize()?;
        Ok(error)
    });
    assert_eq!(errors[1].status(), Status::USER);
    for error in &errors {
        assert_eq!(error.message().matches("bad sample").count(), 1, "{error}");
    }
    assert!(errors[1].message().contains("microbatch 2"), "{}", errors[1]);
}

/// A name that C does not take is found before the call, and the other stage hears of it.
#[test]
fn a_value_without_a_name() {
    on_ranks(2, |ctx| {
        let rank = ctx.rank()?;
        ctx.init_model_parallel(&ParallelOptions {
            pipeline_parallel_size: 2,
            ..Default::default()
        })?;
        let name = if rank == 0 { "x" } else { "x\0" };
        let value =
            Value { name: name.into(), shape: vec![1], dtype: DType::F64, needs_grad: true };
        let chunk = match rank {
            0 => Chunk { inputs: vec![], outputs: vec![value] },
            _ => Chunk { inputs: vec![value], outputs: vec![] },
        };
        let stage = Scale { w: 1.0, grad: 0.0, last: rank == 1, fail: None, panic: false };
        let made = StagePipeline::create(&ctx, &StageOptions::default(), &[chunk], stage);
        let error = made.map(drop).unwrap_err();
        assert_eq!(error.status(), Status::INVALID_ARGUMENT);
        assert!(error.message().contains("expected no NUL within a string"), "{}", error);
        ctx.finalize()
    });
}

#[test]
fn no_chunk() {
    let ctx = alone();
    ctx.init_model_parallel(&Default::default()).unwrap();
    let stage = Scale { w: 1.0, grad: 0.0, last: true, fail: None, panic: false };
    let made = StagePipeline::create(&ctx, &StageOptions::default(), &[], stage);
    let error = made.map(drop).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT);
    assert!(error.message().contains("expected at least 1 chunk"), "{}", error);
}

#[test]
fn a_stage_that_panics() {
    let ctx = alone();
    let mut pipeline = make(&ctx, None, true).unwrap();
    let run = std::panic::AssertUnwindSafe(|| pipeline.train());
    let panic = std::panic::catch_unwind(run).unwrap_err();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "no stage");
    pipeline.stage_mut().panic = false;
    assert_eq!(pipeline.train().unwrap(), 2.0);
}

#[test]
fn schedules() {
    let kind = PipelineScheduleKind::_1F1B;
    let schedule = PipelineSchedule::create(kind, 2, 1, 4).unwrap();
    assert_eq!(schedule.stages().unwrap(), 2);
    let tasks: Vec<_> = (0..2).map(|rank| schedule.tasks(rank).unwrap()).collect();
    assert_eq!(tasks[0].len(), 8);
    assert_eq!(tasks[0][0].kind, TaskKind::FORWARD);
    let mine = PipelineSchedule::from_tasks(1, 4, &tasks).unwrap();
    let report = mine.report(&Costs::default()).unwrap();
    assert_eq!(report.makespan, schedule.report(&Costs::default()).unwrap().makespan);
    let slow = Costs { forward: &[1.0, 5.0], ..Default::default() };
    assert!(mine.report(&slow).unwrap().makespan > report.makespan);
    let bad = Costs { forward: &[1.0], ..Default::default() };
    assert_eq!(mine.report(&bad).unwrap_err().status(), Status::INVALID_ARGUMENT);
    let torn = vec![vec![Task { kind: TaskKind::FORWARD, microbatch: 1, chunk: 0 }]];
    let error = PipelineSchedule::from_tasks(1, 1, &torn).unwrap_err();
    assert_eq!(error.status(), Status::INVALID_ARGUMENT, "{}", error);
}
