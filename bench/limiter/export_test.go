package limiter

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// NewUnexpiring returns the hash-field-expiry limiter without the command that expires fields. Its
// decisions don't depend on that command, so the rest of its script can be tested on any server.
func NewUnexpiring(ctx context.Context, rdb *redis.Client) (*Scripted, error) {
	const expire = "redis.call('HPEXPIRE', KEYS[i], life, 'FIELDS', 1, field)"
	source := strings.Replace(hashScript, expire, "assert(life and field)", 1)
	if source == hashScript {
		panic("the script has changed")
	}
	return script{"", "hash, no expiry", source, hash("f:", lastN, 1)}.on(ctx, rdb)
}
