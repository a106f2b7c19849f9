package peer_test

import (
	"math/rand"
	"reflect"
	"testing"
	"testing/quick"

	"twotier.dev/twotier/httpapi/cluster"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/peer"
)

// answers has an empty answer for each kind of question, by name; nil if there is none.
var answers = map[string]any{
	"ping": nil, "holdings": &ownership.HoldingsResponse{}, "claim": &ownership.ClaimResponse{},
	"offer": nil, "outcome": &multiowner.OutcomeResponse{}, "top": &node.TopAnswer{},
	"series": &node.SeriesAnswer{}, "mode": nil, "lease": &hotkeys.LeaseResponse{},
	"status": &cluster.Status{}, "settle": nil, "top refused": &node.TopAnswer{},
	"top refused in shadow": &node.TopAnswer{},
	"bans":                  &node.BansAnswer{}, "events": &cluster.Events{},
	"replay":   &node.ReplayAnswer{},
	"distinct": &node.DistinctAnswer{}, "distinct pending": &node.DistinctPendingAnswer{},
}

// TestEveryQuestionComesBack encodes and parses questions of each kind and their answers, with
// random fields. No two kinds share a number or a name.
func TestEveryQuestionComesBack(t *testing.T) {
	codes, names := map[byte]bool{}, map[string]bool{}
	rnd := rand.New(rand.NewSource(1))
	for _, kind := range node.Questions() {
		if codes[kind.Code] || names[kind.Name] {
			t.Errorf("there are two of number %d or name %q", kind.Code, kind.Name)
		}
		codes[kind.Code], names[kind.Name] = true, true
		empty, known := answers[kind.Name]
		if !known {
			t.Errorf("%s: say above what is answered", kind.Name)
			continue
		}
		for range 50 {
			want := anything(t, kind.New(), rnd)
			got, err := peer.Asked(want)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v became %+v, %v", kind.Name, want, got, err)
			}
			if kind.Name == "claim" { // see TestClaimsComeBack
				break
			}
			comesBack(t, kind.Name, empty, rnd)
		}
	}
	if len(names) != len(answers) {
		t.Errorf("%d kinds of question, %d of answer", len(names), len(answers))
	}
}

// comesBack encodes an answer of the same type and parses it.
func comesBack(t *testing.T, name string, empty any, rnd *rand.Rand) {
	t.Helper()
	if empty == nil {
		if err := peer.Answered(nil, nil).Into(nil); err != nil {
			t.Fatalf("%s: no answer: %v", name, err)
		}
		return
	}
	want := anything(t, empty, rnd)
	got := reflect.New(reflect.TypeOf(empty).Elem()).Interface()
	if err := peer.Answered(want, nil).Into(got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: the answer %+v became %+v, %v", name, want, got, err)
	}
}

// anything returns a value of a pointer's type with random contents.
func anything(t *testing.T, like any, rnd *rand.Rand) any {
	t.Helper()
	v, ok := quick.Value(reflect.TypeOf(like).Elem(), rnd)
	if !ok {
		t.Fatalf("no value of type %T", like)
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	withoutEmpty(p.Elem())
	return p.Interface()
}

// withoutEmpty makes empty slices nil: encodings need not tell one from the other.
func withoutEmpty(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			withoutEmpty(v.Field(i))
		}
	case reflect.Slice:
		if v.Len() == 0 && v.CanSet() {
			v.SetZero()
		}
		for i := range v.Len() {
			withoutEmpty(v.Index(i))
		}
	}
}
