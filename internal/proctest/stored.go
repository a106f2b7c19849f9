package proctest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"twotier/redisstore"
	"twotier/syncer"
)

// Hash is the name of the Redis Hash of a key in the default namespace.
func Hash(partitions int, key string) string {
	place := syncer.Placement{Partitions: partitions}
	return redisstore.Key(place.Of(nil, []byte(key)), nil, []byte(key))
}

// Stored returns what Redis holds of the keys: the sum of the coarsest level of the default ladder. The minutes must say the same.
func Stored(client redis.UniversalClient, partitions int, keys []string) (map[string]int64, error) {
	var cmds []*redis.MapStringStringCmd
	pipe := client.Pipeline()
	for _, key := range keys {
		cmds = append(cmds, pipe.HGetAll(context.Background(), Hash(partitions, key)))
	}
	_, _ = pipe.Exec(context.Background()) // every command has its own error
	counts := map[string]int64{}
	for i, cmd := range cmds {
		fields, err := cmd.Result()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", keys[i], err)
		}
		var levels [3]int64
		for field, value := range fields {
			f, err1 := strconv.ParseInt(field, 10, 64)
			n, err2 := strconv.ParseInt(value, 10, 64)
			if err := errors.Join(err1, err2); err != nil || f%10 > 2 {
				return nil, fmt.Errorf("%s: field %s=%s: %w", keys[i], field, value, err)
			}
			levels[f%10] += n
		}
		if levels[1] != levels[2] {
			return nil, fmt.Errorf("%s: the levels sum to %v", keys[i], levels)
		}
		counts[keys[i]] = levels[2]
	}
	return counts, nil
}
