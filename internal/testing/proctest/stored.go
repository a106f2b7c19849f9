package proctest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
			n, err := Events(field, value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", keys[i], err)
			}
			counts[keys[i]] += n
		}
	}
	return counts, nil
}

// Events returns how many events a field of a Hash has: a bucket, or a list of moments.
func Events(field, value string) (n int64, err error) {
	if moments, ok := Moments(field, value); ok {
		for _, of := range moments {
			n += of
		}
		return n, nil
	}
	_, err = strconv.ParseInt(field, 10, 64)
	n, err2 := strconv.ParseInt(value, 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return 0, fmt.Errorf("field %s=%s: %w", field, value, err)
	}
	return n, nil
}

// Moments returns the events that a field of a Hash lists, by their time in unix milliseconds.
func Moments(field, value string) (moments map[int64]int64, ok bool) {
	if !strings.HasPrefix(field, "o") {
		return nil, false
	}
	base := field[1:]
	if base == "" {
		base, value = value[:6], value[8:] // in between is the number of all moments
	}
	time := int64(binary.BigEndian.Uint64([]byte("\x00\x00" + base[:6])))
	moments = map[int64]int64{}
	for ; len(value) >= 4; value = value[4:] {
		after := binary.BigEndian.Uint32([]byte("\x00" + value[:3]))
		moments[time+int64(after)-1<<23] += int64(value[3])
	}
	return moments, true
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
