package nxd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Close and finalizers reach functions of the library only by what own.New is given and by releases of
// memory: all of them are [local], so that no collector ever starts a collective.
func TestFinalizersAreLocal(t *testing.T) {
	text, err := os.ReadFile("../api.json")
	if os.IsNotExist(err) {
		t.Skip("api.json is not beside the binding")
	}
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Functions []struct {
			Name string
			Tag  struct{ Kind string }
		}
	}
	if err := json.Unmarshal(text, &api); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, f := range api.Functions {
		kinds[strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(f.Name, "nxd_"), "_", ""))] = f.Tag.Kind
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("engine/*.go")
	if err != nil {
		t.Fatal(err)
	}
	owned := regexp.MustCompile(`own\.New(?:Settling)?\(\w+, ([^)]*)`)
	called := regexp.MustCompile(`\braw(?:engine)?\.(\w*(?:Destroy|ArenaFree|WorkWait|WorkTest))\(`)
	passed := regexp.MustCompile(`own\.New(?:Settling)?\(\w+, raw(?:engine)?\.(\w+)`)
	seen := 0
	for _, file := range append(files, more...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range owned.FindAllStringSubmatch(string(source), -1) {
			if how := m[1]; !strings.HasPrefix(how, "raw") && !strings.HasPrefix(how, "func(") &&
				!strings.HasPrefix(how, "release") {
				t.Errorf("%s: cannot tell how own.New(_, %s) destroys", file, how)
			}
		}
		for _, pattern := range []*regexp.Regexp{called, passed} {
			for _, m := range pattern.FindAllStringSubmatch(string(source), -1) {
				if kind := kinds[strings.ToLower(m[1])]; kind != "local" {
					t.Errorf("%s: %s is %q, expected local", file, m[1], kind)
				}
				seen++
			}
		}
	}
	if seen < 16 {
		t.Errorf("expected the destructors of 16 kinds of objects, found %d", seen)
	}
}
