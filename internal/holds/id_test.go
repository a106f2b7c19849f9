package holds_test

import (
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/holds"
	"twotier.dev/twotier/internal/testing/must"
)

func newSealer(secret string) *holds.Sealer {
	s := new(holds.Sealer)
	s.SetSecret([]byte(secret))
	return s
}

// randomHold draws a hold.
func randomHold(dice *rand.Rand) *holds.Hold {
	lisbon, err := twotier.ParsePeriod("month.14@Europe/Lisbon")
	if err != nil {
		panic(err) // the zone is embedded
	}
	h := &holds.Hold{Until: dice.Int64N(1 << 45)}
	for range 1 + dice.IntN(4) {
		c := holds.Check{NS: make([]byte, dice.IntN(3)), Key: make([]byte, 1+dice.IntN(300)),
			N: dice.Int64N(1 << 31), TS: h.Until - dice.Int64N(1<<40), Leased: dice.IntN(2) == 0}
		for i := range c.Key {
			c.Key[i] = byte(dice.Uint32())
		}
		for range dice.IntN(3) {
			c.Rules = append(c.Rules, "rule")
			c.Limits = append(c.Limits, twotier.Limit{Window: 1 + dice.Int64N(1<<40),
				Max: dice.Int64N(1 << 50)}, twotier.Limit{Period: lisbon, Max: 9})
		}
		h.Checks = append(h.Checks, c)
	}
	return h
}

// TestIDsAreSelfContained reads back a sealed hold. Equal holds have different ids.
func TestIDsAreSelfContained(t *testing.T) {
	dice := rand.New(rand.NewPCG(rand.Uint64(), 0))
	s := newSealer("secret")
	for range 300 {
		h := randomHold(dice)
		id := s.Seal(h)
		got, err := s.Open(id)
		if err != nil || got.Until != h.Until || !reflect.DeepEqual(got.Checks, h.Checks) {
			t.Fatalf("%+v, %v, want %+v", got, err, h)
		}
		if s.Seal(h) == id {
			t.Error("two equal holds have the same id")
		}
	}
}

// TestIDsCannotBeForged changes each bit of an id, and opens ids of another secret.
func TestIDsCannotBeForged(t *testing.T) {
	s := newSealer("secret")
	id := s.Seal(&holds.Hold{Until: 9, Checks: []holds.Check{{Key: []byte("k"), N: 5, TS: 3}}})
	raw, err := base64.RawURLEncoding.DecodeString(id)
	must.Succeed(t, err)
	for bit := range 8 * len(raw) {
		raw[bit/8] ^= 1 << (bit % 8)
		if h, err := s.Open(base64.RawURLEncoding.EncodeToString(raw)); err == nil {
			t.Errorf("bit %d was changed: %+v", bit, h)
		}
		raw[bit/8] ^= 1 << (bit % 8)
	}
	if _, err := newSealer("other").Open(id); !errors.Is(err, holds.ErrForged) {
		t.Errorf("another secret: %v", err)
	}
	for _, text := range []string{"", "A", id + "=", id[:20], "no id", id + "A"} {
		if _, err := s.Open(text); err == nil {
			t.Errorf("%q is an id", text)
		}
	}
}

// FuzzOpen opens any text, sealed or not.
func FuzzOpen(f *testing.F) {
	s := newSealer("secret")
	f.Add(s.Seal(randomHold(rand.New(rand.NewPCG(1, 2)))))
	f.Fuzz(func(_ *testing.T, id string) { _, _ = s.Open(id) })
}
