package raw

import (
	"encoding/json"
	"os"
	"reflect"
	"sort"
	"testing"
)

type layout struct {
	Structs map[string]struct {
		Size, Align uintptr
		Fields      map[string][2]uintptr
	}
	Constants map[string]int
}

func readLayout(t *testing.T) layout {
	text, err := os.ReadFile("../../layout.json")
	if os.IsNotExist(err) {
		t.Skip("layout.json is not beside the binding")
	}
	if err != nil {
		t.Fatal(err)
	}
	var l layout
	if err := json.Unmarshal(text, &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// Structs have the sizes and offsets that the C compiler gives them.
func TestLayout(t *testing.T) {
	l := readLayout(t)
	if len(l.Structs) != len(generatedStructs) || len(l.Structs) == 0 {
		t.Fatalf("expected %d structs, got %d", len(l.Structs), len(generatedStructs))
	}
	for name, want := range l.Structs {
		got := reflect.TypeOf(generatedStructs[name])
		if got == nil || got.Size() != want.Size || uintptr(got.Align()) != want.Align ||
			got.NumField() != len(want.Fields) {
			t.Errorf("%s: expected %d bytes, %d fields, got %v", name, want.Size, len(want.Fields), got)
			continue
		}
		var places [][2]uintptr
		for _, place := range want.Fields {
			places = append(places, place)
		}
		sort.Slice(places, func(i, j int) bool { return places[i][0] < places[j][0] })
		for i, place := range places {
			if f := got.Field(i); f.Offset != place[0] || f.Type.Size() != place[1] {
				t.Errorf("%s.%s: expected %d bytes at %d, got %d at %d", name, f.Name, place[1], place[0],
					f.Type.Size(), f.Offset)
			}
		}
	}
}

func TestConstants(t *testing.T) {
	l := readLayout(t)
	if len(l.Constants) != len(generatedConstants) || len(l.Constants) == 0 {
		t.Fatalf("expected %d constants, got %d", len(l.Constants), len(generatedConstants))
	}
	for name, want := range l.Constants {
		if got, ok := generatedConstants[name]; !ok || got != want {
			t.Errorf("%s: expected %d, got %d", name, want, got)
		}
	}
}
