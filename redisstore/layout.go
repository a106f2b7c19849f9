package redisstore

import (
	"strconv"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

const (
	keyPrefix   = "tt:{p"
	metaKey     = "tt:meta"
	stateSuffix = "!s"
	// levelBase separates the number of the level from the index in a field.
	levelBase = leaparray.MaxIDs
)

func appendTag(b []byte, partition int) []byte {
	b = append(b, keyPrefix...)
	b = strconv.AppendInt(b, int64(partition), 10)
	return append(b, '}')
}

// Key returns the name of the Hash that holds a key's counts.
func Key(partition int, ns, key []byte) string {
	return string(appendKey(nil, partition, ns, key))
}

func appendKey(b []byte, partition int, ns, key []byte) []byte {
	b = append(appendTag(b, partition), ':')
	if len(ns) == 0 {
		b = append(b, syncer.DefaultNamespace...)
	} else {
		b = append(b, ns...)
	}
	b = append(b, ':')
	return append(b, key...)
}

func stateKey(partition int) string {
	return string(append(appendTag(nil, partition), stateSuffix...))
}

// recordKey returns the name of the Hash that records how much of a key was restored.
func recordKey(partition int, ns, key []byte) string {
	name, tag := Key(partition, ns, key), len(appendTag(nil, partition))
	return name[:tag] + "!r" + name[tag:]
}

func writerKey(partition int, writer string) string {
	return string(appendWriterKey(nil, partition, writer))
}

func appendWriterKey(b []byte, partition int, writer string) []byte {
	return append(append(appendTag(b, partition), "!w:"...), writer...)
}

// Field returns the name of a bucket in its key's Hash.
func Field(level int, idx int64) string {
	return strconv.FormatInt(idx*levelBase+int64(level), 10)
}

// parseField is the inverse of Field.
func parseField(s string) (level uint8, idx int64, ok bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n%levelBase >= leaparray.MaxIDs {
		return 0, 0, false
	}
	return uint8(n % levelBase), n / levelBase, true
}

// fields remembers the last field made for each level: most keys of a batch are counted in the same
// buckets.
type fields struct {
	idx  [leaparray.MaxIDs]int64
	name [leaparray.MaxIDs]string
}

func (f *fields) of(b *syncer.Bucket) string {
	if f.name[b.Level] == "" || f.idx[b.Level] != b.Index {
		f.idx[b.Level], f.name[b.Level] = b.Index, Field(int(b.Level), b.Index)
	}
	return f.name[b.Level]
}

// smallNumbers has the decimal digits of small numbers.
var smallNumbers = func() (s [256]string) {
	for i := range s {
		s[i] = strconv.Itoa(i)
	}
	return s
}()

func number(n int64) string {
	if n >= 0 && n < int64(len(smallNumbers)) {
		return smallNumbers[n]
	}
	return strconv.FormatInt(n, 10)
}

// parseBuckets parses the flat reply of HGETALL. It skips fields that are not buckets, which are
// none of our business.
func parseBuckets(reply []any, into []syncer.Bucket) []syncer.Bucket {
	for i := 0; i+1 < len(reply); i += 2 {
		name, _ := reply[i].(string)
		value, _ := reply[i+1].(string)
		level, idx, ok := parseField(name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			n = syncer.NoCount
		}
		into = append(into, syncer.Bucket{Level: level, Index: idx, N: n})
	}
	return into
}
