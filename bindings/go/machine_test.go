package nxd_test

import (
	"encoding/json"
	"errors"
	"testing"

	"libnxd.org/nxd"
)

const llama = `{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256, "rms_norm_eps": 1e-5,
"max_position_embeddings": 64}`

func TestPlanner(t *testing.T) {
	m, err := nxd.PlanModelFromConfig(llama)
	if err != nil || m.HiddenSize != 64 {
		t.Fatalf("got %v, %v", m, err)
	}
	p, err := nxd.Predict(m, nxd.PlanMachine{}, nxd.PlanLayout{TensorParallelSize: 2, SequenceLength: 64})
	if err != nil || p.StepSeconds <= 0 || p.TotalBytes == 0 {
		t.Errorf("got %v, %v", p, err)
	}
	layouts, predictions, err := nxd.SearchPlan(m, nxd.PlanMachine{},
		nxd.PlanSearchOptions{WorldSize: 4, SequenceLength: 64, BatchSize: 8}, 3)
	if err != nil || len(layouts) != 3 || predictions[0].StepSeconds > predictions[2].StepSeconds {
		t.Errorf("got %v, %v", layouts, err)
	}
	if _, err := nxd.PlanModelFromConfig("{"); !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("got %v", err)
	}
}

func TestMachine(t *testing.T) {
	if !json.Valid([]byte(nxd.BuildInfo())) || nxd.Version() == "" || nxd.EnvironmentTable() == "" {
		t.Error("the library says nothing of itself")
	}
	if s, err := nxd.ReadMemoryStats(); err != nil || s.PeakBytesInUse < s.BytesInUse {
		t.Errorf("got %v, %v", s, err)
	}
	if err := first(nxd.StartProfile(), nxd.StopProfile(), nxd.TrimMemory(), nxd.ReleaseThreads()); err != nil {
		t.Error(err)
	}
	if phases, err := nxd.ReadProfile(); err != nil || len(phases) != 8 || phases[0].Name == "" {
		t.Errorf("got %v, %v", phases, err)
	}
	seen := map[int64]int{}
	for rank := 0; rank < 2; rank++ {
		samples, err := nxd.SampleEpoch(10, 2, rank, 0, 1, true, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			seen[s]++
		}
	}
	if len(seen) != 10 {
		t.Errorf("two ranks have seen %d of 10 samples", len(seen))
	}
}

func TestLogLevel(t *testing.T) {
	if err := nxd.SetLogLevel(42); !errors.Is(err, nxd.InvalidArgument) {
		t.Errorf("got %v", err)
	}
}
