package storetest

import (
	"context"
	"fmt"
	"testing"

	"twotier.dev/twotier/syncer"
)

// requireLister skips the test unless the store lists its keys.
func requireLister(t *testing.T, s syncer.Store) syncer.Lister {
	t.Helper()
	l, ok := s.(syncer.Lister)
	if !ok {
		t.Skip("this store doesn't list its keys")
	}
	return l
}

// readList reads a list to its end, and returns the hashes. begun reports whether a part of that
// was the beginning of the list.
func readList(t *testing.T, s syncer.Lister, l *syncer.KeyList) (found map[uint32]bool,
	begun bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found = map[uint32]bool{}
	for l.More = true; l.More; {
		if s.ListKeys(ctx, []*syncer.KeyList{l}); l.Err != nil {
			t.Fatal(l.Err)
		}
		begun = begun || l.Begun
		for _, h := range l.Hashes {
			found[h] = true
		}
	}
	return found, begun
}

func checkListed(t *testing.T, found map[uint32]bool, want bool, ns string, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if found[syncer.KeyHash([]byte(ns), []byte(k))] != want {
			t.Errorf("key %q of namespace %q is listed: %v, want %v", k, ns, !want, want)
		}
	}
}

// longLivedKey is a key that lives for a day.
func longLivedKey(name string) syncer.KeyRound {
	k := key(name, bucket(0, 0, 1), bucket(1, 0, 1))
	k.TTL, k.Renew = 86_400_000, true
	return k
}

// applyAll applies a round of several keys.
func applyAll(t testing.TB, s syncer.Store, writer string, seq uint64, keys ...syncer.KeyRound) {
	t.Helper()
	exchange(t, s, &syncer.Round{Partition: 17, Writer: writer, Seq: seq, Keys: keys})
}

// testListKeys counts keys in every way that a round can, by two writers, and reads on in the list
// of keys each time: it gains all new keys, and no others.
func testListKeys(t *testing.T, s syncer.Store) {
	list, l := requireLister(t, s), &syncer.KeyList{Partition: 17}
	isNew, loaded, inNamespace := longLivedKey("new"), longLivedKey("loaded"), longLivedKey("named")
	isNew.New, loaded.Load, inNamespace.NS = true, true, []byte("login")
	applyAll(t, s, "v", 1, longLivedKey("plain"), isNew, loaded, inNamespace)
	found, _ := readList(t, list, l)
	checkListed(t, found, true, "", "plain", "new", "loaded")
	checkListed(t, found, true, "login", "named")
	checkListed(t, found, false, "", "named", "other")

	var many []syncer.KeyRound
	for i := range 300 {
		many = append(many, longLivedKey(fmt.Sprint("many-", i)))
	}
	applyAll(t, s, "w", 1, many...)
	forgotten := longLivedKey("new")
	forgotten.Reset = true
	applyAll(t, s, "v", 2, forgotten, longLivedKey("later"))
	found, begun := readList(t, list, l)
	checkListed(t, found, true, "", "many-0", "many-299", "later")
	checkListed(t, found, false, "", "plain")
	if begun {
		t.Error("the list has begun anew")
	}
	r := &syncer.Round{Partition: 17, Writer: "reader"}
	if exchange(t, s, r); l.Epoch != r.Epoch {
		t.Errorf("epoch %d, want %d", l.Epoch, r.Epoch)
	}
	whole := &syncer.KeyList{Partition: 17}
	found, _ = readList(t, list, whole)
	checkListed(t, found, true, "", "plain", "new", "loaded", "many-0", "many-299", "later")
	epoch(t, s, 18)
	if another, _ := readList(t, list, &syncer.KeyList{Partition: 18}); len(another) > 0 {
		t.Errorf("another partition lists %d keys", len(another))
	}
}

// testListTellsOfALoss checks that a list is not read if the store has less than KeyList.Told.
func testListTellsOfALoss(t *testing.T, s syncer.Store) {
	list := requireLister(t, s)
	applyAll(t, s, "v", 1, longLivedKey("a"), longLivedKey("b"))
	r := &syncer.Round{Partition: 17, Writer: "reader"}
	exchange(t, s, r)
	told := syncer.Told{Epoch: r.Epoch, Version: r.Version, Quieted: r.Quieted,
		LastChange: r.LastChange}
	other, version, quieted := told, told, told
	other.Epoch++
	version.Version++
	quieted.Quieted++
	for _, tt := range []struct {
		what string
		told syncer.Told
		lost bool
	}{
		{"nothing", syncer.Told{}, false}, {"what it has", told, false}, {"other data", other, true},
		{"another change", version, true}, {"another quiet change", quieted, true},
	} {
		l := &syncer.KeyList{Partition: 17, Told: tt.told}
		list.ListKeys(t.Context(), []*syncer.KeyList{l})
		if l.Err != nil || l.Lost != tt.lost || (len(l.Hashes) == 2) == tt.lost {
			t.Errorf("told of %s: lost %v, %d hashes, %v", tt.what, l.Lost, len(l.Hashes), l.Err)
		}
	}
}

// testListLostKeys loses everything, and restores a key. A counter that has read the list before
// reads it from its new beginning.
func testListLostKeys(t *testing.T, s syncer.Store) {
	list, l := requireLister(t, s), &syncer.KeyList{Partition: 17}
	loser, ok := s.(Loser)
	if !ok {
		t.Skip("this store can't lose data")
	}
	applyAll(t, s, "v", 1, longLivedKey("lost"), longLivedKey("restored"))
	readList(t, list, l)
	loser.Lose(t)
	restored := key("restored", bucket(0, 0, 8))
	exchange(t, s, restorationRound(t, s, l.Epoch, restored))
	found, begun := readList(t, list, l)
	checkListed(t, found, true, "", "restored")
	checkListed(t, found, false, "", "lost")
	if !begun {
		t.Error("the list has not begun anew")
	}
}
