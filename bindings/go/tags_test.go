package nxd_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readTags is the tag of every function by its name in the raw packages, in lower case.
func readTags(t *testing.T) map[string]string {
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
	tags := map[string]string{}
	for _, f := range api.Functions {
		tags[strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(f.Name, "nxd_"), "_", ""))] = f.Tag.Kind
	}
	return tags
}

// isSelector tells whether an expression is such as own.New, and gives the name behind the dot.
func isSelector(e ast.Expr, packages ...string) (name string, is bool) {
	if index, ok := e.(*ast.IndexExpr); ok {
		e = index.X
	}
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	x, ok := s.X.(*ast.Ident)
	for _, p := range packages {
		if ok && x.Name == p {
			return s.Sel.Name, true
		}
	}
	return "", false
}

// functionOf is an expression, or what the function around it assigned to the name that it is.
func functionOf(around ast.Node, e ast.Expr) ast.Node {
	name, ok := e.(*ast.Ident)
	if !ok {
		return e
	}
	var found ast.Node
	ast.Inspect(around, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 1 {
			if x, ok := a.Lhs[0].(*ast.Ident); ok && x.Name == name.Name {
				found = a.Rhs[0]
			}
		}
		return true
	})
	return found
}

// destructors is, of each own.New, NewManual and NewSettling in a function, what it destroys with.
func destructors(t *testing.T, f *ast.FuncDecl) []ast.Node {
	var found []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, ok := isSelector(call.Fun, "own")
		count := map[string]int{"New": 1, "NewManual": 1, "NewSettling": 3}[name]
		for i := 1; ok && i <= count; i++ {
			d := functionOf(f, call.Args[i])
			if d == nil {
				t.Errorf("%s: cannot tell what own.%s destroys with", f.Name, name)
				continue
			}
			found = append(found, d)
		}
		return true
	})
	return found
}

// Close and finalizers reach the library only by what own.New, NewManual and NewSettling are given: of that, all
// is [local], so that no collector ever starts a collective.
func TestFinalizersAreLocal(t *testing.T) {
	tags := readTags(t)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("engine/*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range append(files, more...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			for _, destroy := range destructors(t, f) {
				ast.Inspect(destroy, func(n ast.Node) bool {
					e, ok := n.(ast.Expr)
					if !ok {
						return true
					}
					name, ok := isSelector(e, "raw", "rawengine")
					tag, function := tags[strings.ToLower(name)]
					if seen[name] = seen[name] || ok && function; ok && function && tag != "local" {
						t.Errorf("%s: %s: %s is %s, expected local", file, f.Name, name, tag)
					}
					return true
				})
			}
		}
	}
	for _, name := range []string{"ContextDestroy", "GroupDestroy", "WorkDestroy", "WorkWait", "ArenaFree",
		"DDPDestroy", "OptimizerDestroy", "PPDestroy", "ModuleDestroy", "TensorDestroy", "TapeDestroy"} {
		if !seen[name] {
			t.Errorf("%s was not found", name)
		}
	}
}
