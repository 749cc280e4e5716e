//! Tensors, modules, layers and models: the functions of nxd/engine.h, in libnxd.
pub(crate) mod autograd;
pub(crate) mod device;
pub mod functional;
pub mod layers;
pub(crate) mod load;
pub mod model;
pub(crate) mod model_pipeline;
pub(crate) mod module;
pub(crate) mod op;
pub(crate) mod parameter;
pub(crate) mod serialization;
pub(crate) mod tensor;
pub(crate) mod training;
