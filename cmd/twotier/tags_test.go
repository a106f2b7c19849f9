package main

import (
	"os"
	"path/filepath"
	"testing"

	"twotier.dev/twotier/internal/config"
)

// TestNodesWithOtherHashTags checks that nodes that would place keys differently, or look for them
// under another prefix, refuse each other even before they have reached Redis.
func TestNodesWithOtherHashTags(t *testing.T) {
	digest := func(text string) uint64 {
		t.Helper()
		path := filepath.Join(t.TempDir(), "twotier.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Parse([]string{"--config", path}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return dataDigest(placement(cfg), cfg.RedisPrefix)
	}
	tagged := digest("namespaces: {sms: {hash-tags: true}, login: {}}")
	if same := digest("namespaces: {sms: {hash-tags: true}, default: {hash-tags: false}}"); same !=
		tagged {
		t.Errorf("%x and %x place keys in the same way", tagged, same)
	}
	for _, other := range []string{"namespaces: {}", "namespaces: {sms: {}, login: {}}",
		"redis-prefix: tt-staging\nnamespaces: {sms: {hash-tags: true}}",
		"namespaces: {login: {hash-tags: true}}", "namespaces: {default: {hash-tags: true}}"} {
		if digest(other) == tagged {
			t.Errorf("the same as of %q", other)
		}
	}
}
