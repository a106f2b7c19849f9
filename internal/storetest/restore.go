package storetest

import (
	"testing"
	"time"

	"twotier/syncer"
)

func testRepublish(t *testing.T, s syncer.Store) {
	apply(t, s, "v", 1, key("a", bucket(0, 0, 5), bucket(0, 1, 50)))
	part := func(final bool, acked uint64, name string, adds ...syncer.Bucket) *syncer.Round {
		return &syncer.Round{Partition: 17, Writer: "w", Acked: acked, Epoch: epoch(t, s, 17), Republish: true, Final: final,
			Keys: []syncer.KeyRound{key(name, adds...)}}
	}
	first := part(false, 4, "a", bucket(0, 0, 8), bucket(0, 1, 8), bucket(2, 0, 8))
	last := part(true, 4, "b", bucket(0, 0, 3))
	var version uint64
	for range 2 {
		exchange(t, s, first)
		if first.Lost || first.Version <= version {
			t.Errorf("lost %v, version %d after %d", first.Lost, first.Version, version)
		}
		version = first.Version
		holds(t, s, "a", bucket(0, 0, 8), bucket(0, 1, 50), bucket(2, 0, 8))
	}
	// The sequence is not restored before the last part.
	r := &syncer.Round{Partition: 17, Writer: "w", Seq: 5, Acked: 4, Keys: []syncer.KeyRound{key("a", bucket(0, 0, 1))}}
	exchange(t, s, r)
	if !r.Lost {
		t.Fatal("the sequence is there before the last part was published")
	}
	exchange(t, s, last)
	exchange(t, s, last)
	r.Lost = false
	exchange(t, s, r)
	if r.Lost {
		t.Fatal("the sequence was not restored")
	}
	stored(t, &r.Keys[0], 9)
	holds(t, s, "b", bucket(0, 0, 3))
	exchange(t, s, r)
	holds(t, s, "a", bucket(0, 0, 9), bucket(0, 1, 50), bucket(2, 0, 8))
	// Neither part does anything when it comes late, least of all lower the sequence.
	apply(t, s, "w", 6, key("a", bucket(0, 0, -5)))
	exchange(t, s, first)
	exchange(t, s, last)
	r.Seq, r.Acked = 6, 5
	exchange(t, s, r)
	holds(t, s, "a", bucket(0, 0, 4), bucket(0, 1, 50), bucket(2, 0, 8))
}

// testRepublishWithoutTTL leaves the time to live as it is.
func testRepublishWithoutTTL(t *testing.T, s syncer.Store) {
	apply(t, s, "v", 1, key("a", bucket(0, 0, 5)))
	r := &syncer.Round{Partition: 17, Writer: "w", Acked: 1, Epoch: epoch(t, s, 17), Republish: true, Final: true, Keys: []syncer.KeyRound{
		{Key: []byte("a"), Adds: []syncer.Bucket{bucket(0, 0, 6)}},
		{Key: []byte("b"), Adds: []syncer.Bucket{bucket(0, 0, 7)}},
	}}
	exchange(t, s, r)
	holds(t, s, "a", bucket(0, 0, 6))
	holds(t, s, "b", bucket(0, 0, 7))
	if ttl, ok := s.(TTLer); ok {
		if got := ttl.TTL(t, 17, nil, []byte("a")); got > time.Hour || got < time.Hour-patience {
			t.Errorf("time to live %v, want an hour", got)
		}
	}
}

// testNames counts under names that a careless store would mistake for each other or for its own.
func testNames(t *testing.T, s syncer.Store) {
	names := []struct{ ns, key string }{
		{"", "a"}, {"", "a:b"}, {"", "{a}"}, {"", "}{"}, {"", "{p18}"}, {"", " "}, {"", "a b"}, {"", "*"}, {"", "\\"}, {"", `"'`},
		{"", "ключ"}, {"", "日本語キー"}, {"", "😀"}, {"", "!v"}, {"", "!w:w"}, {"", "%"}, {"", "%s%d"}, {"", "0"}, {"", "-1"}, {"", "nil"},
		{"", "default"}, {"", ":"}, {"", "default:a"}, {"ns", "a"}, {"ns2", "a"}, {"n", "s:a"}, {"sms", "a"}, {"sms", "{x}:y z"},
		{"api.v1_x-y", "a"}, {"", string(longest())},
	}
	r := &syncer.Round{Partition: 17, Writer: "w", Seq: 1}
	for i, n := range names {
		k := key(n.key, bucket(0, 0, int64(i+1)))
		k.NS = []byte(n.ns)
		r.Keys = append(r.Keys, k)
	}
	exchange(t, s, r)
	for i, n := range names {
		if err := r.Keys[i].Err; err != nil {
			t.Errorf("%q %q: %v", n.ns, n.key, err)
		}
		if got := load(t, s, 17, []byte(n.ns), []byte(n.key)); len(got) != 1 || got[place{0, base}] != int64(i+1) {
			t.Errorf("%q %q holds %v, want %d", n.ns, n.key, got, i+1)
		}
		if got := load(t, s, 18, []byte(n.ns), []byte(n.key)); len(got) != 0 {
			t.Errorf("%q %q is in another partition: %v", n.ns, n.key, got)
		}
	}
}

// longest is a key of 256 bytes with every printable one, and bytes above 127 as UTF-8 has them.
func longest() []byte {
	var b []byte
	for c := rune(' '); len(b) < 254; c++ {
		if c != 0x7f {
			b = append(b, string(c)...)
		}
		if c == 0x7e {
			c = 0xa0
		}
	}
	for len(b) < 256 {
		b = append(b, '~')
	}
	return b[:256]
}
