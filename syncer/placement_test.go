package syncer_test

import (
	"testing"

	"twotier.dev/twotier"
)

func TestHashTag(t *testing.T) {
	for key, want := range map[string]string{
		"{18829340001}":        "18829340001",
		"{18829340001}:hello":  "18829340001",
		"sms:{18829340001}":    "18829340001",
		"{user1000}.following": "user1000",
		"foo{bar}{zap}":        "bar",
		"foo{{bar}}zap":        "{bar",
		"foo{}{bar}":           "foo{}{bar}",
		"{}":                   "{}",
		"{}bar":                "{}bar",
		"}a{b}":                "b",
		"a}b{c":                "a}b{c",
		"{open":                "{open",
		"closed}":              "closed}",
		"{ }":                  " ",
		"{世}界":                 "世",
		"none":                 "none",
		"":                     "",
	} {
		if got := string(twotier.HashTag([]byte(key))); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

// TestHashTagsPlaceKeysTogether asks for the partitions of keys. There are so many that two are
// unlikely to be equal by chance.
func TestHashTagsPlaceKeysTogether(t *testing.T) {
	const many = 1 << 16
	with := twotier.Placement{Partitions: many, Seed: 9,
		HashTags: twotier.HashTags{"sms": true, "mail": true, "plain": false}}
	usual := with
	usual.HashTags = twotier.HashTags{"default": true, "plain": false}
	without := twotier.Placement{Partitions: many, Seed: 9}
	at := func(p twotier.Placement, ns, key string) int { return p.Of([]byte(ns), []byte(key)) }

	tag := at(with, "sms", "{188}")
	for name, got := range map[string]int{
		"another key":           at(with, "sms", "{188}:hello"),
		"braces further back":   at(with, "sms", "content:{188}:{hello}"),
		"another namespace":     at(with, "mail", "{188}:a@example.org"),
		"the tag as a key":      at(without, "", "188"),
		"the default namespace": at(usual, "", "{188}:x"),
		"it, named":             at(usual, "default", "{188}:y"),
		"one that is no listed": at(usual, "sms", "{188}:z"),
	} {
		if got != tag {
			t.Errorf("%s is in partition %d, %d has the tag", name, got, tag)
		}
	}
	for _, place := range []twotier.Placement{with, usual} {
		for _, of := range [][2]string{{"plain", "{188}"}, {"plain", "{188}:hello"},
			{"sms", "188"}, {"sms", "{}188"}, {"", "188"}} {
			if got, want := at(place, of[0], of[1]), at(without, of[0], of[1]); got != want {
				t.Errorf("%s in %q is in partition %d, want that of before, %d", of[1], of[0], got,
					want)
			}
		}
	}
	if at(with, "", "{188}:a") == at(with, "", "{188}:b") {
		t.Error("hash tags in a namespace that has none")
	}
}

func TestHashTagsInWords(t *testing.T) {
	for _, tc := range []struct {
		tags twotier.HashTags
		want string
	}{
		{nil, "no namespace"},
		{twotier.HashTags{"default": false, "a": false}, "no namespace"},
		{twotier.HashTags{"sms": true, "login": true, "a": false}, "login, sms"},
		{twotier.HashTags{"default": true}, "every namespace"},
		{twotier.HashTags{"default": true, "sms": true}, "every namespace"},
		{twotier.HashTags{"default": true, "sms": true, "a": false}, "every namespace but a"},
	} {
		if got := tc.tags.String(); got != tc.want {
			t.Errorf("%v: %q, want %q", map[string]bool(tc.tags), got, tc.want)
		}
	}
}

func TestPlacementAllocatesNothing(t *testing.T) {
	place := twotier.Placement{Partitions: 1021, HashTags: twotier.HashTags{"sms": true}}
	ns, key := []byte("sms"), []byte("{18829340001}:hello")
	if n := testing.AllocsPerRun(100, func() { place.Of(ns, key) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
