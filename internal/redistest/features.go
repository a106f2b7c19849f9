package redistest

import (
	"strings"
	"testing"
)

// FeatureSet lists the abilities that tests depend on and that not every server has.
type FeatureSet struct {
	// HPExpire says that fields of a hash can expire one by one (HPEXPIRE: Redis from 7.4, Valkey from 9).
	HPExpire bool
}

// Features tries out what the server can do.
func Features(t testing.TB, s *Server) FeatureSet {
	t.Helper()
	const key = "redistest:probe"
	if err := s.Do("HSET", key, "f", 1).Err(); err != nil {
		t.Fatalf("redistest: probe: %v", err)
	}
	err := s.Do("HPEXPIRE", key, 60000, "FIELDS", 1, "f").Err()
	if err != nil && !strings.Contains(err.Error(), "unknown command") {
		t.Fatalf("redistest: probe: %v", err)
	}
	if err := s.Do("DEL", key).Err(); err != nil {
		t.Fatalf("redistest: probe: %v", err)
	}
	return FeatureSet{HPExpire: err == nil}
}
