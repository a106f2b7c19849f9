package redistest

import (
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"testing"
)

// FeatureSet lists the abilities that tests depend on and that not every server has.
type FeatureSet struct {
	// HPExpire says that fields of a hash can expire one by one (HPEXPIRE: Redis from 7.4, Valkey
	// from 9).
	HPExpire bool
	// TairHash says that the module of this name is there (EXHINCRBY and so on).
	TairHash bool
	// WaitAOF says that a client can wait for the append-only file (WAITAOF: Redis from 7.2).
	WaitAOF bool
}

// Features tries out what the server can do.
func Features(t testing.TB, s *Server) FeatureSet {
	t.Helper()
	const key = "redistest:probe"
	must := func(args ...any) {
		t.Helper()
		if err := s.Do(args...).Err(); err != nil {
			t.Fatalf("redistest: probe: %v", err)
		}
	}
	has := func(args ...any) bool {
		t.Helper()
		err := s.Do(args...).Err()
		if err != nil && !strings.Contains(err.Error(), "unknown command") {
			t.Fatalf("redistest: probe: %v", err)
		}
		return err == nil
	}
	must("HSET", key, "f", 1)
	var f FeatureSet
	f.HPExpire = has("HPEXPIRE", key, 60000, "FIELDS", 1, "f")
	must("DEL", key)
	f.TairHash = has("EXHINCRBY", key, "f", 1, "PX", 60000)
	must("DEL", key)
	f.WaitAOF = has("WAITAOF", 0, 0, 1)
	return f
}

// Expiries returns the ways of expiring buckets, as --redis-expiry names them, that the server has.
// "key" is always one.
func Expiries(t testing.TB, s *Server) []string {
	t.Helper()
	f, list := Features(t, s), []string{"key"}
	if f.HPExpire {
		list = append(list, "field")
	}
	if f.TairHash {
		list = append(list, "tairhash")
	}
	return list
}

// Expiry deals one of the ways of expiring buckets that the server has to a test, by the test's
// name, so that in a suite that is run once each of them has its share. The environment's
// TWOTIER_TEST_EXPIRY names one for all, where the server has it.
func Expiry(t testing.TB, s *Server) string {
	t.Helper()
	list := Expiries(t, s)
	if chosen := os.Getenv("TWOTIER_TEST_EXPIRY"); slices.Contains(list, chosen) {
		return chosen
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	return list[h.Sum32()%uint32(len(list))]
}
