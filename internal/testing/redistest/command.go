package redistest

import (
	"fmt"
	"strings"
	"testing"
)

// must sends a command and ends the test if it fails.
func must(t testing.TB, s *Server, args ...any) {
	t.Helper()
	if err := s.Do(args...).Err(); err != nil {
		t.Fatalf("redistest: %v at %s: %v", args, s.Addr(), err)
	}
}

// text is must for a command with a text reply, which it returns.
func text(t testing.TB, s *Server, args ...any) string {
	t.Helper()
	reply, err := s.Do(args...).Text()
	if err != nil {
		t.Fatalf("redistest: %v at %s: %v", args, s.Addr(), err)
	}
	return reply
}

// infoHas returns an error unless the reply to a command contains all the given parts.
func infoHas(s *Server, args []any, parts ...string) error {
	info, err := s.Do(args...).Text()
	if err != nil {
		return err
	}
	for _, part := range parts {
		if !strings.Contains(info, part) {
			return fmt.Errorf("%v at %s: no %q in %q", args, s.Addr(), part, info)
		}
	}
	return nil
}
