package room_test

import (
	"testing"
	"time"

	"twotier.dev/twotier/syncer/internal/room"
)

// slowTimeout is the timeout of exchanges with which a store is assumed to accept one key a
// second.
const slowTimeout = 512 * time.Second

// newRoom returns a room for 4 known keys, or 2 new ones, of a store that accepts one key a second.
func newRoom() *room.Room { return room.New(64*time.Second, slowTimeout, func() {}) }

func TestOpen(t *testing.T) {
	for owed, want := range map[int64]struct{ known, isNew bool }{
		0: {true, true}, 1: {true, true}, 2: {true, false}, 3: {true, false}, 4: {false, false},
		5: {false, false},
	} {
		m := newRoom()
		m.AddOwed(owed)
		if known, isNew := m.HasRoom(room.KnownKey), m.HasRoom(room.NewKey); known != want.known ||
			isNew != want.isNew {
			t.Errorf("behind %d keys there is room for a known key: %v, a new one: %v; want %v",
				owed, known, isNew, want)
		}
	}
}

// TestWithoutALagThereIsAlwaysRoom, even for more keys than the store accepts in a year.
func TestWithoutALagThereIsAlwaysRoom(t *testing.T) {
	m := room.New(0, slowTimeout, func() {})
	m.AddOwed(1 << 40)
	if !m.HasRoom(room.KnownKey) || !m.HasRoom(room.NewKey) || m.Lag() != 0 {
		t.Error("there is no room")
	}
}

// TestFilling: the room fills when the backlog leaves none for new keys.
func TestFilling(t *testing.T) {
	m := newRoom()
	for owed, want := range []bool{false, false, true, true} {
		if m.IsFilling() != want {
			t.Errorf("with a backlog of %d keys the room fills: %v, want %v", owed, !want, want)
		}
		m.AddOwed(1)
	}
	if m = room.New(0, slowTimeout, func() {}); m.IsFilling() {
		t.Error("a room without a bound fills")
	}
	m.AddOwed(1 << 40)
	if m.IsFilling() {
		t.Error("a room without a bound fills")
	}
}

// TestThereIsAlwaysRoomForOne key, of either class, however slow the store is.
func TestThereIsAlwaysRoomForOne(t *testing.T) {
	m := newRoom()
	m.Record(1, 1000*time.Hour)
	if s := m.Stats(); s.Most[room.KnownKey] != 1 || s.Most[room.NewKey] != 1 {
		t.Errorf("there is room for %v keys", s.Most)
	}
}

// TestKeysFitIntoTheLagOfASlowerStore fills the backlog, and then the store becomes k times slower.
// Before that the caller may let a key wait for a quarter of the lag. See the package comment.
func TestKeysFitIntoTheLagOfASlowerStore(t *testing.T) {
	const k = 12
	for _, lag := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		for _, took := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond} {
			m := room.New(lag, time.Second, func() {})
			for range 1000 {
				m.Record(1000, took)
			}
			owed, isNew := int64(0), int64(0)
			for ; m.HasRoom(room.KnownKey); owed++ {
				if m.HasRoom(room.NewKey) {
					isNew++
				}
				m.AddOwed(1)
			}
			waits := time.Duration(owed)*k*took/1000 + lag/4
			if waits > lag || waits < lag*9/10 || isNew != owed/2 {
				t.Errorf("lag %v: %d keys, %d of them new, wait for up to %v", lag, owed, isNew,
					waits)
			}
		}
	}
}

