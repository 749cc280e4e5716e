// Package rawengine is what package raw is, for the functions of libnxd: tensors, modules, layers,
// models and training.
package rawengine
