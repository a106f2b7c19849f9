package proctest

import (
	"context"
	"encoding/binary"
	"fmt"
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

// Stored returns the counts of the keys in Redis: the sums of their fields. A field that counts
// nothing is an error.
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

// Events returns how many events a field of a Hash has.
func Events(field, value string) (n int64, err error) {
	cells, err := Cells(field, value)
	for _, c := range cells {
		n += c.N
	}
	return n, err
}

// Cell is a number of events in a stretch of time, in unix milliseconds.
type Cell struct{ Start, Width, N int64 }

// Cells returns the cells that a field of a Hash has: the log, with the width, the index and the
// number of events of each, or a page of cells of one width, each with how far its index is from
// that of the one before.
func Cells(field, value string) (cells []Cell, err error) {
	rest := []byte(field[1:])
	number := func() int64 {
		n, used := binary.Uvarint(rest)
		rest = rest[max(used, 0):]
		return int64(n)
	}
	log, width, index := field == "d", int64(0), int64(0)
	if !log && !strings.HasPrefix(field, "c") {
		return nil, fmt.Errorf("field %q counts nothing", field)
	}
	if !log {
		width, index = number(), number()<<24
	}
	for rest = []byte(value); len(rest) > 0; {
		if log {
			width, index = number(), 0
		}
		index += number()
		n, used := binary.Varint(rest)
		if used <= 0 {
			return nil, fmt.Errorf("field %q can't be decoded: %q", field, value)
		}
		cells, rest = append(cells, Cell{index * width, width, n}), rest[used:]
	}
	return cells, nil
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
