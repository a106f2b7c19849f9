package redistest

import (
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"testing"
)

// FeatureSet lists features that tests depend on and that some servers lack.
type FeatureSet struct {
	// HPExpire is set if fields of a hash can expire one by one (HPEXPIRE: Redis from 7.4, Valkey
	// from 9).
	HPExpire bool
	// TairHash is set if the TairHash module is loaded (EXHINCRBY and so on).
	TairHash bool
	// WaitAOF is set if a client can wait for the append-only file (WAITAOF: Redis from 7.2).
	WaitAOF bool
}

// Features detects the features of the server by trying them.
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

// Expiries returns the ways of expiring buckets, as --redis-expiry names them, that the server
// supports. "key" is always one.
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

// Expiry chooses one of the supported ways of expiring buckets by the name of the test, so that one
// run of a suite covers all of them. TWOTIER_TEST_EXPIRY in the environment chooses one for all
// tests, if the server supports it.
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
