package peer_test

import (
	"math/rand"
	"reflect"
	"testing"
	"testing/quick"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/cluster"
	"twotier.dev/twotier/internal/hotkeys"
	"twotier.dev/twotier/internal/multiowner"
	"twotier.dev/twotier/internal/node"
	"twotier.dev/twotier/internal/ownership"
	"twotier.dev/twotier/internal/peer"
	"twotier.dev/twotier/internal/testing/must"
)

// answers lists an empty answer for each kind of request, by name; nil if it has none.
var answers = map[string]any{
	"ping": nil, "holdings": &ownership.HoldingsResponse{}, "claim": &ownership.ClaimResponse{},
	"offer": nil, "return": nil, "outcome": &multiowner.OutcomeResponse{},
	"top": &node.TopResponse{}, "series": &node.SeriesResponse{}, "mode": nil,
	"lease":  &hotkeys.LeaseResponse{},
	"status": &cluster.Status{}, "settle": nil, "top refused": &node.TopResponse{},
	"top refused in shadow": &node.TopResponse{}, "top leases": &node.TopResponse{},
	"bans": &node.BansResponse{}, "events": &cluster.Events{},
	"replay": &node.ReplayResponse{}, "recall": nil,
	"refusals": &node.RefusalsResponse{}, "sample": &node.SampleResponse{},
}

// TestEveryQuestionComesBack encodes and parses requests of each kind and their answers, with
// random fields.
func TestEveryQuestionComesBack(t *testing.T) {
	names, rnd := map[string]bool{}, rand.New(rand.NewSource(1))
	for code := range 256 {
		kind, ok := node.KindByCode(byte(code))
		if !ok {
			continue
		}
		names[kind.Name] = true
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
			if kind.Name == "claim" {
				break // see TestClaimsComeBack
			}
			comesBack(t, kind.Name, empty, rnd)
		}
	}
	if len(names) != len(answers) {
		t.Errorf("%d kinds of request, %d of answer", len(names), len(answers))
	}
}

// comesBack encodes a random answer of the same type and parses it.
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

// anything returns a random value of the pointer's element type.
func anything(t *testing.T, like any, rnd *rand.Rand) any {
	t.Helper()
	p := reflect.New(reflect.TypeOf(like).Elem())
	fill(t, p.Elem(), rnd)
	withoutEmpty(p.Elem())
	return p.Interface()
}

// fill sets a value to a random one. Of limits it draws some with a period, which no reflection can
// make.
func fill(t *testing.T, v reflect.Value, rnd *rand.Rand) {
	t.Helper()
	limit, isLimit := v.Addr().Interface().(*twotier.Limit)
	switch {
	case isLimit && rnd.Intn(2) == 0:
		period, err := twotier.ParsePeriod([]string{"hour", "month.14@Europe/Lisbon"}[rnd.Intn(2)])
		must.Succeed(t, err)
		*limit = twotier.Limit{Max: rnd.Int63(), Period: period}
	case isLimit:
		*limit = twotier.Limit{Window: rnd.Int63(), Max: rnd.Int63()}
	case v.Kind() == reflect.Struct && v.Type().PkgPath() != "time":
		for i := range v.NumField() {
			fill(t, v.Field(i), rnd)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(v.Type(), rnd.Intn(4), 4))
		for i := range v.Len() {
			fill(t, v.Index(i), rnd)
		}
	default:
		drawn, ok := quick.Value(v.Type(), rnd)
		if !ok {
			t.Fatalf("no value of type %v", v.Type())
		}
		v.Set(drawn)
	}
}

// withoutEmpty makes empty slices nil: encodings need not distinguish them.
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
