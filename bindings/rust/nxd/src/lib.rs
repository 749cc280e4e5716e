//! libnxd from Rust: distributed training as a library.
//!
//! Objects are references to what the library keeps, as `&Group`; [`Owned`] is one that belongs to
//! the program and is released when it is dropped. Dropping is local and never waits for other
//! ranks in agreement: leaving together is [`Owned::finalize`] of a [`Context`].
//!
//! Calls give [`Result`]: an [`Error`] has a status, a message, and who is to blame. Closures that
//! the library calls may fail with errors of their own, and may panic: the panic goes on when the
//! call that they are part of returns.
//!
//! One object is used by one thread at a time. An object that may move to another thread is `Send`;
//! tensors, modules and what is made over them are not: all handles on one count as one object.
#![allow(clippy::too_many_arguments)]

mod arrays;
mod callback;
mod checkpoint;
mod context;
mod data;
mod data_parallel;
mod element;
mod error;
mod group;
mod job;
pub mod layers;
mod logging;
pub mod machine;
mod object;
mod optimizer;
mod parallel;
mod pipeline;
pub mod planner;
mod store;
mod training_state;
mod work;

pub use arrays::{Array, Float};
pub use checkpoint::Checkpoint;
pub use context::{cpu_mode, Aborter, ArenaBuffer, Context, ContextOptions, Toggle, Transport, World};
pub use data::{DataLoader, DataLoaderOptions, TokenFormat};
pub use data_parallel::{Ddp, DdpHandle, DdpOptions, FinishOptions, Placement, ShardedParameter};
pub use element::{Bf16, DType, Element, F16};
pub use error::{Error, ParameterState, Result, Status};
pub use group::{Group, GroupAborter, Reduce};
pub use job::{launch, Exit, Job, SpawnOptions};
pub use logging::{
    build_info, environment_table, reset_log, set_log, set_log_level, version, LogLevel,
};
/// The raw layer: every function of `nxd.h` under its C name.
pub use nxd_sys as sys;
pub use object::{Object, Owned};
pub use optimizer::{
    lr_schedule_factor, AdamwFormula, AdamwOptions, Bf16Update, CustomOptions, Hyperparameter,
    LrScheduleKind, LrScheduleOptions, Optimizer, OptimizerHandle, Sampler, SgdOptions, StepReport,
    Trainable, Update, UpdateArrays,
};
#[doc(hidden)]
pub use optimizer::{Kept, Over};
pub use parallel::{find_rank, layout_groups, Axis, ParallelOptions, Platform};
pub use pipeline::{
    Chunk, Costs, Pipeline, PipelineSchedule, PipelineScheduleKind, ScheduleReport, Stage,
    StageCall, StageOptions, StagePipeline, Task, TaskKind, Value, View, ViewMut,
};
pub use store::{Store, StoreBackend};
pub use training_state::{TrainingState, TrainingStateHandle};
pub use work::{Buffer, Pending, Work};

/// The code of the page on these crates is run as a test.
#[cfg(all(doctest, feature = "engine"))]
#[doc = include_str!("../../README.md")]
struct ReadMe;

#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "engine")]
pub use engine::{
    autograd::{backward, grad, with_autocast, with_grad, Call, Function, FunctionBuilder},
    device::{
        add_step_closure, add_step_closure_async, device_metrics, device_report, mark_step,
        reset_device_metrics, step_graph, wait_step_closures, DeviceLoader, DeviceLoaderOptions,
        DeviceMetrics, GraphFormat,
    },
    functional,
    load::{LoadReport, Mismatch},
    model,
    model_pipeline::{LeafRule, ModelPipeline, ParameterInit, PipelineLoss, PipelineOptions},
    module::{Module, Tape},
    op::{Argument, Op},
    parameter::{
        parameter_options, with_deferred_init, Init, Parameter, ParameterOptions, Shard,
    },
    serialization::{save, serialization_load, serialization_save, SaveOptions, Serialization},
    tensor::{aten_pool, device, set_aten_pool, Device, Dlpack, Inputs, Tensor},
    training::loss_weights,
};
