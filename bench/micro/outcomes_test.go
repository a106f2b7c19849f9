package micro_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"twotier.dev/twotier/bench/rival"
	"twotier.dev/twotier/bench/wire"
	"twotier.dev/twotier/internal/testing/must"
)

// TestOutcomesAreThoseOfTheAnswer compares readOutcomes with encoding/json on the answers of a
// server.
func TestOutcomesAreThoseOfTheAnswer(t *testing.T) {
	env, err := rival.Build(t.Context(), t.TempDir())
	must.Succeed(t, err)
	s, err := rival.Twotier("twotier", 1, rival.Memory).Start(t.Context(), env)
	must.Succeed(t, err)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := wire.NewClient(s.Servers[0].Addr)
	defer c.Close()
	var total outcomes
	for range 4 {
		r := crowdRequests([]string{"allowed:true", "error"}, 120, 50)[0]
		r.ops[7].Checks[0].Key = ""
		r.encode("crowd")
		if err := c.Post(r.path, r.append, func(answer []byte) error {
			// A server without a cluster decides nothing near.
			answer = bytes.Replace(answer, []byte(`"memory"`), []byte(`"near"`), 20)
			got, want := readOutcomes(answer), decodeOutcomes(t, answer)
			if got != want || got.failed != 1 || got.near != 20 {
				t.Errorf("%+v, JSON says %+v: %s", got, want, answer)
			}
			total.allowed, total.refused = total.allowed+got.allowed, total.refused+got.refused
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if total.allowed != 120 || total.refused != 4*49-120 {
		t.Errorf("%+v of a limit of 120", total)
	}
}

func decodeOutcomes(t *testing.T, answer []byte) (o outcomes) {
	var a struct {
		Results []struct {
			Allowed *bool
			Error   json.RawMessage
			Source  string
		}
	}
	must.Succeed(t, json.Unmarshal(answer, &a))
	for _, r := range a.Results {
		switch {
		case r.Error != nil:
			o.failed++
		case *r.Allowed:
			o.allowed++
		default:
			o.refused++
		}
		if r.Source == "near" {
			o.near++
		}
	}
	return o
}
