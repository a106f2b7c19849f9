package proctest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
)

// Hash returns the name of the Redis Hash of a key in the default namespace.
func Hash(partitions int, key string) string {
	place := twotier.Placement{Partitions: partitions}
	return fmt.Sprintf("tt:{p%d}:default:%s", place.Of(nil, []byte(key)), key)
}

// VersionField is the field of a Hash that holds no count, but its version.
const VersionField = "v"

// Stored returns the counts of the keys in Redis: the sums of their fields. Another field or a
// value that is no integer is an error.
func Stored(client redis.UniversalClient, partitions int, keys []string) (map[string]int64, error) {
	ctx := context.Background()
	var cmds []*redis.MapStringStringCmd
	pipe := client.Pipeline()
	for _, key := range keys {
		cmds = append(cmds, pipe.HGetAll(ctx, Hash(partitions, key)))
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	counts := map[string]int64{}
	for i, cmd := range cmds {
		fields, err := cmd.Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			if tair, tairErr := tairHash(ctx, client, Hash(partitions, keys[i])); tairErr == nil {
				fields, err = tair, nil
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", keys[i], err)
		}
		counts[keys[i]] = 0
		delete(fields, VersionField)
		for field, value := range fields {
			_, err := strconv.ParseInt(field, 10, 64)
			n, err2 := strconv.ParseInt(value, 10, 64)
			if err := errors.Join(err, err2); err != nil {
				return nil, fmt.Errorf("%s: field %s=%s: %w", keys[i], field, value, err)
			}
			counts[keys[i]] += n
		}
	}
	return counts, nil
}

// tairHash reads a key whose buckets are in a TairHash, as with --redis-expiry=tairhash.
func tairHash(ctx context.Context, client redis.UniversalClient,
	name string) (map[string]string, error) {
	flat, err := client.Do(ctx, "EXHGETALL", name).StringSlice()
	fields := map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		fields[flat[i]] = flat[i+1]
	}
	return fields, err
}
