package scripts

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// The ways to expire buckets: by the key's time to live, by one of each field, or by TairHash.
const (
	ExpireKeys     = "key"
	ExpireFields   = "field"
	ExpireTairhash = "tairhash"
)

// Set holds the scripts for one way of expiring buckets. The heads of the files describe them.
type Set struct {
	Round, Restore, Reset, Commit, Fields *redis.Script
}

// New returns the scripts for one way of expiring buckets. Those about counts begin with its code.
func New(expiry string) Set {
	counts := text("expiry_"+expiry, "cells", "epoch")
	rounds := counts + text("rounds")
	return Set{
		Round:   redis.NewScript(rounds + text("round")),
		Restore: redis.NewScript(rounds + text("restore")),
		Reset:   redis.NewScript(rounds + text("reset")),
		Commit:  redis.NewScript(counts + text("commit")),
		Fields:  redis.NewScript(text("fields")),
	}
}

// text returns the text of some files.
func text(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		one, _ := files.ReadFile("lua/" + name + ".lua") // a missing one fails every test
		all.Write(one)
	}
	return all.String()
}
