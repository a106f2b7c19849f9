package limiter

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// As hashScript, but every bucket is given its own time to live when it is new, and nothing deletes it. Buckets are
// still chosen by their index: the server's clock runs on while a trace stands still.
const fieldScript = `
local a = 1
local add = {}
for i = 1, #KEYS do
  local n, rules = tonumber(ARGV[a]), tonumber(ARGV[a + 4])
  add[i] = {n, ARGV[a + 1], ARGV[a + 3]}
  a = a + 5
  local buckets = redis.call('HGETALL', KEYS[i])
  for _ = 1, rules do
    local oldest, max = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    a = a + 2
    local held = 0
    for b = 1, #buckets, 2 do
      if tonumber(buckets[b]) >= oldest then held = held + tonumber(buckets[b + 1]) end
    end
    if held + n > max then return 0 end
  end
end
for i = 1, #KEYS do
  local n, field, life = add[i][1], add[i][2], add[i][3]
  if redis.call('HINCRBY', KEYS[i], field, n) == n then
    redis.call('HPEXPIRE', KEYS[i], life, 'FIELDS', 1, field)
  end
end
return 1`

// NewFieldExpiry returns the Hash whose fields expire one by one, as TairHash does it and Redis since 7.4 and Valkey since
// 9. It asks the server for the command and returns ErrNotAvailable where it has none.
func NewFieldExpiry(ctx context.Context, rdb *redis.Client) (*Scripted, error) {
	const name = "hash, field expiry"
	err := rdb.HPExpire(ctx, "limiter:probe", time.Second, "f").Err()
	if err != nil && strings.HasPrefix(err.Error(), "ERR unknown command") {
		return nil, fmt.Errorf("%s: HPEXPIRE: %w", name, ErrNotAvailable)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: probe: %w", name, err)
	}
	return &Scripted{name: name, rdb: rdb, script: redis.NewScript(fieldScript),
		encode: func(checks []Check, ts int64) ([]string, []any) {
			return encodeHash("f:", checks, ts, LastN)
		}}, nil
}
