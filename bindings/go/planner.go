package nxd

import "libnxd.org/nxd/raw"

type (
	// PlanModel is the sizes of a decoder or of a BERT. StructSize is set by the calls.
	PlanModel = raw.PlanModel
	// PlanMachine is figures of a machine; zero values are defaults. StructSize is set by the calls.
	PlanMachine = raw.PlanMachine
	// PlanLayout is how a model would be trained. StructSize is set by the calls.
	PlanLayout = raw.PlanLayout
	// PlanPrediction is what a layout would cost.
	PlanPrediction = raw.PlanPrediction
	// PlanSearchOptions is what to look for. StructSize is set by the calls.
	PlanSearchOptions = raw.PlanSearchOptions
)

// PlanModelFromConfig reads the sizes of a Hugging Face configuration.
func PlanModelFromConfig(configJSON string) (PlanModel, error) {
	m := PlanModel{}.Sized()
	err := raw.PlanModelFromConfig(configJSON, &m)
	return m, err
}

// Predict says what a layout would cost; nothing runs.
func Predict(m PlanModel, machine PlanMachine, layout PlanLayout) (PlanPrediction, error) {
	m, machine, layout = m.Sized(), machine.Sized(), layout.Sized()
	p := PlanPrediction{}.Sized()
	err := raw.PlanPredict(&m, &machine, &layout, &p)
	return p, err
}

// SearchPlan finds the layouts of all ranks that take least time and fit, best first, at most n.
func SearchPlan(m PlanModel, machine PlanMachine, o PlanSearchOptions, n int) ([]PlanLayout,
	[]PlanPrediction, error) {
	m, machine, o = m.Sized(), machine.Sized(), o.Sized()
	layouts, predictions := make([]PlanLayout, n), make([]PlanPrediction, n)
	for i := range layouts {
		layouts[i], predictions[i] = layouts[i].Sized(), predictions[i].Sized()
	}
	found, err := raw.PlanSearch(&m, &machine, &o, first(layouts), first(predictions), n)
	return layouts[:found], predictions[:found], err
}