// TestAtOnce: an exchange takes half of its timeout, or an eighth of the lag, within bounds.
func TestAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		lag, timeout time.Duration
		perSecond    int
		want         int
	}{
		"half of the timeout":    {0, time.Second, 1000, 500},
		"an eighth of the lag":   {2 * time.Second, time.Second, 1000, 250},
		"the timeout is shorter": {time.Hour, time.Second, 1000, 500},
		"a slow store":           {0, time.Second, 10, 64},
		"a fast store":           {0, time.Second, 1_000_000, room.MaxAtOnce},
	} {
		m := room.New(tt.lag, tt.timeout, func() {})
		if tt.lag == 0 && m.MaxExchangeKeys() != 256 {
			t.Errorf("%s: %d keys in the first exchange", name, m.MaxExchangeKeys())
		}
		for range 1000 {
			m.Record(tt.perSecond/10, 100*time.Millisecond)
		}
		if n := m.MaxExchangeKeys(); n > tt.want || n < tt.want-1 {
			t.Errorf("%s: %d keys at once, want %d", name, n, tt.want)
		}
	}
}

// TestShare divides the keys that the store accepts in a second, here 1000.
func TestShare(t *testing.T) {
	for name, tt := range map[string]struct {
		backlog, owed int64
		most, want    int
	}{
		"a small backlog":             {900, 500, 300, 300},
		"bounded by the exchange":     {900, 500, 5000, 500},
		"a tenth of a large backlog":  {10_000, 1000, 300, 100},
		"bounded by the round":        {10_000, 9000, 300, 300},
		"a small part of it":          {10_000, 10, 300, 16},
		"a small part, a small bound": {10_000, 10, 5, 5},
		"all of a large backlog":      {10_000, 10_000, 5000, 500},
		"a part that does not wait":   {10_000, 0, 300, 16},
	} {
		m := room.New(time.Hour, time.Second, func() {})
		for range 1000 {
			m.Record(1000, time.Second)
		}
		m.AddOwed(tt.backlog)
		if n := m.RoundKeys(tt.owed, tt.most); n < tt.want-1 || n > tt.want {
			t.Errorf("%s: %d keys, want %d", name, n, tt.want)
		}
	}
}

// TestExpected checks estimates at a store that accepts a key a second: the key that waits is
// served once as many keys are as there are too many.
func TestExpected(t *testing.T) {
	for name, tt := range map[string]struct {
		owed  int64
		class room.Class
		want  time.Duration
	}{
		"a known key, one too many": {4, room.KnownKey, time.Second},
		"a known key, ten too many": {13, room.KnownKey, 10 * time.Second},
		"a new key, three too many": {4, room.NewKey, 3 * time.Second},
		"there is room already":     {0, room.KnownKey, time.Second},
		"nobody knows that far":     {1000, room.KnownKey, time.Minute},
		"nor how long that takes":   {1 << 60, room.KnownKey, time.Minute},
	} {
		m := newRoom()
		m.AddOwed(tt.owed)
		if d := m.ExpectedWait(tt.class).Round(time.Millisecond); d != tt.want {
			t.Errorf("%s: %v, want %v", name, d, tt.want)
		}
	}
}

// TestPace follows the pace of a store in the bounds of a room: the number of keys that the store
// accepts in two seconds for known keys, and in one for new ones.
func TestPace(t *testing.T) {
	m := room.New(32*time.Second, 5120*time.Millisecond, func() {})
	known := func() int64 { return m.Stats().Most[room.KnownKey] }
	isNew := func() int64 { return m.Stats().Most[room.NewKey] }
	if n := known(); n != 200 {
		t.Errorf("at a guess of 100 a second %d in two", n)
	}
	for range 200 {
		m.Record(1000, 20*time.Millisecond)
	}
	if n := known(); n < 95_000 || n > 100_000 {
		t.Errorf("at 50,000 a second %d in two", n)
	}
	for range 200 {
		m.Record(0, time.Second)
	}
	if n := known(); n < 95_000 {
		t.Errorf("after exchanges that say nothing of the pace: %d in two seconds", n)
	}
	m.Record(2000, time.Second)
	if n := isNew(); n > 30_000 {
		t.Errorf("after a second at 2,000: %d", n)
	}
	m.Record(1, time.Hour)
	if n := isNew(); n != 1 {
		t.Errorf("a store that stands still: %d, want 1", n)
	}
}
