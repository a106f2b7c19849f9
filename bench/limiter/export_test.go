package limiter

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// NewUnexpiring returns the limiter of NewFieldExpiry without the command that makes fields expire.
// Its decisions don't depend on that command, so the rest of its script can be tested on any
// server.
func NewUnexpiring(rdb *redis.Client) *Scripted {
	const expire = "redis.call('HPEXPIRE', KEYS[i], life, 'FIELDS', 1, field)"
	script := strings.Replace(hashScript, expire, "assert(life and field)", 1)
	if script == hashScript {
		panic("the script has changed")
	}
	return newScripted("hash, no expiry", rdb, script, encodeHash("f:", LastN, 1))
}

// Load loads the script into the server, as NewScripted does.
func (s *Scripted) Load(ctx context.Context) error { return s.load(ctx) }
